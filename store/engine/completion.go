package engine

import (
	"context"
	"sync"
	"time"

	agl "agentlightning"
	"agentlightning/store"
)

// bell wakes everybody who waits for the log of completions to grow.
type bell struct {
	mu   sync.Mutex
	rung chan struct{}
}

// wait returns a channel that is closed the next time the bell rings.
func (b *bell) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung == nil {
		b.rung = make(chan struct{})
	}
	return b.rung
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung != nil {
		close(b.rung)
		b.rung = nil
	}
}

// Completions implements [store.ControlStore].
func (s *Store) Completions(ctx context.Context, q store.CompletionQuery) (store.CompletionPage, error) {
	q.After = max(q.After, 0)
	if err := s.checkHealth(ctx); err != nil {
		return store.CompletionPage{}, err
	}
	if q.Wait <= 0 {
		return s.completions(ctx, &q)
	}
	timeout := time.NewTimer(q.Wait)
	defer timeout.Stop()
	scan, stop := s.waitScans()
	defer stop()
	var poll <-chan time.Time
	if s.cfg.PollInterval > 0 {
		tick := time.NewTicker(s.cfg.PollInterval)
		defer tick.Stop()
		poll = tick.C
	}
	for {
		rung := s.completed.wait() // before the look, so that nothing is missed
		page, err := s.completions(ctx, &q)
		if err != nil || page.Total > q.After {
			return page, err
		}
		for woken := false; !woken; {
			select {
			case <-rung:
				woken = true
			case <-poll:
				woken = true
			case <-scan:
				if err := s.scanOlderThan(ctx, waitScan); err != nil {
					return page, err
				}
			case <-timeout.C:
				return page, nil
			case <-s.closed:
				return page, store.ErrClosed
			case <-ctx.Done():
				return page, ctx.Err()
			}
		}
	}
}

func (s *Store) completions(ctx context.Context, q *store.CompletionQuery) (store.CompletionPage, error) {
	page := store.CompletionPage{Rollouts: []agl.Rollout{}}
	err := s.view(ctx, func(r Reader) error {
		page = store.CompletionPage{Rollouts: page.Rollouts[:0], Next: q.After}
		ids, total, err := r.Completions(q.After, max(q.Limit, 0))
		if err != nil {
			return err
		}
		page.Total = total
		page.Next += int64(len(ids))
		known, err := r.Rollouts(ids)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if ro, ok := known[id]; ok && ro.Status.Terminal() {
				page.Rollouts = append(page.Rollouts, CloneRollout(&ro))
			}
		}
		return nil
	})
	return page, err
}
