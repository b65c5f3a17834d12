package recipe

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	agl "agentlightning"
	"agentlightning/runner"
	"agentlightning/store"
)

// pageOfRollouts is how many rollouts are looked at at a time.
const pageOfRollouts = 500

// rolloutsOf visits the rollouts that runs asked for, those in some statuses
// only, or all when none is given.
func rolloutsOf(ctx context.Context, s store.Store, visit func(runID string, r *agl.AttemptedRollout) error, statuses ...agl.RolloutStatus) error {
	q := store.RolloutQuery{StatusIn: statuses, Paging: store.Paging{SortBy: "start_time", Limit: pageOfRollouts}}
	for {
		page, err := s.QueryRollouts(ctx, q)
		if err != nil {
			return fmt.Errorf("look for rollouts of runs: %w", err)
		}
		for i := range page.Items {
			var m struct {
				RunID string `json:"agl.run_id"`
			}
			if json.Unmarshal(page.Items[i].Metadata, &m) != nil || m.RunID == "" {
				continue
			}
			if err := visit(m.RunID, &page.Items[i]); err != nil {
				return err
			}
		}
		if q.Offset += len(page.Items); len(page.Items) == 0 || q.Offset >= page.Total {
			return nil
		}
	}
}

// open are the statuses of rollouts that are not finished.
func open() []agl.RolloutStatus {
	return []agl.RolloutStatus{agl.RolloutQueuing, agl.RolloutRequeuing, agl.RolloutPreparing, agl.RolloutRunning}
}

// OpenWork counts the rollouts that runs left unfinished, by run.
func OpenWork(ctx context.Context, s store.Store) (map[string]int, error) {
	out := map[string]int{}
	return out, rolloutsOf(ctx, s, func(runID string, _ *agl.AttemptedRollout) error {
		out[runID]++
		return nil
	}, open()...)
}

// Abandon cancels the rollouts that runs left unfinished and returns how many.
func Abandon(ctx context.Context, s store.Store) (int, error) {
	var ids []string
	err := rolloutsOf(ctx, s, func(_ string, r *agl.AttemptedRollout) error {
		ids = append(ids, r.RolloutID)
		return nil
	}, open()...)
	return len(ids), errorAfter(err, setStatus(ctx, s, ids, agl.RolloutCancelled))
}

// WorkerName is what the runners of a run are called in a store for which others
// work, too, so that a process that goes on with the run knows those of the one
// before.
func WorkerName(runID string) string { return "train-" + runID }

// TakeUp queues the rollouts again that a process of a run had in hand when it
// ended, so that they are no failures of the run that goes on: those that a
// runner of this name had, whichever when it is empty.
func TakeUp(ctx context.Context, s store.Store, runs []Outcome, worker string) (int, error) {
	mine := map[string]bool{}
	for _, o := range runs {
		mine[o.RunID] = true
	}
	var ids []string
	err := rolloutsOf(ctx, s, func(runID string, r *agl.AttemptedRollout) error {
		ended := r.Status == agl.RolloutPreparing || r.Status == agl.RolloutRunning || stopped(r)
		if mine[runID] && ended && hadBy(r, worker) {
			ids = append(ids, r.RolloutID)
		}
		return nil
	}, agl.RolloutPreparing, agl.RolloutRunning, agl.RolloutFailed)
	return len(ids), errorAfter(err, setStatus(ctx, s, ids, agl.RolloutRequeuing))
}

// hadBy reports whether a runner of this name had the rollout last.
func hadBy(r *agl.AttemptedRollout, worker string) bool {
	return worker == "" || r.Attempt != nil && r.Attempt.WorkerID != nil && strings.HasPrefix(*r.Attempt.WorkerID, worker+"-")
}

// stopped reports whether a rollout failed because its runner was told to stop.
func stopped(r *agl.AttemptedRollout) bool {
	if r.Status != agl.RolloutFailed || r.Attempt == nil {
		return false
	}
	var m struct {
		Reason runner.Reason `json:"reason"`
	}
	return json.Unmarshal(r.Attempt.Metadata, &m) == nil && m.Reason == runner.ReasonStopped
}

func setStatus(ctx context.Context, s store.Store, ids []string, to agl.RolloutStatus) error {
	for _, id := range ids {
		if _, err := s.UpdateRollout(ctx, id, store.RolloutUpdate{Status: store.To(to)}); err != nil {
			return fmt.Errorf("rollout %s becomes %s: %w", id, to, err)
		}
	}
	return nil
}

func errorAfter(first, second error) error {
	if first != nil {
		return first
	}
	return second
}
