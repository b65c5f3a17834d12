package engine

import (
	"context"

	agl "agentlightning"
	"agentlightning/store"
)

// StreamSpans implements [store.Streams].
func (s *Store) StreamSpans(ctx context.Context, q store.SpanQuery, f func(store.SpanJSON) error) (int, error) {
	streamer, streams := s.backend.(Streamer)
	if err := checkPaging(&q.Paging, spanFields); err != nil {
		return 0, err
	}
	if err := s.checkHealth(ctx); err != nil {
		return 0, err
	}
	page, ok := atHand(ctx, s, func(r Recent) (store.Page[store.SpanJSON], bool) { return r.RecentSpans(q) })
	if streams && !ok {
		return s.stream(ctx, func() (int, error) { return streamer.StreamSpans(ctx, q, f) })
	}
	if !ok {
		var err error
		if page, err = query(ctx, s, q, Reader.QuerySpans); err != nil {
			return 0, err
		}
	}
	for _, span := range page.Items {
		if err := f(span); err != nil {
			return 0, err
		}
	}
	return page.Total, nil
}

// StreamRollouts implements [store.Streams].
func (s *Store) StreamRollouts(ctx context.Context, q store.RolloutQuery, f func(*agl.AttemptedRollout) error) (int, error) {
	streamer, streams := s.backend.(Streamer)
	if err := checkPaging(&q.Paging, rolloutFields); err != nil {
		return 0, err
	}
	if err := s.checkHealth(ctx); err != nil {
		return 0, err
	}
	if streams {
		return s.stream(ctx, func() (int, error) { return streamer.StreamRollouts(ctx, q, f) })
	}
	page, err := query(ctx, s, q, Reader.QueryRollouts)
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

// stream runs a stream of the backend. Close does not wait for it: its next read
// fails.
func (s *Store) stream(ctx context.Context, run func() (int, error)) (int, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	s.life.RUnlock()
	return run()
}
