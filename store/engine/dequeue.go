package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	agl "agentlightning"
	"agentlightning/store"
)

const (
	// answerLifetime is how long a keyed claim can be asked for again.
	answerLifetime = 10 * time.Minute
	// waitScan is how often waiting calls look at time limits when no timer does.
	waitScan = time.Second
)

// DequeueRollouts implements [store.RolloutStore].
func (s *Store) DequeueRollouts(ctx context.Context, req store.DequeueRequest) ([]agl.AttemptedRollout, error) {
	if req.Limit <= 0 {
		return []agl.AttemptedRollout{}, nil
	}
	if err := s.checkHealth(ctx); err != nil {
		return nil, err
	}
	if req.Wait <= 0 {
		got, _, err := s.claim(ctx, &req, true)
		return got, err
	}
	return s.claimWaiting(ctx, &req)
}

// claimWaiting claims as soon as there is something to claim. It stands in line
// before it looks, so that nothing is enqueued unseen in between.
func (s *Store) claimWaiting(ctx context.Context, req *store.DequeueRequest) ([]agl.AttemptedRollout, error) {
	timeout := time.NewTimer(req.Wait)
	defer timeout.Stop()
	scan, stop := s.waitScans()
	defer stop()
	place := s.line.join()
	defer func() { s.line.leave(place) }()
	for first := true; ; first = false {
		got, repeated, err := s.claim(ctx, req, first)
		if !first && (repeated || err != nil) {
			s.line.wake(1) // what this call was woken for is still there
		}
		if err != nil || len(got) > 0 {
			return got, err
		}
		for woken := false; !woken; {
			select {
			case <-place.called:
				s.line.rejoin(place)
				woken = true
			case <-scan:
				if err := s.scanOlderThan(ctx, waitScan); err != nil {
					return nil, err
				}
			case <-timeout.C:
				return got, nil
			case <-s.closed:
				return nil, store.ErrClosed
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}

// waitScans ticks for a waiting call that has to look at time limits itself.
func (s *Store) waitScans() (<-chan time.Time, func()) {
	if s.cfg.HealthScanInterval > 0 {
		return nil, func() {}
	}
	t := time.NewTicker(waitScan)
	return t.C, t.Stop
}

// claim takes rollouts from the queue once, or finds that an earlier request
// with the same key did. Coming away empty is noted at the worker only when note
// is set.
func (s *Store) claim(ctx context.Context, req *store.DequeueRequest, note bool) (out []agl.AttemptedRollout, repeated bool, err error) {
	err = s.update(ctx, func(c *change) (err error) {
		if out, err = c.answered(req.Key); err != nil || len(out) > 0 {
			repeated = true
			return err
		}
		repeated = false
		if out, err = c.claim(req.Limit, req.WorkerID); err != nil {
			return err
		}
		if len(out) > 0 {
			if err := c.remember(req.Key, out); err != nil {
				return err
			}
			return c.assign(out[len(out)-1].Attempt, true)
		}
		if note && req.WorkerID != nil {
			return c.cameEmpty(*req.WorkerID)
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	return out, repeated, nil
}

// claim pops ids until it has enough or the queue is empty. Entries whose
// rollout left the queueing statuses by another way are dropped.
func (c *change) claim(limit int, workerID *string) ([]agl.AttemptedRollout, error) {
	out := []agl.AttemptedRollout{}
	for len(out) < limit {
		ids, err := c.Pop(limit - len(out))
		if err != nil || len(ids) == 0 {
			return out, err
		}
		rollouts, err := c.Rollouts(ids)
		if err != nil {
			return nil, err
		}
		latest, err := c.LatestAttempts(ids)
		if err != nil {
			return nil, err
		}
		started := make([]agl.Rollout, 0, len(ids))
		attempts := make([]agl.Attempt, 0, len(ids))
		for _, id := range ids {
			ro, ok := rollouts[id]
			if !ok || !ro.Status.Queueing() {
				continue
			}
			var newest *agl.Attempt
			if a, ok := latest[id]; ok {
				newest = &a
			}
			a, err := c.begin(&ro, newest, clonePtr(workerID))
			if err != nil {
				return nil, err
			}
			if newest == nil {
				if err := c.reserveFirst(id); err != nil {
					return nil, err
				}
			}
			started = append(started, ro)
			attempts = append(attempts, a)
			out = append(out, agl.AttemptedRollout{Rollout: ro, Attempt: &a})
		}
		if len(started) == 0 {
			continue
		}
		if err := c.InsertAttempts(attempts); err != nil {
			return nil, err
		}
		if err := c.UpdateRollouts(started); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// claimed is how a keyed claim is remembered: by name, so that a repeated
// request sees what became of it.
type claimed struct {
	RolloutID string `json:"r"`
	AttemptID string `json:"a"`
}

func dequeueKey(key string) string { return "dequeue/" + key }

func (c *change) remember(key string, got []agl.AttemptedRollout) error {
	if key == "" {
		return nil
	}
	names := make([]claimed, len(got))
	for i := range got {
		names[i] = claimed{got[i].RolloutID, got[i].Attempt.AttemptID}
	}
	answer, err := json.Marshal(names)
	if err != nil {
		return fmt.Errorf("remember the claim of key %q: %w", key, err)
	}
	return c.PutAnswer(dequeueKey(key), answer, c.now+answerLifetime.Seconds())
}

// answered returns what an earlier request with this key claimed and what is
// still its to run: claims that were released, or overtaken by another attempt,
// are left out.
func (c *change) answered(key string) ([]agl.AttemptedRollout, error) {
	if key == "" {
		return nil, nil
	}
	answer, ok, err := c.Answer(dequeueKey(key), c.now)
	if err != nil || !ok {
		return nil, err
	}
	var names []claimed
	if err := json.Unmarshal(answer, &names); err != nil {
		return nil, fmt.Errorf("read the claim of key %q: %w", key, err)
	}
	ids := make([]string, len(names))
	for i, n := range names {
		ids[i] = n.RolloutID
	}
	rollouts, err := c.Rollouts(ids)
	if err != nil {
		return nil, err
	}
	latest, err := c.LatestAttempts(ids)
	if err != nil {
		return nil, err
	}
	var out []agl.AttemptedRollout
	for _, n := range names {
		ro, a := rollouts[n.RolloutID], latest[n.RolloutID]
		if a.AttemptID == n.AttemptID && ro.Status.Active() {
			out = append(out, agl.AttemptedRollout{Rollout: ro, Attempt: &a})
		}
	}
	return out, nil
}

// ReleaseRollouts implements [store.RolloutStore].
func (s *Store) ReleaseRollouts(ctx context.Context, claimed []agl.AttemptedRollout) error {
	if len(claimed) == 0 {
		return nil
	}
	return s.update(ctx, func(c *change) error { return c.release(claimed) })
}

func (c *change) release(claimed []agl.AttemptedRollout) error {
	ids := make([]string, len(claimed))
	for i := range claimed {
		ids[i] = claimed[i].RolloutID
	}
	rollouts, err := c.Rollouts(ids)
	if err != nil {
		return err
	}
	latest, err := c.LatestAttempts(ids)
	if err != nil {
		return err
	}
	var back []string
	var undone []store.Attempted
	var restored []agl.Rollout
	for i := range claimed {
		id := claimed[i].RolloutID
		ro, a := rollouts[id], latest[id]
		if claimed[i].Attempt == nil || a.AttemptID != claimed[i].Attempt.AttemptID || !untouched(&ro, &a) {
			continue
		}
		to := agl.RolloutQueuing
		if a.SequenceID > 1 {
			to = agl.RolloutRequeuing
		}
		c.moves = append(c.moves, Change{id, ro.Status, to, c.now, ro.Mode, ro.StartTime})
		ro.Status = to
		restored = append(restored, ro)
		undone = append(undone, store.Attempted{RolloutID: id, AttemptID: a.AttemptID})
		back = append(back, id)
		delete(latest, id) // a claim that is named twice is undone once
		if err := c.unassign(&a); err != nil {
			return err
		}
	}
	if len(back) == 0 {
		return nil
	}
	c.queued += len(back)
	if err := c.DeleteAttempts(undone); err != nil {
		return err
	}
	if err := c.UpdateRollouts(restored); err != nil {
		return err
	}
	return c.PushFront(back)
}

// untouched reports whether nothing happened to a claim since it was made.
func untouched(ro *agl.Rollout, a *agl.Attempt) bool {
	return ro.Status == agl.RolloutPreparing && a.Status == agl.AttemptPreparing &&
		a.LastHeartbeatTime == nil && a.Metadata == nil
}

// unassign frees the worker of a claim that is undone, if it still has it.
func (c *change) unassign(a *agl.Attempt) error {
	if a.WorkerID == nil || *a.WorkerID == "" {
		return nil
	}
	w, err := c.worker(*a.WorkerID)
	if err != nil {
		return err
	}
	if w.CurrentAttemptID == nil || *w.CurrentAttemptID != a.AttemptID {
		return nil
	}
	c.free(&w, agl.WorkerIdle)
	return c.PutWorkers([]agl.Worker{w})
}
