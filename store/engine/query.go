package engine

import (
	"slices"
	"strings"

	agl "agentlightning"
	"agentlightning/store"
)

// The functions of this file define what a query selects, in which order, and
// which part of it is the page. They work on slices in the order of insertion
// and return pointers into them. Backends use them, or equal them.

// SelectRollouts returns the page of a query and the number of matches. Without
// a condition everything matches.
func SelectRollouts(all []*agl.AttemptedRollout, q *store.RolloutQuery) ([]*agl.AttemptedRollout, int) {
	if q.Controlled {
		all = slices.DeleteFunc(slices.Clone(all), func(r *agl.AttemptedRollout) bool { return r.Control == nil })
	}
	var c conditions[agl.AttemptedRollout]
	if q.StatusIn != nil {
		c.add(func(r *agl.AttemptedRollout) bool { return slices.Contains(q.StatusIn, r.Status) })
	}
	if q.RolloutIDIn != nil {
		ids := setOf(q.RolloutIDIn)
		c.add(func(r *agl.AttemptedRollout) bool { return ids[r.RolloutID] })
	}
	if q.RolloutIDContains != nil {
		c.add(func(r *agl.AttemptedRollout) bool { return strings.Contains(r.RolloutID, *q.RolloutIDContains) })
	}
	return page(c.filter(all, q.Any), rolloutFields, &q.Paging)
}

// SelectAttempts returns the page of a query over the attempts of its rollout.
func SelectAttempts(ofRollout []*agl.Attempt, q *store.AttemptQuery) ([]*agl.Attempt, int) {
	return page(ofRollout, attemptFields, &q.Paging)
}

// SelectSpans returns the page of a query over the spans of its rollout and
// attempt; which those are is not checked again. Joined by "or", no condition
// matches nothing, as the protocol has it.
func SelectSpans(inScope []*store.EncodedSpan, q *store.SpanQuery) ([]*store.EncodedSpan, int) {
	var c conditions[store.EncodedSpan]
	exact := func(want *string, of func(*store.EncodedSpan) *string) {
		if want != nil {
			c.add(func(s *store.EncodedSpan) bool { v := of(s); return v != nil && *v == *want })
		}
	}
	within := func(part *string, of func(*store.EncodedSpan) *string) {
		if part != nil {
			c.add(func(s *store.EncodedSpan) bool { v := of(s); return v != nil && strings.Contains(*v, *part) })
		}
	}
	for _, f := range []struct {
		exact, contains *string
		of              func(*store.EncodedSpan) *string
	}{
		{q.TraceID, q.TraceIDContains, func(s *store.EncodedSpan) *string { return &s.TraceID }},
		{q.SpanID, q.SpanIDContains, func(s *store.EncodedSpan) *string { return &s.SpanID }},
		{q.ParentID, q.ParentIDContains, func(s *store.EncodedSpan) *string { return s.ParentID }},
		{q.Name, q.NameContains, func(s *store.EncodedSpan) *string { return &s.Name }},
	} {
		exact(f.exact, f.of)
		within(f.contains, f.of)
	}
	if len(c) == 0 && q.Any {
		return nil, 0
	}
	return page(c.filter(inScope, q.Any), spanFields, &q.Paging)
}

// SelectResources returns the page of a query. Its conditions are always joined
// by "and".
func SelectResources(all []*agl.ResourcesUpdate, q *store.ResourcesQuery) ([]*agl.ResourcesUpdate, int) {
	var c conditions[agl.ResourcesUpdate]
	if q.ResourcesID != nil {
		c.add(func(u *agl.ResourcesUpdate) bool { return u.ResourcesID == *q.ResourcesID })
	}
	if q.ResourcesIDContains != nil {
		c.add(func(u *agl.ResourcesUpdate) bool { return strings.Contains(u.ResourcesID, *q.ResourcesIDContains) })
	}
	return page(c.filter(all, false), resourcesFields, &q.Paging)
}

// SelectWorkers returns the page of a query.
func SelectWorkers(all []*agl.Worker, q *store.WorkerQuery) ([]*agl.Worker, int) {
	var c conditions[agl.Worker]
	if q.StatusIn != nil {
		c.add(func(w *agl.Worker) bool { return slices.Contains(q.StatusIn, w.Status) })
	}
	if q.WorkerIDContains != nil {
		c.add(func(w *agl.Worker) bool { return strings.Contains(w.WorkerID, *q.WorkerIDContains) })
	}
	return page(c.filter(all, q.Any), workerFields, &q.Paging)
}

// conditions is the pool of conditions of a query.
type conditions[T any] []func(*T) bool

func (c *conditions[T]) add(f func(*T) bool) { *c = append(*c, f) }

func (c conditions[T]) filter(all []*T, either bool) []*T {
	if len(c) == 0 {
		return all
	}
	var out []*T
	for _, item := range all {
		if c.match(item, either) {
			out = append(out, item)
		}
	}
	return out
}

func (c conditions[T]) match(item *T, either bool) bool {
	for _, f := range c {
		if f(item) == either {
			return either
		}
	}
	return !either
}

// page sorts and cuts. Items with equal keys keep their order in both directions.
func page[T any](matches []*T, f fields[T], p *store.Paging) ([]*T, int) {
	total := len(matches)
	if key := f.key(p.SortBy); key != nil {
		type keyed struct {
			key  sortKey
			item *T
		}
		sorted := make([]keyed, total)
		for i, item := range matches {
			sorted[i] = keyed{key(item), item}
		}
		slices.SortStableFunc(sorted, func(a, b keyed) int {
			if p.Desc {
				return b.key.compare(a.key)
			}
			return a.key.compare(b.key)
		})
		matches = make([]*T, total)
		for i := range sorted {
			matches[i] = sorted[i].item
		}
	}
	from := min(max(p.Offset, 0), total)
	to := total
	if p.Limit > 0 {
		to = min(from+p.Limit, total)
	}
	return matches[from:to], total
}

func setOf(ids []string) map[string]bool {
	set := make(map[string]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}
