package engine

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	agl "agentlightning"
	"agentlightning/store"
)

// AddSpans implements [store.SpanStore].
func (s *Store) AddSpans(ctx context.Context, spans []agl.Span) ([]store.AddedSpan, error) {
	if len(spans) == 0 {
		return []store.AddedSpan{}, nil
	}
	key, err := keyOf(ctx, "spans", spans)
	if err != nil {
		return nil, err
	}
	groups, highest := groupSpans(spans)
	counters, err := s.countersFor(ctx, highest)
	if err != nil {
		return nil, err
	}
	defer s.sequences.unpin(counters)
	var out []store.AddedSpan
	err = s.update(ctx, func(c *change) error {
		c.after = func() { s.raiseCounters(counters, highest) }
		out = make([]store.AddedSpan, len(spans))
		for i := range spans {
			out[i].Span = spans[i]
		}
		if known, err := c.recallSpans(key, out); err != nil || known {
			return err
		}
		if err := c.addSpans(groups, highest, out); err != nil {
			return err
		}
		return c.keepSpans(key, out)
	})
	if err != nil {
		return nil, err
	}
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
// forgotten between the commit and the moment when it hears of the spans.
func (s *Store) countersFor(ctx context.Context, highest map[string]int64) ([]*counter, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.life.RUnlock()
	return s.counters(ctx, slices.Collect(maps.Keys(highest)))
}

// spanGroup are the spans of one attempt, by their place in the request.
type spanGroup struct {
	key   store.Attempted
	spans []int
}

// groupSpans groups spans by attempt in the order of first appearance, and
// lists the rollouts with the highest sequence id of each.
func groupSpans(spans []agl.Span) ([]spanGroup, map[string]int64) {
	at := map[store.Attempted]int{}
	highest := map[string]int64{}
	var groups []spanGroup
	for i := range spans {
		key := store.Attempted{RolloutID: spans[i].RolloutID, AttemptID: spans[i].AttemptID}
		g, ok := at[key]
		if !ok {
			g = len(groups)
			at[key] = g
			groups = append(groups, spanGroup{key: key})
		}
		groups[g].spans = append(groups[g].spans, i)
		highest[key.RolloutID] = max(highest[key.RolloutID], spans[i].SequenceID)
	}
	return groups, highest
}

func (c *change) addSpans(groups []spanGroup, highest map[string]int64, out []store.AddedSpan) error {
	ids := make([]string, 0, len(highest))
	for id, n := range highest {
		// Refused spans move the counter too.
		if n > 0 {
			if err := c.RaiseSequenceID(id, n); err != nil {
				return err
			}
		}
		ids = append(ids, id)
	}
	rollouts, err := c.Rollouts(ids)
	if err != nil {
		return err
	}
	latest, err := c.LatestAttempts(ids)
	if err != nil {
		return err
	}
	var accepted []agl.Span
	var places []int
	attempts := make([]*agl.Attempt, len(groups))
	for g, group := range groups {
		a, refused, err := c.attemptOf(group.key, rollouts, latest)
		if err != nil {
			return err
		}
		attempts[g] = a
		for _, i := range group.spans {
			if refused != nil {
				out[i].Err = refused
				continue
			}
			accepted = append(accepted, out[i].Span)
			places = append(places, i)
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
	for n, i := range places {
		out[i].Stored = stored[n]
	}
	for g, group := range groups {
		for _, i := range group.spans {
			if out[i].Stored {
				if err := c.heartbeat(rollouts, latest, attempts[g]); err != nil {
					return err
				}
				break
			}
		}
	}
	return nil
}

// attemptOf returns the attempt of a group of spans, or why they are refused.
func (c *change) attemptOf(key store.Attempted, rollouts map[string]agl.Rollout, latest map[string]agl.Attempt) (a *agl.Attempt, refused, err error) {
	if _, ok := rollouts[key.RolloutID]; !ok {
		return nil, unknownRollout(key.RolloutID), nil
	}
	if a, ok := latest[key.RolloutID]; ok && a.AttemptID == key.AttemptID {
		return &a, nil, nil
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
func (c *change) heartbeat(rollouts map[string]agl.Rollout, latest map[string]agl.Attempt, a *agl.Attempt) error {
	a.LastHeartbeatTime = new(c.now)
	if a.Status == agl.AttemptPreparing || a.Status == agl.AttemptUnresponsive {
		a.Status = agl.AttemptRunning
	}
	if err := c.UpdateAttempts([]agl.Attempt{*a}); err != nil {
		return err
	}
	ro := rollouts[a.RolloutID]
	if latest[a.RolloutID].AttemptID != a.AttemptID {
		return nil
	}
	if ro.Status != agl.RolloutPreparing && ro.Status != agl.RolloutRequeuing {
		return nil
	}
	if err := c.move(&ro, agl.RolloutRunning); err != nil {
		return err
	}
	rollouts[a.RolloutID] = ro
	return c.UpdateRollouts([]agl.Rollout{ro})
}

// QuerySpans implements [store.SpanStore].
func (s *Store) QuerySpans(ctx context.Context, q store.SpanQuery) (store.Page[agl.Span], error) {
	if err := checkPaging(&q.Paging, spanFields); err != nil {
		return store.Page[agl.Span]{}, err
	}
	return scannedQuery(ctx, s, q, func(r Reader, q store.SpanQuery) (store.Page[agl.Span], error) {
		if q.AttemptID != nil && *q.AttemptID == agl.LatestAttempt {
			a, err := latestAttempt(r, q.RolloutID)
			if err != nil || a == nil {
				return store.Page[agl.Span]{}, err
			}
			q.AttemptID = &a.AttemptID
		}
		return r.QuerySpans(q)
	})
}
