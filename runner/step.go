package runner

import (
	"context"
	"encoding/json"
	"fmt"

	agl "agentlightning"
	"agentlightning/store"
)

// Task is one task to be done at once.
type Task struct {
	Input json.RawMessage
	Mode  agl.Mode
	// Resources are published first; nil uses the latest ones.
	Resources agl.NamedResources
	Config    *agl.RolloutConfig
	Metadata  json.RawMessage
}

// Step does one task without the queue and returns the finished rollout. It is
// for debugging and for evaluations that want one answer; unlike Run it returns
// why the agent failed.
func (r *Runner) Step(ctx context.Context, t Task) (agl.AttemptedRollout, error) {
	req := store.StartRequest{WorkerID: &r.cfg.WorkerID, EnqueueRequest: store.EnqueueRequest{
		Input: t.Input, Mode: t.Mode, Config: t.Config, Metadata: t.Metadata,
	}}
	if t.Resources != nil {
		update, err := r.cfg.Store.AddResources(ctx, t.Resources)
		if err != nil {
			return agl.AttemptedRollout{}, fmt.Errorf("publish resources: %w", err)
		}
		req.ResourcesID = &update.ResourcesID
	}
	started, err := r.cfg.Store.StartRollout(ctx, req)
	if err != nil {
		return agl.AttemptedRollout{}, fmt.Errorf("start a rollout: %w", err)
	}
	if failed := r.execute(ctx, started); failed != nil {
		return agl.AttemptedRollout{}, fmt.Errorf("rollout %s: %w", started.RolloutID, failed)
	}
	return r.cfg.Store.Rollout(ctx, started.RolloutID)
}
