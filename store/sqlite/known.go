package sqlite

import (
	agl "agentlightning"
	"agentlightning/store/engine"
)

// known is what the writer remembers of the rollouts it dealt with last, with
// their latest attempts. Nobody else writes, so it is the truth inside the
// writer's transaction; what is undone is forgotten. It spares most of the
// reading that the rules do before they write.
//
// It has two generations: when the young one is full the old one is dropped.
// Workers, of which there are few, start again when there are too many.
type known struct {
	young, old map[string]*knownRollout
	workers    map[string]*agl.Worker // not changed but replaced
}

const (
	// maxKnown is the size of a generation.
	maxKnown = 2048
	// maxKnownBytes is up to which size of input and metadata a rollout is
	// remembered; of larger ones only the seq is. Workers with more statistics
	// are not remembered.
	maxKnownBytes = 4096
)

type knownRollout struct {
	seq     int64
	whole   bool         // rollout is filled in
	rollout *agl.Rollout // not changed but replaced, as latest is

	latestKnown bool
	latest      *agl.Attempt // nil when there is none
	latestSeq   int64
}

func newKnown() *known {
	return &known{
		young: make(map[string]*knownRollout), old: make(map[string]*knownRollout),
		workers: make(map[string]*agl.Worker),
	}
}

func (k *known) get(id string) *knownRollout {
	if r, ok := k.young[id]; ok {
		return r
	}
	r, ok := k.old[id]
	if ok {
		k.keep(id, r)
	}
	return r
}

func (k *known) keep(id string, r *knownRollout) {
	if len(k.young) >= maxKnown {
		k.old, k.young = k.young, make(map[string]*knownRollout, maxKnown)
	}
	k.young[id] = r
}

// add returns the entry of a rollout, made when there is none.
func (k *known) add(id string) *knownRollout {
	r := k.get(id)
	if r == nil {
		r = new(knownRollout)
		k.keep(id, r)
	}
	return r
}

// put remembers the present value of a rollout.
func (k *known) put(seq int64, ro *agl.Rollout) {
	r := k.add(ro.RolloutID)
	r.seq = seq
	r.whole = len(ro.Input)+len(ro.Metadata) <= maxKnownBytes
	r.rollout = nil
	if r.whole {
		r.rollout = new(engine.CloneRollout(ro))
	}
}

// attempt remembers a new attempt if it is the latest.
func (k *known) attempt(seq int64, a *agl.Attempt) {
	r := k.get(a.RolloutID)
	if r == nil || !r.latestKnown {
		return
	}
	if r.latest == nil || a.SequenceID > r.latest.SequenceID {
		r.setLatest(seq, a)
	}
}

func (r *knownRollout) setLatest(seq int64, a *agl.Attempt) {
	r.latestKnown, r.latestSeq, r.latest = true, seq, nil
	if a != nil && len(a.Metadata) <= maxKnownBytes {
		r.latest = new(engine.CloneAttempt(a))
	} else if a != nil {
		r.latestKnown = false
	}
}

func (k *known) forgetLatest(id string) {
	if r := k.get(id); r != nil {
		r.latestKnown, r.latestSeq, r.latest = false, 0, nil
	}
}

func (k *known) forget(ids []string) {
	for _, id := range ids {
		delete(k.young, id)
		delete(k.old, id)
	}
}

func (k *known) worker(w *agl.Worker) {
	switch {
	case len(w.HeartbeatStats) > maxKnownBytes:
		delete(k.workers, w.WorkerID)
		return
	case len(k.workers) >= maxKnown:
		clear(k.workers)
	}
	k.workers[w.WorkerID] = new(engine.CloneWorker(w))
}
