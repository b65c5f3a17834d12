package access

import (
	"context"
	"fmt"

	agl "agentlightning"
	"agentlightning/store"
)

type scopeKey struct{}

// WithScope returns a context whose calls may touch one attempt only.
func WithScope(ctx context.Context, at store.Attempted) context.Context {
	return context.WithValue(ctx, scopeKey{}, at)
}

// Permit returns [store.ErrDenied] when the caller may not touch an attempt.
func Permit(ctx context.Context, at store.Attempted) error {
	own, limited := ctx.Value(scopeKey{}).(store.Attempted)
	if !limited || own == at {
		return nil
	}
	return &store.Error{Kind: store.ErrDenied, Message: fmt.Sprintf(
		"the token is that of attempt %s of rollout %s; it does not open attempt %s of rollout %s",
		own.AttemptID, own.RolloutID, at.AttemptID, at.RolloutID)}
}

// Scoped returns a store whose spans obey [Permit]. Whoever serves it must not
// let limited callers at its other methods.
func Scoped(s store.Store) store.Store { return scoped{s, store.Encoded(s), store.Streamed(s)} }

type scoped struct {
	store.Store
	encoded store.EncodedSpans
	streams store.Streams
}

var (
	_ store.EncodedSpans = scoped{}
	_ store.Streams      = scoped{}
)

// AddSpans refuses the spans of other attempts and stores the rest.
func (s scoped) AddSpans(ctx context.Context, spans []agl.Span) ([]store.AddedSpan, error) {
	return addOwn(ctx, spans, s.Store.AddSpans,
		func(span *agl.Span) store.Attempted {
			return store.Attempted{RolloutID: span.RolloutID, AttemptID: span.AttemptID}
		},
		func(span *agl.Span, err error) store.AddedSpan { return store.AddedSpan{Span: *span, Err: err} })
}

// AddEncodedSpans is [scoped.AddSpans] for encoded ones.
func (s scoped) AddEncodedSpans(ctx context.Context, spans []store.EncodedSpan) ([]store.SpanOutcome, error) {
	return addOwn(ctx, spans, s.encoded.AddEncodedSpans,
		func(span *store.EncodedSpan) store.Attempted {
			return store.Attempted{RolloutID: span.RolloutID, AttemptID: span.AttemptID}
		},
		func(_ *store.EncodedSpan, err error) store.SpanOutcome { return store.SpanOutcome{Err: err} })
}

// addOwn adds the spans that the caller may add and refuses the others.
func addOwn[S, O any](ctx context.Context, spans []S, add func(context.Context, []S) ([]O, error),
	attemptOf func(*S) store.Attempted, refuse func(*S, error) O,
) ([]O, error) {
	if _, limited := ctx.Value(scopeKey{}).(store.Attempted); !limited {
		return add(ctx, spans)
	}
	out := make([]O, len(spans))
	var own []S
	var places []int
	for i := range spans {
		if err := Permit(ctx, attemptOf(&spans[i])); err != nil {
			out[i] = refuse(&spans[i], err)
			continue
		}
		own, places = append(own, spans[i]), append(places, i)
	}
	added, err := add(ctx, own)
	if err != nil {
		return nil, err
	}
	for n, i := range places {
		out[i] = added[n]
	}
	return out, nil
}

// NextSequenceIDs issues numbers to the caller's own attempt only, all or none.
func (s scoped) NextSequenceIDs(ctx context.Context, attempts []store.Attempted) ([]int64, error) {
	for _, at := range attempts {
		if err := Permit(ctx, at); err != nil {
			return nil, err
		}
	}
	return s.Store.NextSequenceIDs(ctx, attempts)
}

// QuerySpans answers questions about the caller's own attempt only.
func (s scoped) QuerySpans(ctx context.Context, q store.SpanQuery) (store.Page[agl.Span], error) {
	if err := permitQuery(ctx, &q); err != nil {
		return store.Page[agl.Span]{}, err
	}
	return s.Store.QuerySpans(ctx, q)
}

// QueryEncodedSpans is [scoped.QuerySpans] for encoded ones.
func (s scoped) QueryEncodedSpans(ctx context.Context, q store.SpanQuery) (store.Page[store.SpanJSON], error) {
	if err := permitQuery(ctx, &q); err != nil {
		return store.Page[store.SpanJSON]{}, err
	}
	return s.encoded.QueryEncodedSpans(ctx, q)
}

// StreamSpans is [scoped.QuerySpans] for streams.
func (s scoped) StreamSpans(ctx context.Context, q store.SpanQuery, f func(store.SpanJSON) error) (int, error) {
	if err := permitQuery(ctx, &q); err != nil {
		return 0, err
	}
	return s.streams.StreamSpans(ctx, q, f)
}

// StreamRollouts is [store.RolloutStore] QueryRollouts as a stream.
func (s scoped) StreamRollouts(ctx context.Context, q store.RolloutQuery, f func(*agl.AttemptedRollout) error) (int, error) {
	return s.streams.StreamRollouts(ctx, q, f)
}

func permitQuery(ctx context.Context, q *store.SpanQuery) error {
	at := store.Attempted{RolloutID: q.RolloutID}
	if q.AttemptID != nil {
		at.AttemptID = *q.AttemptID
	}
	return Permit(ctx, at)
}
