package memory

import (
	"cmp"
	"slices"
	"sort"
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

func (r reader) WalkRollouts(w engine.Walk, f func(*agl.AttemptedRollout, engine.SpansOf) (bool, error)) error {
	for _, v := range r.met(&w) {
		if w.Keep != nil {
			ro := engine.CloneRollout(&v.Rollout)
			keep, more := w.Keep(&ro)
			if !more {
				return nil
			}
			if !keep {
				continue
			}
		}
		value := engine.CloneAttempted(v)
		spans := func(limit int) ([]store.SpanJSON, int, error) {
			if value.Attempt == nil {
				return nil, 0, nil
			}
			return r.AttemptSpans(store.Attempted{RolloutID: value.RolloutID, AttemptID: value.Attempt.AttemptID}, limit)
		}
		if more, err := f(&value, spans); !more || err != nil {
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

// EndedRollouts looks at what was inserted after the place.
func (r reader) EndedRollouts(before float64, after int64, most int) (ended []engine.Ended, next int64, looked int, err error) {
	order := r.s.order
	// The first one that was inserted later; holes count as what follows them.
	from := sort.Search(len(order), func(i int) bool {
		for ; i < len(order); i++ {
			if order[i] != nil {
				return r.s.rollouts[order[i].RolloutID].born > after
			}
		}
		return true
	})
	for _, v := range order[from:] {
		switch {
		case v == nil:
			continue
		case looked == most:
			return ended, after, looked, nil
		}
		looked++
		row := r.s.rollouts[v.RolloutID]
		after = row.born
		if v.Status.Terminal() && v.EndTime != nil && *v.EndTime < before {
			ended = append(ended, engine.Ended{
				RolloutID: v.RolloutID, EndTime: *v.EndTime, Attempts: int64(len(row.attempts)), Spans: int64(len(row.spans)),
			})
		}
	}
	return ended, 0, looked, nil
}

// RolloutBytes knows what spans take, and what people wrote into rollouts.
func (r reader) RolloutBytes(ids []string) (int64, error) {
	total := int64(0)
	for _, id := range ids {
		if row, ok := r.s.rollouts[id]; ok {
			total += row.bytes + int64(len(row.value.Input)+len(row.value.Metadata))
		}
	}
	return total, nil
}
