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
func Scoped(s store.Store) store.Store { return scoped{s} }

type scoped struct{ store.Store }

// AddSpans refuses the spans of other attempts and stores the rest.
func (s scoped) AddSpans(ctx context.Context, spans []agl.Span) ([]store.AddedSpan, error) {
	if _, limited := ctx.Value(scopeKey{}).(store.Attempted); !limited {
		return s.Store.AddSpans(ctx, spans)
	}
	refused := map[int]error{}
	for i := range spans {
		if err := Permit(ctx, store.Attempted{RolloutID: spans[i].RolloutID, AttemptID: spans[i].AttemptID}); err != nil {
			refused[i] = err
		}
	}
	var own []agl.Span
	for i := range spans {
		if refused[i] == nil {
			own = append(own, spans[i])
		}
	}
	added, err := s.Store.AddSpans(ctx, own)
	if err != nil {
		return nil, err
	}
	out := make([]store.AddedSpan, len(spans))
	for i := range spans {
		if refused[i] != nil {
			out[i] = store.AddedSpan{Span: spans[i], Err: refused[i]}
			continue
		}
		out[i], added = added[0], added[1:]
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
	at := store.Attempted{RolloutID: q.RolloutID}
	if q.AttemptID != nil {
		at.AttemptID = *q.AttemptID
	}
	if err := Permit(ctx, at); err != nil {
		return store.Page[agl.Span]{}, err
	}
	return s.Store.QuerySpans(ctx, q)
}
