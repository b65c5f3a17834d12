package engine

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	agl "agentlightning"
	"agentlightning/store"
)

// AddSpans implements [store.SpanStore].
func (s *Store) AddSpans(ctx context.Context, spans []agl.Span) ([]store.AddedSpan, error) {
	encoded := make([]store.EncodedSpan, len(spans))
	for i := range spans {
		encoded[i] = store.EncodeSpan(&spans[i])
	}
	outcomes, err := s.AddEncodedSpans(ctx, encoded)
	if err != nil {
		return nil, err
	}
	out := make([]store.AddedSpan, len(spans))
	for i, o := range outcomes {
		out[i] = store.AddedSpan{Span: spans[i], Stored: o.Stored, Err: o.Err}
	}
	return out, nil
}

// AddEncodedSpans implements [store.EncodedSpans].
func (s *Store) AddEncodedSpans(ctx context.Context, spans []store.EncodedSpan) ([]store.SpanOutcome, error) {
	if len(spans) == 0 {
		return []store.SpanOutcome{}, nil
	}
	key, err := keyOfSpans(ctx, spans)
	if err != nil {
		return nil, err
	}
	groups, owners := groupSpans(spans)
	counters, err := s.countersFor(ctx, owners)
	if err != nil {
		return nil, err
	}
	defer s.sequences.unpin(counters)
	s.notReserved(counters, owners)
	var out []store.SpanOutcome
	err = s.update(ctx, func(c *change) error {
		c.after = func() { raiseCounters(counters, owners) }
		out = make([]store.SpanOutcome, len(spans))
		if known, err := c.recallSpans(key, out); err != nil || known {
			return err
		}
		if err := c.addSpans(spans, groups, owners, out); err != nil {
			return err
		}
		return c.keepSpans(key, out)
	})
	if err != nil {
		return nil, err
	}
	s.tellSpans(spans, out)
	for i := range out {
		if !out[i].Stored && out[i].Err == nil {
			s.log.LogAttrs(ctx, slog.LevelWarn, "duplicated span added",
				slog.String("rollout_id", spans[i].RolloutID), slog.String("attempt_id", spans[i].AttemptID),
				slog.String("span_id", spans[i].SpanID))
		}
	}
	return out, nil
}

// countersFor pins the counters of the rollouts of spans, so that none is
// forgotten between the commit and the moment when it hears of the spans. They
// are in the order of the rollouts.
func (s *Store) countersFor(ctx context.Context, owners []spanOwner) ([]*counter, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.life.RUnlock()
	ids := make([]string, len(owners))
	for i := range owners {
		ids[i] = owners[i].id
	}
	return s.counters(ctx, ids)
}

// spanGroup are the spans of one attempt, by their place in the request.
type spanGroup struct {
	key   store.Attempted
	owner int // place of the rollout
	spans []int
}

// spanOwner is a rollout that spans are for.
type spanOwner struct {
	id      string
	highest int64 // sequence id among the spans
	raise   bool  // the backend's counter may be lower than that
}

// groupSpans groups spans by attempt in the order of first appearance, and
// lists their rollouts, ordered by id.
func groupSpans(spans []store.EncodedSpan) ([]spanGroup, []spanOwner) {
	var groups []spanGroup
	var at map[store.Attempted]int // from the second group on
	for i := range spans {
		key := store.Attempted{RolloutID: spans[i].RolloutID, AttemptID: spans[i].AttemptID}
		g := len(groups) - 1
		if g < 0 || groups[g].key != key {
			var known bool
			if g, known = at[key]; !known {
				if g = len(groups); g == 1 {
					at = map[store.Attempted]int{groups[0].key: 0}
				}
				if g > 0 {
					at[key] = g
				}
				groups = append(groups, spanGroup{key: key})
			}
		}
		groups[g].spans = append(groups[g].spans, i)
	}
	owners := make([]spanOwner, 0, len(groups))
	for g := range groups {
		owners = append(owners, spanOwner{id: groups[g].key.RolloutID})
	}
	slices.SortFunc(owners, func(a, b spanOwner) int { return strings.Compare(a.id, b.id) })
	owners = slices.CompactFunc(owners, func(a, b spanOwner) bool { return a.id == b.id })
	for g := range groups {
		group := &groups[g]
		group.owner, _ = slices.BinarySearchFunc(owners, group.key.RolloutID,
			func(o spanOwner, id string) int { return strings.Compare(o.id, id) })
		owner := &owners[group.owner]
		for _, i := range group.spans {
			owner.highest = max(owner.highest, spans[i].SequenceID)
		}
	}
	return groups, owners
}

func (c *change) addSpans(spans []store.EncodedSpan, groups []spanGroup, owners []spanOwner, out []store.SpanOutcome) error {
	rollouts := make([]attemptedRollout, len(owners))
	for i := range owners {
		// Refused spans move the counter too.
		if owners[i].raise {
			if err := c.RaiseSequenceID(owners[i].id, owners[i].highest); err != nil {
				return err
			}
		}
		var err error
		if rollouts[i].AttemptedRollout, rollouts[i].known, err = c.Rollout(owners[i].id); err != nil {
			return err
		}
	}
	accepted, places := spans, []int(nil) // all of them, unless one is refused
	attempts := make([]*agl.Attempt, len(groups))
	refusals := 0
	for g := range groups {
		group := &groups[g]
		a, refused, err := c.attemptOf(group.key, &rollouts[group.owner])
		if err != nil {
			return err
		}
		attempts[g] = a
		if refused != nil {
			refusals++
			for _, i := range group.spans {
				out[i].Err = refused
			}
		}
	}
	if refusals > 0 {
		accepted = nil
		for i := range spans {
			if out[i].Err == nil {
				accepted, places = append(accepted, spans[i]), append(places, i)
			}
		}
	}
	for i := range accepted {
		if err := c.supersede(&accepted[i]); err != nil {
			return err
		}
	}
	stored, err := c.InsertSpans(accepted)
	if err != nil {
		return err
	}
	for n, is := range stored {
		i := n
		if refusals > 0 {
			i = places[n]
		}
		out[i].Stored = is
	}
	for g := range groups {
		if !slices.ContainsFunc(groups[g].spans, func(i int) bool { return out[i].Stored }) {
			continue
		}
		if err := c.heartbeat(&rollouts[groups[g].owner], attempts[g]); err != nil {
			return err
		}
	}
	return nil
}

// attemptedRollout is a rollout with its latest attempt, if it is known.
type attemptedRollout struct {
	agl.AttemptedRollout
	known bool
}

// attemptOf returns the attempt of a group of spans, or why they are refused.
func (c *change) attemptOf(key store.Attempted, ro *attemptedRollout) (a *agl.Attempt, refused, err error) {
	if !ro.known {
		return nil, unknownRollout(key.RolloutID), nil
	}
	if ro.Attempt != nil && ro.Attempt.AttemptID == key.AttemptID {
		return ro.Attempt, nil, nil
	}
	found, ok, err := c.Attempt(key.RolloutID, key.AttemptID)
	if err != nil {
		return nil, nil, err
	}
	if !ok {
		return nil, unknownAttempt(key.RolloutID, key.AttemptID), nil
	}
	return &found, nil, nil
}

// heartbeat records that an attempt is alive. A finished attempt keeps its
// status; an unresponsive one revives, and so does the rollout if it was waiting
// for another attempt (its place in the queue is skipped later).
func (c *change) heartbeat(ro *attemptedRollout, a *agl.Attempt) error {
	a.LastHeartbeatTime = new(c.now)
	if a.Status == agl.AttemptPreparing || a.Status == agl.AttemptUnresponsive {
		a.Status = agl.AttemptRunning
	}
	if err := c.UpdateAttempts([]agl.Attempt{*a}); err != nil {
		return err
	}
	if ro.Attempt == nil || ro.Attempt.AttemptID != a.AttemptID {
		return nil
	}
	if ro.Status != agl.RolloutPreparing && ro.Status != agl.RolloutRequeuing {
		return nil
	}
	if err := c.move(&ro.Rollout, agl.RolloutRunning); err != nil {
		return err
	}
	return c.UpdateRollouts([]agl.Rollout{ro.Rollout})
}

// QuerySpans implements [store.SpanStore].
func (s *Store) QuerySpans(ctx context.Context, q store.SpanQuery) (store.Page[agl.Span], error) {
	found, err := s.QueryEncodedSpans(ctx, q)
	if err != nil {
		return store.Page[agl.Span]{}, err
	}
	page := store.Page[agl.Span]{Items: make([]agl.Span, len(found.Items)), Total: found.Total}
	for i, encoded := range found.Items {
		if page.Items[i], err = encoded.Span(); err != nil {
			return store.Page[agl.Span]{}, err
		}
	}
	return page, nil
}

// QueryEncodedSpans implements [store.EncodedSpans].
func (s *Store) QueryEncodedSpans(ctx context.Context, q store.SpanQuery) (store.Page[store.SpanJSON], error) {
	if err := checkPaging(&q.Paging, spanFields); err != nil {
		return store.Page[store.SpanJSON]{}, err
	}
	if err := s.checkHealth(ctx); err != nil {
		return store.Page[store.SpanJSON]{}, err
	}
	page, ok := atHand(ctx, s, func(r Recent) (store.Page[store.SpanJSON], bool) { return r.RecentSpans(q) })
	if ok {
		return page, nil
	}
	return query(ctx, s, q, Reader.QuerySpans)
}
