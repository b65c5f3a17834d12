package native

import (
	"sync"
)

// engine samples all requests in flight together: every round it takes in what
// is waiting, runs one forward pass over the prompts of new sequences and the
// last token of the others, and samples one token for each. Its goroutine is
// started by startEngine and ends in stop.
type engine struct {
	m     *Model
	slots []*slot
	runs  []*decoder // one a worker

	wake chan struct{} // capacity 1: something is waiting or closing
	done chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	waiting []*sequence
	closing bool

	active []*sequence // of the goroutine alone
	tick   int64
}

func startEngine(m *Model) *engine {
	e := &engine{m: m, wake: make(chan struct{}, 1), done: make(chan struct{})}
	for range m.cfg.Workers {
		e.runs = append(e.runs, newDecoder(m.level, m.lay))
	}
	go e.loop()
	return e
}

// submit hands a sequence to the engine.
func (e *engine) submit(s *sequence) error {
	e.mu.Lock()
	if e.closing {
		e.mu.Unlock()
		return ErrClosed
	}
	e.waiting = append(e.waiting, s)
	e.mu.Unlock()
	e.poke()
	return nil
}

func (e *engine) poke() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// stop ends the goroutine and waits for it.
func (e *engine) stop() {
	e.mu.Lock()
	e.closing = true
	e.mu.Unlock()
	e.poke()
	<-e.done
}

func (e *engine) loop() {
	defer close(e.done)
	// It looks before it waits: when all active sequences end in one round, those
	// that had no slot yet are still waiting and nobody will poke for them.
	for !e.admit() {
		if len(e.active) == 0 {
			<-e.wake
			continue
		}
		e.round()
	}
	for _, s := range e.active {
		e.finish(s, ErrClosed)
	}
}

// admit moves waiting sequences into free slots and drops cancelled ones. It
// reports whether the engine is to end.
func (e *engine) admit() (closing bool) {
	kept := e.active[:0]
	for _, s := range e.active {
		if s.cancelled.Load() {
			e.finish(s, errCancelled)
			continue
		}
		kept = append(kept, s)
	}
	clear(e.active[len(kept):])
	e.active = kept

	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		e.active = append(e.active, e.waiting...)
		e.waiting = nil
		return true
	}
	n := 0
	for n < len(e.waiting) && len(e.active) < e.m.cfg.Slots {
		s := e.waiting[n]
		n++
		if s.cancelled.Load() {
			e.finish(s, errCancelled)
			continue
		}
		e.place(s)
		e.active = append(e.active, s)
	}
	rest := copy(e.waiting, e.waiting[n:])
	clear(e.waiting[rest:])
	e.waiting = e.waiting[:rest]
	return false
}

// round samples one token for every active sequence.
func (e *engine) round() {
	snap := e.m.current.Load()
	parts := divide(e.active, len(e.runs))
	e.m.parallel(len(parts), func(i int) { e.runs[i].advance(snap, parts[i]) })
	kept := e.active[:0]
	for _, s := range e.active {
		if s.finished {
			e.finish(s, nil)
			continue
		}
		kept = append(kept, s)
	}
	clear(e.active[len(kept):])
	e.active = kept
}

// finish releases a sequence to whoever waits for it.
func (e *engine) finish(s *sequence, err error) {
	s.err = err
	if s.slot != nil {
		e.tick++
		s.slot.busy, s.slot.used = false, e.tick
		s.slot = nil
	}
	if s.stream != nil {
		close(s.stream)
	}
	close(s.done)
}

// minShare is the work below which a second worker costs more than it gives.
const minShare = 4

// divide cuts the sequences into at most n runs of about equal work.
func divide(seqs []*sequence, n int) [][]*sequence {
	work := 0
	for _, s := range seqs {
		work += s.pending()
	}
	n = max(1, min(n, work/minShare))
	var parts [][]*sequence
	for len(seqs) > 0 {
		want := work / (n - len(parts))
		k, sum := 1, seqs[0].pending()
		for k < len(seqs) && (sum+seqs[k].pending()/2 < want || len(parts) == n-1) {
			sum += seqs[k].pending()
			k++
		}
		parts = append(parts, seqs[:k])
		seqs, work = seqs[k:], work-sum
	}
	return parts
}

// pending is the number of tokens that the next round has to run.
func (s *sequence) pending() int { return len(s.ids) - s.slot.filled }
