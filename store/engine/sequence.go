package engine

import (
	"container/list"
	"context"
	"maps"
	"slices"
	"sync"

	"agentlightning/store"
)

const (
	// sequenceBlock is how many numbers are reserved beyond those asked for, so
	// that most calls need no transaction. A crash skips the unused ones.
	sequenceBlock = 32
	// maxCounters bounds the counters kept in memory; when there are more, the
	// oldest counterBatch give back their unused numbers and are forgotten.
	maxCounters  = 8192
	counterBatch = 512
)

// sequencer issues the span numbers of rollouts. The backend's counter is never
// below a number that was issued, so that no number is issued twice, whatever
// happens to the process. A backend that others write to is asked every time.
type sequencer struct {
	block int // numbers reserved ahead; 0 asks the backend every time

	mu     sync.Mutex
	byID   map[string]*counter
	recent list.List // of *counter, the last used in front
}

// counter is the counter of one rollout. Locks of several are taken in the order
// of the ids.
type counter struct {
	id   string
	elem *list.Element
	pins int // calls that use it; guarded by the sequencer's mutex

	mu       sync.Mutex
	last     int64 // last number issued or seen at a span
	reserved int64 // value of the backend's counter
}

// pin returns the counters of rollouts, ordered by id. They are not forgotten
// before unpin.
func (q *sequencer) pin(ids []string) []*counter {
	slices.Sort(ids)
	out := make([]*counter, len(ids))
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, id := range ids {
		c := q.byID[id]
		if c == nil {
			c = &counter{id: id}
			if q.byID == nil {
				q.byID = map[string]*counter{}
			}
			q.byID[id] = c
			c.elem = q.recent.PushFront(c)
		} else {
			q.recent.MoveToFront(c.elem)
		}
		c.pins++
		out[i] = c
	}
	return out
}

func (q *sequencer) unpin(counters []*counter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range counters {
		c.pins--
	}
}

// surplus pins and locks the oldest unused counters when there are too many, or
// all that are not in use.
func (q *sequencer) surplus(all bool) []*counter {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !all && len(q.byID) <= maxCounters {
		return nil
	}
	var out []*counter
	for e := q.recent.Back(); e != nil && (all || len(out) < counterBatch); e = e.Prev() {
		if c := e.Value.(*counter); c.pins == 0 {
			c.pins++
			c.mu.Lock() // at once, for nobody else uses it
			out = append(out, c)
		}
	}
	return out
}

// forget unlocks and unpins counters, and drops those that nobody came to use.
func (q *sequencer) forget(counters []*counter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range counters {
		spare := c.reserved > c.last
		c.mu.Unlock()
		c.pins--
		if c.pins == 0 && !spare {
			delete(q.byID, c.id)
			q.recent.Remove(c.elem)
		}
	}
}

// NextSequenceIDs implements [store.SpanStore].
func (s *Store) NextSequenceIDs(ctx context.Context, attempts []store.Attempted) ([]int64, error) {
	if len(attempts) == 0 {
		return []int64{}, nil
	}
	key, err := keyOf(ctx, "next", attempts)
	if err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.life.RUnlock()
	if len(attempts) == 1 && key == nil {
		return s.nextOne(ctx, attempts[0].RolloutID)
	}
	count := map[string]int{}
	for _, a := range attempts {
		count[a.RolloutID]++
	}
	counters, err := s.counters(ctx, slices.Collect(maps.Keys(count)))
	if err != nil {
		return nil, err
	}
	defer s.sequences.unpin(counters)
	for _, c := range counters {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	if key != nil {
		return s.nextKeyed(ctx, key, attempts, counters, count)
	}
	if err := s.reserve(ctx, counters, count); err != nil {
		return nil, err
	}
	stands := standsOf(counters)
	out := stands.issue(attempts)
	stands.settle(counters)
	return out, nil
}

// nextOne issues one number, as nearly all calls ask for. The caller has entered.
func (s *Store) nextOne(ctx context.Context, rolloutID string) ([]int64, error) {
	counters, err := s.counters(ctx, []string{rolloutID})
	if err != nil {
		return nil, err
	}
	defer s.sequences.unpin(counters)
	c := counters[0]
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.sequences.block == 0 || c.reserved <= c.last {
		if err := s.reserve(ctx, counters, map[string]int{rolloutID: 1}); err != nil {
			return nil, err
		}
	}
	c.last++
	return []int64{c.last}, nil
}

// nextKeyed issues numbers and remembers them in one transaction. The caller has
// entered and holds the locks of the counters.
func (s *Store) nextKeyed(ctx context.Context, key *keyed, attempts []store.Attempted, counters []*counter, count map[string]int) (out []int64, err error) {
	var stands stands
	err = s.backend.Update(ctx, func(tx Tx) error {
		c := change{Tx: tx, now: s.now()}
		stands, out = standsOf(counters), nil
		if known, err := c.recall(key, &out); err != nil || known {
			return err
		}
		if err := s.take(tx, stands, s.short(counters, count), count); err != nil {
			return err
		}
		out = stands.issue(attempts)
		return c.keep(key, out)
	})
	if err != nil {
		return nil, err
	}
	stands.settle(counters)
	return out, nil
}

// stand is where a counter stands, or is going to when a transaction commits.
type stand struct{ last, reserved int64 }

type stands map[string]*stand // by rollout

func standsOf(counters []*counter) stands {
	out := make(stands, len(counters))
	for _, c := range counters {
		out[c.id] = &stand{c.last, c.reserved}
	}
	return out
}

// issue numbers attempts in order.
func (s stands) issue(attempts []store.Attempted) []int64 {
	out := make([]int64, len(attempts))
	for i, a := range attempts {
		at := s[a.RolloutID]
		at.last++
		out[i] = at.last
	}
	return out
}

// settle moves counters, whose locks the caller holds, to where they stand now.
func (s stands) settle(counters []*counter) {
	for _, c := range counters {
		c.last, c.reserved = s[c.id].last, s[c.id].reserved
	}
}

// counters pins the counters of rollouts, and makes room for them first. The
// caller has entered.
func (s *Store) counters(ctx context.Context, ids []string) ([]*counter, error) {
	if err := s.trimCounters(ctx, false); err != nil {
		return nil, err
	}
	return s.sequences.pin(ids), nil
}

// reserve makes sure that each counter may issue as many numbers as asked for.
// The caller has entered and holds their locks.
func (s *Store) reserve(ctx context.Context, counters []*counter, count map[string]int) error {
	short := s.short(counters, count)
	if len(short) == 0 {
		return nil
	}
	var stands stands
	err := s.backend.Update(ctx, func(tx Tx) error {
		stands = standsOf(short)
		return s.take(tx, stands, short, count)
	})
	if err != nil {
		return err
	}
	stands.settle(short)
	return nil
}

// short lists the counters that have fewer numbers in reserve than asked for.
func (s *Store) short(counters []*counter, count map[string]int) []*counter {
	return slices.DeleteFunc(slices.Clone(counters), func(c *counter) bool {
		return s.sequences.block > 0 && c.reserved-c.last >= int64(count[c.id])
	})
}

// take reserves numbers for the counters that are short.
func (s *Store) take(tx Tx, stands stands, short []*counter, count map[string]int) error {
	for _, c := range short {
		asked := count[c.id] + s.sequences.block
		top, err := tx.TakeSequenceIDs(c.id, asked)
		if err != nil {
			return err
		}
		// Usually the backend's counter stood where it was left. Where a span
		// or another process has raised it, numbering goes on above.
		at := stands[c.id]
		if before := top - int64(asked); before != at.reserved || s.sequences.block == 0 {
			at.last = max(at.last, before)
		}
		at.reserved = top
	}
	return nil
}

// notReserved marks the rollouts whose spans have numbers that the backend's
// counter may not have reached. The caller has pinned their counters, in the
// same order, so that no number is given back meanwhile.
func (s *Store) notReserved(counters []*counter, owners []spanOwner) {
	for i, c := range counters {
		c.mu.Lock()
		owners[i].raise = owners[i].highest > 0 && (s.sequences.block == 0 || owners[i].highest > c.reserved)
		c.mu.Unlock()
	}
}

// raiseCounters notes the numbers that stored spans came with.
func raiseCounters(counters []*counter, owners []spanOwner) {
	for i, c := range counters {
		c.mu.Lock()
		c.last = max(c.last, owners[i].highest)
		c.reserved = max(c.reserved, c.last)
		c.mu.Unlock()
	}
}

// reservation are span numbers that a transaction reserved for a rollout: the
// block that ends at last.
type reservation struct {
	rolloutID string
	last      int64
}

// reserveFirst reserves span numbers in the transaction that begins the first
// attempt of a rollout, so that asking for them needs none of its own.
func (c *change) reserveFirst(rolloutID string) error {
	if c.block == 0 {
		return nil
	}
	last, err := c.TakeSequenceIDs(rolloutID, c.block)
	c.reserved = append(c.reserved, reservation{rolloutID, last})
	return err
}

// grant hands what was reserved to the counters. One that somebody came to use
// in between stands above already.
func (q *sequencer) grant(reserved []reservation) {
	for _, r := range reserved {
		pinned := q.pin([]string{r.rolloutID})
		c := pinned[0]
		c.mu.Lock()
		if r.last > c.reserved {
			if before := r.last - int64(q.block); before != c.reserved {
				c.last = max(c.last, before)
			}
			c.reserved = r.last
		}
		c.mu.Unlock()
		q.unpin(pinned)
	}
}

// trimCounters gives unused numbers back to the backend, so that numbering goes
// on without a gap, and forgets their counters: some when there are too many, or
// all of them. The caller keeps Close out.
func (s *Store) trimCounters(ctx context.Context, all bool) error {
	old := s.sequences.surplus(all)
	if len(old) == 0 {
		return nil
	}
	defer s.sequences.forget(old) // who comes to use one now waits for its lock
	unused := slices.DeleteFunc(slices.Clone(old), func(c *counter) bool { return c.reserved <= c.last })
	if len(unused) == 0 {
		return nil
	}
	err := s.backend.Update(ctx, func(tx Tx) error {
		for _, c := range unused {
			if _, err := tx.TakeSequenceIDs(c.id, int(c.last-c.reserved)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, c := range unused {
		c.reserved = c.last
	}
	return nil
}
