package engine

import (
	"bytes"
	"context"
	"errors"
	"slices"

	agl "agentlightning"
	"agentlightning/semconv"
	"agentlightning/store"
)

// ResolveAttempt implements [store.ControlStore]. It writes only when an attempt
// has to be made.
func (s *Store) ResolveAttempt(ctx context.Context, rolloutID, attemptID string) (string, error) {
	var id string
	err := s.view(ctx, func(r Reader) (err error) {
		_, id, err = resolveAttempt(r, rolloutID, attemptID)
		return err
	})
	if !errors.Is(err, errNoAttempt) {
		return id, err
	}
	err = s.update(ctx, func(c *change) (err error) {
		id, err = c.resolveAttempt(rolloutID, attemptID)
		return err
	})
	return id, err
}

// errNoAttempt means that the attempt is to be made.
var errNoAttempt = errors.New("the attempt does not exist yet")

// resolveAttempt returns the rollout and the id under which the spans of an
// attempt are stored.
func resolveAttempt(r Reader, rolloutID, attemptID string) (agl.Rollout, string, error) {
	ro, err := rollout(r, rolloutID)
	if err != nil {
		return ro, "", err
	}
	if _, ok, err := r.Attempt(rolloutID, attemptID); ok || err != nil {
		return ro, attemptID, err
	}
	if ro.Control != nil {
		return ro, attemptID, errNoAttempt
	}
	if attemptID == store.DefaultAttemptID {
		latest, err := latestAttempt(r, rolloutID)
		if err != nil {
			return ro, "", err
		}
		if latest != nil {
			return ro, latest.AttemptID, nil
		}
	}
	return ro, "", unknownAttempt(rolloutID, attemptID)
}

func (c *change) resolveAttempt(rolloutID, attemptID string) (string, error) {
	ro, id, err := resolveAttempt(c, rolloutID, attemptID)
	if !errors.Is(err, errNoAttempt) {
		return id, err
	}
	return attemptID, c.ensureAttempt(&ro, attemptID)
}

// AddEvent implements [store.ControlStore].
func (s *Store) AddEvent(ctx context.Context, event agl.Span) (agl.Span, error) {
	// Asked for first, so that a rollout that nobody knows has no counter.
	if _, err := s.ResolveAttempt(ctx, event.RolloutID, event.AttemptID); err != nil {
		return agl.Span{}, err
	}
	ids, err := s.NextSequenceIDs(ctx, []store.Attempted{{RolloutID: event.RolloutID, AttemptID: event.AttemptID}})
	if err != nil {
		return agl.Span{}, err
	}
	event.SequenceID = ids[0]
	var out []store.SpanOutcome
	var span agl.Span
	err = s.update(ctx, func(c *change) error {
		span = event
		if span.AttemptID, err = c.resolveAttempt(event.RolloutID, event.AttemptID); err != nil {
			return err
		}
		span.StartTime, span.EndTime = new(c.now), new(c.now)
		out = make([]store.SpanOutcome, 1)
		encoded := []store.EncodedSpan{store.EncodeSpan(&span)}
		groups, owners := groupSpans(encoded)
		return c.addSpans(encoded, groups, owners, out)
	})
	if err == nil {
		err = out[0].Err
	}
	if err != nil {
		return agl.Span{}, err
	}
	s.feed.tell(store.NounSpans, span.RolloutID)
	return span, nil
}

// EventAttempts implements [store.ControlStore].
func (s *Store) EventAttempts(ctx context.Context, rolloutID string) ([]string, error) {
	out := []string{}
	err := s.view(ctx, func(r Reader) error {
		ids, err := r.SpannedAttempts(rolloutID)
		out = append(out[:0], ids...)
		return err
	})
	return out, err
}

// supersede drops the expert routes of the model call before a new one when the
// prompt of the new one goes on from it: those of the last call of a trajectory
// cover all of it, and they are large. Nothing else of a span ever changes.
func (c *change) supersede(encoded *store.EncodedSpan) error {
	if encoded.Name != semconv.SpanModelCall || !bytes.Contains(encoded.JSON, []byte(semconv.RoutedExperts)) {
		return nil
	}
	s, err := encoded.JSON.Span()
	if err != nil || !hasRoutes(&s) {
		return err
	}
	text, ok, err := c.LastSpan(store.Attempted{RolloutID: s.RolloutID, AttemptID: s.AttemptID}, semconv.SpanModelCall)
	if err != nil || !ok {
		return err
	}
	before, err := text.Span()
	if err != nil || !hasRoutes(&before) || !goesOn(&s, &before) {
		return err
	}
	for i := range before.Attributes {
		if before.Attributes[i].Key == semconv.RoutedExperts {
			before.Attributes[i].Value = ""
		}
	}
	return c.UpdateSpan(store.EncodeSpan(&before))
}

func hasRoutes(s *agl.Span) bool {
	routes, _ := s.Attributes.String(semconv.RoutedExperts)
	return routes != ""
}

// goesOn tells whether the prompt of a call is that of the one before, or begins
// with that and the answer to it.
func goesOn(s, before *agl.Span) bool {
	prompt := tokenIDs(s, semconv.PromptTokenIDs)
	was := tokenIDs(before, semconv.PromptTokenIDs)
	if slices.Equal(prompt, was) {
		return true
	}
	was = append(slices.Clip(was), tokenIDs(before, semconv.ResponseTokenIDs)...)
	return len(prompt) >= len(was) && slices.Equal(prompt[:len(was)], was)
}

func tokenIDs(s *agl.Span, key string) []int64 {
	value, _ := s.Attributes.Get(key)
	ids, _ := value.([]int64)
	return ids
}
