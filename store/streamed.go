package store

import (
	"context"

	agl "agentlightning"
)

// Streams is what a [Store] may offer besides its queries, for results of any
// length: they are handed out one by one, and only a small part of them is in
// memory at a time. Each item is as it is when it is handed out; which ones there
// are, and their order, is settled at the beginning. Use [Streamed] to have it of
// any store.
//
// The functions may take their time: nothing waits for them. An error that one
// returns ends the stream and is returned. Total counts the matches before paging.
type Streams interface {
	// StreamSpans is [SpanStore] QuerySpans. What f gets may be shared and must
	// not be changed.
	StreamSpans(ctx context.Context, q SpanQuery, f func(SpanJSON) error) (total int, err error)
	// StreamRollouts is [RolloutStore] QueryRollouts.
	StreamRollouts(ctx context.Context, q RolloutQuery, f func(*agl.AttemptedRollout) error) (total int, err error)
}

// Streamed returns the store itself when it offers [Streams], and otherwise one
// that has the whole result in memory first.
func Streamed(s Store) Streams {
	if streams, ok := s.(Streams); ok {
		return streams
	}
	return streaming{s}
}

type streaming struct{ s Store }

func (s streaming) StreamSpans(ctx context.Context, q SpanQuery, f func(SpanJSON) error) (int, error) {
	page, err := Encoded(s.s).QueryEncodedSpans(ctx, q)
	if err != nil {
		return 0, err
	}
	for _, span := range page.Items {
		if err := f(span); err != nil {
			return 0, err
		}
	}
	return page.Total, nil
}

func (s streaming) StreamRollouts(ctx context.Context, q RolloutQuery, f func(*agl.AttemptedRollout) error) (int, error) {
	page, err := s.s.QueryRollouts(ctx, q)
	if err != nil {
		return 0, err
	}
	for i := range page.Items {
		if err := f(&page.Items[i]); err != nil {
			return 0, err
		}
	}
	return page.Total, nil
}
