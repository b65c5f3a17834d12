package engine

import (
	"container/list"
	"sync"
)

// line is where dequeue calls wait for work, first come, first served. A
// rollout that joins the queue calls one of them, so that a thousand waiting
// calls cost no more than one. Whoever is called and does not need it passes the
// call on.
type line struct {
	mu      sync.Mutex
	waiting list.List // of *place
}

// place is the place of one waiting call.
type place struct {
	called chan struct{} // holds a call until it is heard
	elem   *list.Element // nil while not in line
}

func (l *line) join() *place {
	p := &place{called: make(chan struct{}, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	p.elem = l.waiting.PushBack(p)
	return p
}

// rejoin puts a call that was woken back at the front, before it looks: if
// another was quicker, it is still the next.
func (l *line) rejoin(p *place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.elem = l.waiting.PushFront(p)
}

// leave takes a call out of the line and passes on a call that it did not hear.
func (l *line) leave(p *place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.elem != nil {
		l.waiting.Remove(p.elem)
		p.elem = nil
		return
	}
	l.callLocked(1)
}

// wake calls up to n waiting calls.
func (l *line) wake(n int) {
	if n <= 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.callLocked(n)
}

func (l *line) callLocked(n int) {
	for ; n > 0 && l.waiting.Len() > 0; n-- {
		p := l.waiting.Remove(l.waiting.Front()).(*place)
		p.elem = nil
		p.called <- struct{}{}
	}
}

func (l *line) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting.Len() == 0
}
