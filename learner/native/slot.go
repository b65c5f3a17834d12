package native

import (
	"errors"

	"agentlightning/learner/native/internal/kernel"
)

var errCancelled = errors.New("request was cancelled")

// slot is the key-value cache of one sequence. After the sequence has ended it
// keeps its contents, so that the next turn of the same conversation, or
// another sample of the same prompt, need not compute them again.
type slot struct {
	busy   bool
	used   int64   // when it was released, in releases of the engine
	ids    []int32 // the tokens that the cache holds
	filled int     // len(ids); how many tokens are cached
	// serial of the weights behind all of the cache, or 0 when an update came in
	// between: then it serves its own sequence only.
	serial int64
	layers []slotLayer
}

// slotLayer is the cache of one block.
type slotLayer struct {
	keys []float32 // transposed: Dim rows of the padded context, scaled
	vals []float32 // tokens × Dim
}

func newSlot(lay *layout) *slot {
	d, pad := lay.cfg.Dim, kernel.RoundUp(lay.cfg.Context)
	s := &slot{layers: make([]slotLayer, lay.cfg.Layers), ids: make([]int32, 0, lay.cfg.Context)}
	for i := range s.layers {
		s.layers[i] = slotLayer{keys: make([]float32, d*pad), vals: make([]float32, d*pad)}
	}
	return s
}

// common returns how many tokens of a prompt the slot holds. The last token of
// the prompt never counts: its logits are needed.
func (s *slot) common(prompt []int32) int {
	n := min(s.filled, len(prompt)-1)
	for i := range n {
		if s.ids[i] != prompt[i] {
			return i
		}
	}
	return n
}

func (s *slot) truncate(n int) { s.ids, s.filled = s.ids[:n], n }

// copyFrom takes over the first n tokens of another slot.
func (s *slot) copyFrom(o *slot, n int, lay *layout) {
	d, pad := lay.cfg.Dim, kernel.RoundUp(lay.cfg.Context)
	for i := range s.layers {
		to, from := &s.layers[i], &o.layers[i]
		for j := range d {
			copy(to.keys[j*pad:j*pad+n], from.keys[j*pad:j*pad+n])
		}
		copy(to.vals[:n*d], from.vals[:n*d])
	}
	s.ids = append(s.ids[:0], o.ids[:n]...)
	s.filled, s.serial = n, o.serial
}

// minCopy is the shortest prefix that is worth copying between slots.
const minCopy = 4

// place gives a sequence its slot, with as much of the prompt in it as some
// slot holds for the current weights. There must be a free or a new slot.
func (e *engine) place(s *sequence) {
	serial := e.m.current.Load().serial
	var free, best *slot
	common, bestFree := 0, false
	for _, c := range e.slots {
		if !c.busy && (free == nil || c.used < free.used) {
			free = c
		}
		if c.serial != serial {
			continue
		}
		if n := c.common(s.req.Prompt); n > common || n == common && n > 0 && !c.busy && !bestFree {
			best, common, bestFree = c, n, !c.busy
		}
	}
	// A conversation goes on in its own slot; a mere shared beginning is copied,
	// so that what the slot holds beyond it stays useful.
	if best != nil && bestFree && common == best.filled {
		free = best
	} else if len(e.slots) < e.m.cfg.Slots {
		free = newSlot(e.m.lay)
		e.slots = append(e.slots, free)
	}
	switch {
	case free == best && best != nil:
		free.truncate(common)
	case common >= minCopy:
		free.copyFrom(best, common, e.m.lay)
	default:
		free.truncate(0)
	}
	if free.filled == 0 {
		free.serial = serial
	}
	free.busy = true
	s.slot, s.result.Cached = free, free.filled
}
