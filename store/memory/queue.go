package memory

// queue is a line of distinct ids that grows at both ends: a ring that is
// doubled when it is full.
type queue struct {
	ring   []string
	head   int
	length int
	queued map[string]struct{}
}

func newQueue() *queue { return &queue{ring: make([]string, 16), queued: map[string]struct{}{}} }

func (q *queue) has(id string) bool {
	_, ok := q.queued[id]
	return ok
}

func (q *queue) at(i int) *string { return &q.ring[(q.head+i)%len(q.ring)] }

func (q *queue) grow() {
	if q.length < len(q.ring) {
		return
	}
	ring := make([]string, 2*len(q.ring))
	n := copy(ring, q.ring[q.head:])
	copy(ring[n:], q.ring[:q.head])
	q.ring, q.head = ring, 0
}

func (q *queue) pushBack(id string) {
	q.grow()
	*q.at(q.length) = id
	q.length++
	q.queued[id] = struct{}{}
}

func (q *queue) pushFront(id string) {
	q.grow()
	q.head = (q.head + len(q.ring) - 1) % len(q.ring)
	q.ring[q.head] = id
	q.length++
	q.queued[id] = struct{}{}
}

func (q *queue) popFront() string {
	id := q.ring[q.head]
	q.ring[q.head] = ""
	q.head = (q.head + 1) % len(q.ring)
	q.length--
	delete(q.queued, id)
	return id
}

func (q *queue) popBack() string {
	last := q.at(q.length - 1)
	id := *last
	*last = ""
	q.length--
	delete(q.queued, id)
	return id
}

// without returns a queue of the same ids but one.
func (q *queue) without(id string) *queue {
	out := newQueue()
	for i := range q.length {
		if other := *q.at(i); other != id {
			out.pushBack(other)
		}
	}
	return out
}
