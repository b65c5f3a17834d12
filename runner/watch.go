package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	agl "agentlightning"
	"agentlightning/store"
)

// watch looks at the running rollouts of a runner, all with one query, and ends
// the context of attempts that nobody waits for any more; of the runner, when the
// store says that nobody waits at all.
type watch struct {
	mu      sync.Mutex
	running map[string]watched // by attempt id
}

type watched struct {
	rolloutID string
	cancel    context.CancelCauseFunc
}

// add begins to watch an attempt; the returned function ends it.
func (w *watch) add(r agl.AttemptedRollout, cancel context.CancelCauseFunc) func() {
	id := r.Attempt.AttemptID
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running == nil {
		w.running = map[string]watched{}
	}
	w.running[id] = watched{r.RolloutID, cancel}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.running, id)
	}
}

func (w *watch) run(ctx context.Context, cfg Config, end func()) {
	if cfg.WatchInterval < 0 {
		return
	}
	ticker := time.NewTicker(cfg.WatchInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := w.look(ctx, cfg.Store)
		if errors.Is(err, store.ErrEnded) {
			end()
			return
		}
		if err != nil && ctx.Err() == nil {
			cfg.Logger.DebugContext(ctx, "cannot see whether rollouts were cancelled", "worker_id", cfg.WorkerID, "err", err)
		}
	}
}

func (w *watch) look(ctx context.Context, s Store) error {
	w.mu.Lock()
	attempts := make(map[string]watched, len(w.running))
	ids := make([]string, 0, len(w.running))
	for attempt, r := range w.running {
		attempts[attempt] = r
		ids = append(ids, r.rolloutID)
	}
	w.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	page, err := s.QueryRollouts(ctx, store.RolloutQuery{RolloutIDIn: ids})
	if err != nil {
		return fmt.Errorf("query %d running rollouts: %w", len(ids), err)
	}
	states := make(map[string]*agl.AttemptedRollout, len(page.Items))
	for i := range page.Items {
		states[page.Items[i].RolloutID] = &page.Items[i]
	}
	for attempt, r := range attempts {
		if state := states[r.rolloutID]; state != nil {
			if cause := abandoned(state, attempt); cause != nil {
				r.cancel(cause)
			}
		}
	}
	return nil
}

// abandoned returns why an attempt should end, nil when it should go on. An
// unresponsive attempt goes on: its next span revives it.
func abandoned(r *agl.AttemptedRollout, attemptID string) error {
	switch a := r.Attempt; {
	case r.Status == agl.RolloutCancelled:
		return ErrCancelled
	case a == nil:
		return nil
	case a.AttemptID != attemptID:
		return fmt.Errorf("%w: attempt %s was started in its place", ErrSuperseded, a.AttemptID)
	case a.Status.Finished():
		return fmt.Errorf("%w: it was marked as %s", ErrSuperseded, a.Status)
	}
	return nil
}
