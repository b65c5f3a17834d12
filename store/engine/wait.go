package engine

import (
	"context"
	"sync"
	"time"

	agl "agentlightning"
	"agentlightning/store"
)

// waitList knows which calls wait for which rollouts. A waiting call costs one
// entry for each of its rollouts and nothing else.
type waitList struct {
	mu   sync.Mutex
	byID map[string]map[*waiter]struct{}
}

// waiter is one waiting call. Its fields are guarded by the list's mutex until
// enough is closed.
type waiter struct {
	pending map[string]struct{}
	done    map[string]agl.Rollout
	need    int           // how many are enough
	enough  chan struct{} // closed when so many are done, or nothing is pending
	woken   bool          // enough is closed
}

func (l *waitList) add(ids []string, need int) *waiter {
	w := &waiter{
		pending: make(map[string]struct{}, len(ids)), done: make(map[string]agl.Rollout, len(ids)),
		need: need, enough: make(chan struct{}),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byID == nil {
		l.byID = map[string]map[*waiter]struct{}{}
	}
	for _, id := range ids {
		w.pending[id] = struct{}{}
		if l.byID[id] == nil {
			l.byID[id] = map[*waiter]struct{}{}
		}
		l.byID[id][w] = struct{}{}
	}
	w.wakeLocked()
	return w
}

// finish tells the calls that wait for these rollouts.
func (l *waitList) finish(rollouts []agl.Rollout) {
	if len(rollouts) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range rollouts {
		for w := range l.byID[rollouts[i].RolloutID] {
			w.done[rollouts[i].RolloutID] = CloneRollout(&rollouts[i])
			l.settleLocked(w, rollouts[i].RolloutID)
		}
	}
}

// found takes what a waiter saw in the store itself: finished rollouts are
// done, unknown ones are not waited for.
func (l *waitList) found(w *waiter, ids []string, rollouts map[string]agl.Rollout) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		ro, ok := rollouts[id]
		if ok && !ro.Status.Terminal() {
			continue
		}
		if _, told := w.done[id]; ok && !told {
			w.done[id] = ro
		}
		l.settleLocked(w, id)
	}
}

// drop tells the calls that wait for a rollout that it is no more.
func (l *waitList) drop(rolloutID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.byID[rolloutID] {
		l.settleLocked(w, rolloutID)
	}
}

func (l *waitList) settleLocked(w *waiter, id string) {
	if _, ok := w.pending[id]; !ok {
		return
	}
	delete(w.pending, id)
	l.forgetLocked(w, id)
	w.wakeLocked()
}

// wakeLocked ends the wait when there is nothing more to wait for.
func (w *waiter) wakeLocked() {
	if !w.woken && (len(w.pending) == 0 || len(w.done) >= w.need) {
		w.woken = true
		close(w.enough)
	}
}

func (l *waitList) forgetLocked(w *waiter, id string) {
	delete(l.byID[id], w)
	if len(l.byID[id]) == 0 {
		delete(l.byID, id)
	}
}

// remove takes a call off the list and returns the finished rollouts in the
// order asked for.
func (l *waitList) remove(w *waiter, ids []string) []agl.Rollout {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range w.pending {
		l.forgetLocked(w, id)
	}
	out := []agl.Rollout{}
	for _, id := range ids {
		if ro, ok := w.done[id]; ok {
			out = append(out, CloneRollout(&ro))
		}
	}
	return out
}

// unfinished lists the ids that any call waits for.
func (l *waitList) unfinished() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := make([]string, 0, len(l.byID))
	for id := range l.byID {
		ids = append(ids, id)
	}
	return ids
}

// WaitForRollouts implements [store.RolloutStore].
func (s *Store) WaitForRollouts(ctx context.Context, rolloutIDs []string, timeout time.Duration) ([]agl.Rollout, error) {
	return s.WaitForCount(ctx, rolloutIDs, len(rolloutIDs), timeout)
}

// WaitForCount implements [store.RolloutStore].
func (s *Store) WaitForCount(ctx context.Context, rolloutIDs []string, count int, timeout time.Duration) ([]agl.Rollout, error) {
	if err := s.checkHealth(ctx); err != nil {
		return nil, err
	}
	// On the list before the look, so that nothing finishes unseen in between.
	w := s.waits.add(rolloutIDs, count)
	var found map[string]agl.Rollout
	err := s.view(ctx, func(r Reader) (err error) {
		found, err = r.Rollouts(rolloutIDs)
		return err
	})
	if err != nil {
		s.waits.remove(w, nil)
		return nil, err
	}
	s.waits.found(w, rolloutIDs, found)
	if timeout != 0 {
		err = s.await(ctx, w, timeout)
	}
	out := s.waits.remove(w, rolloutIDs)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// await returns when a call has nothing more to wait for, or at the timeout.
func (s *Store) await(ctx context.Context, w *waiter, timeout time.Duration) error {
	var expired <-chan time.Time
	if timeout > 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		expired = t.C
	}
	scan, stop := s.waitScans()
	defer stop()
	for {
		select {
		case <-w.enough:
			return nil
		case <-expired:
			return nil
		case <-scan:
			if err := s.scanOlderThan(ctx, waitScan); err != nil {
				return err
			}
		case <-s.closed:
			return store.ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// poll looks for what other processes did: work for the calls in line, and
// rollouts that finished.
func (s *Store) poll(ctx context.Context) {
	ids := s.waits.unfinished()
	if len(ids) == 0 && s.line.empty() {
		return
	}
	var queued int
	var rollouts map[string]agl.Rollout
	err := s.view(ctx, func(r Reader) (err error) {
		if queued, err = r.QueueLength(); err != nil {
			return err
		}
		rollouts, err = r.Rollouts(ids)
		return err
	})
	if err != nil {
		s.logUnlessClosed(ctx, "poll for changes of other processes", err)
		return
	}
	s.line.wake(queued)
	var finished []agl.Rollout
	for _, ro := range rollouts {
		if ro.Status.Terminal() {
			finished = append(finished, ro)
		}
	}
	s.waits.finish(finished)
}
