package memory

import (
	"cmp"
	"slices"
	"strings"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
)

func (r reader) CountRollouts() (map[agl.RolloutStatus]int64, error) {
	out := map[agl.RolloutStatus]int64{}
	for _, v := range r.s.order {
		if v != nil {
			out[v.Status]++
		}
	}
	return out, nil
}

func (r reader) WalkRollouts(w engine.Walk, f func(*agl.AttemptedRollout) (bool, error)) error {
	for _, v := range r.met(&w) {
		value := engine.CloneAttempted(v)
		if more, err := f(&value); !more || err != nil {
			return err
		}
	}
	return nil
}

func (r reader) WalkLength(w engine.Walk) (int, error) { return len(r.met(&w)), nil }

// met lists the rollouts of a walk.
func (r reader) met(w *engine.Walk) []*agl.AttemptedRollout {
	var met []*agl.AttemptedRollout
	for _, v := range r.s.order {
		if v == nil || w.From != nil && v.StartTime < *w.From || w.To != nil && v.StartTime > *w.To ||
			!strings.Contains(strings.ToLower(v.RolloutID), w.IDContains) || w.StatusIn != nil && !slices.Contains(w.StatusIn, v.Status) {
			continue
		}
		met = append(met, v)
	}
	slices.SortStableFunc(met, func(a, b *agl.AttemptedRollout) int {
		if w.Desc {
			a, b = b, a
		}
		return cmp.Compare(a.StartTime, b.StartTime)
	})
	return met[:min(len(met), w.Most)]
}

// AttemptSpans knows nothing of spans that were dropped.
func (r reader) AttemptSpans(at store.Attempted, limit int) ([]store.SpanJSON, int, error) {
	row, ok := r.s.rollouts[at.RolloutID]
	if !ok {
		return nil, 0, nil
	}
	spans := row.byOwner[at.AttemptID]
	if len(spans) > limit {
		return nil, len(spans), nil
	}
	out := make([]store.SpanJSON, len(spans))
	for i, s := range spans {
		out[i] = s.JSON
	}
	return out, len(out), nil
}
