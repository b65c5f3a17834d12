package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	agl "agentlightning"
	"agentlightning/store"
)

// changer is a store whose rollouts can be changed, which every [store.Store] is.
type changer interface {
	UpdateRollout(ctx context.Context, rolloutID string, u store.RolloutUpdate) (agl.Rollout, error)
}

// giveBack allows a rollout the attempt that a stop takes from it, so that the
// end of this one puts it back into the queue.
func (r *Runner) giveBack(ctx context.Context, claimed *agl.AttemptedRollout) error {
	s, ok := r.cfg.Store.(changer)
	if !ok {
		return nil
	}
	config, changed := again(claimed.Config, claimed.Attempt.SequenceID)
	if !changed {
		return nil
	}
	return persist(ctx, func(ctx context.Context) error {
		_, err := s.UpdateRollout(ctx, claimed.RolloutID, store.RolloutUpdate{Config: store.To(config)})
		return err
	})
}

// again returns limits under which a silent attempt with this number is followed
// by another one, and whether they are others than before.
func again(c agl.RolloutConfig, number int) (agl.RolloutConfig, bool) {
	retried := slices.Contains(c.RetryCondition, agl.AttemptUnresponsive)
	if retried && number < c.MaxAttempts {
		return c, false
	}
	if !retried {
		c.RetryCondition = append(slices.Clone(c.RetryCondition), agl.AttemptUnresponsive)
	}
	c.MaxAttempts = max(c.MaxAttempts, number) + 1
	return c, true
}

// reclaim gives back what a runner of the same name was doing when it died.
func (r *Runner) reclaim(ctx context.Context) error {
	var left []agl.AttemptedRollout
	for offset := 0; ; {
		page, err := r.cfg.Store.QueryRollouts(ctx, store.RolloutQuery{
			StatusIn: []agl.RolloutStatus{agl.RolloutPreparing, agl.RolloutRunning},
			Paging:   store.Paging{Limit: reclaimPage, Offset: offset, SortBy: "start_time"},
		})
		if err != nil {
			return fmt.Errorf("look for rollouts that worker %s left: %w", r.cfg.WorkerID, err)
		}
		for _, ro := range page.Items {
			if a := ro.Attempt; a != nil && a.WorkerID != nil && *a.WorkerID == r.cfg.WorkerID && !a.Status.Finished() {
				left = append(left, ro)
			}
		}
		if offset += len(page.Items); len(page.Items) == 0 || offset >= page.Total {
			break
		}
	}
	for i := range left {
		if err := r.reclaimOne(ctx, &left[i]); err != nil {
			return fmt.Errorf("give back rollout %s, which worker %s left: %w", left[i].RolloutID, r.cfg.WorkerID, err)
		}
		r.cfg.Logger.InfoContext(ctx, "gave back a rollout that a runner of this name left",
			"worker_id", r.cfg.WorkerID, "rollout_id", left[i].RolloutID, "attempt_id", left[i].Attempt.AttemptID)
	}
	return nil
}

// reclaimPage is how many rollouts are asked for at a time.
const reclaimPage = 200

func (r *Runner) reclaimOne(ctx context.Context, ro *agl.AttemptedRollout) error {
	if err := r.giveBack(ctx, ro); err != nil {
		return err
	}
	metadata, err := fail(ReasonStopped, errors.New("the runner died before the agent finished")).metadata(ro.Attempt.Metadata)
	if err != nil {
		return err
	}
	_, err = r.cfg.Store.UpdateAttempt(ctx, ro.RolloutID, ro.Attempt.AttemptID,
		store.AttemptUpdate{Status: store.To(agl.AttemptUnresponsive), Metadata: store.To(metadata)})
	return err
}
