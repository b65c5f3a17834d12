package baseline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/store"
)

// ResourcesID is the id under which the initial resources are published.
const ResourcesID = "default"

// Config configures a [Baseline]. The zero value does one pass.
type Config struct {
	// Epochs is how often the tasks are done. Default 1.
	Epochs int
	// MaxQueue is how many rollouts may wait in the queue before the next one is
	// added. Default 4.
	MaxQueue int
	// PollInterval is the time between looks at a full queue. Default 250 ms.
	PollInterval time.Duration
	// OnResult is called for each finished rollout, from the goroutine of Run.
	OnResult func(Result)
}

// Result is how one task ended.
type Result struct {
	Epoch   int // from 0
	Index   int // of the task within its data set
	Mode    agl.Mode
	Elapsed time.Duration // from the enqueue to the end
	algorithm.Outcome
}

// Baseline is an [algorithm.Algorithm]. Run may be called once at a time.
type Baseline struct {
	cfg     Config
	results []Result
}

var _ algorithm.Algorithm = (*Baseline)(nil)

// New returns a baseline.
func New(cfg Config) *Baseline {
	cfg.Epochs = cmp.Or(cfg.Epochs, 1)
	cfg.MaxQueue = cmp.Or(cfg.MaxQueue, 4)
	cfg.PollInterval = cmp.Or(cfg.PollInterval, 250*time.Millisecond)
	return &Baseline{cfg: cfg}
}

// Report returns the results of the last Run, by epoch, mode (train first) and index.
func (b *Baseline) Report() []Result { return slices.Clone(b.results) }

// Run publishes the initial resources and does every training task, then every
// validation task, in each epoch. It is an error to have neither.
func (b *Baseline) Run(ctx context.Context, env algorithm.Env) error {
	b.results = nil
	if len(env.Train) == 0 && len(env.Val) == 0 {
		return errors.New("baseline: there are no tasks; pass a training or a validation set")
	}
	var resourcesID *string
	if len(env.InitialResources) > 0 {
		update, err := env.Store.UpdateResources(ctx, ResourcesID, env.InitialResources)
		if err != nil {
			return fmt.Errorf("baseline: publish the initial resources: %w", err)
		}
		resourcesID = &update.ResourcesID
	} else {
		env.Logger.WarnContext(ctx, "no initial resources; rollouts get what the store has latest")
	}
	for epoch := range b.cfg.Epochs {
		if err := b.epoch(ctx, env, epoch, resourcesID); err != nil {
			return fmt.Errorf("baseline: epoch %d: %w", epoch, err)
		}
	}
	order := map[agl.Mode]int{agl.ModeTrain: 0, agl.ModeVal: 1}
	slices.SortFunc(b.results, func(x, y Result) int {
		return cmp.Or(cmp.Compare(x.Epoch, y.Epoch), cmp.Compare(order[x.Mode], order[y.Mode]), cmp.Compare(x.Index, y.Index))
	})
	outcomes := make([]algorithm.Outcome, len(b.results))
	for i := range outcomes {
		outcomes[i] = b.results[i].Outcome
	}
	mean, n := algorithm.MeanReward(outcomes)
	env.Logger.InfoContext(ctx, "baseline finished", "rollouts", len(b.results), "rewarded", n, "mean_reward", mean)
	return nil
}

// pending is a rollout that was enqueued and not seen to end.
type pending struct {
	Result
	began time.Time
}

func (b *Baseline) epoch(ctx context.Context, env algorithm.Env, epoch int, resourcesID *string) error {
	open := map[string]pending{}
	for _, set := range [...]struct {
		mode  agl.Mode
		tasks []json.RawMessage
	}{{agl.ModeTrain, env.Train}, {agl.ModeVal, env.Val}} {
		for i, task := range set.tasks {
			if err := b.waitForRoom(ctx, env, open); err != nil {
				return err
			}
			ids, err := algorithm.Ask(ctx, env.Store, []store.EnqueueRequest{
				{Input: task, Mode: set.mode, ResourcesID: resourcesID},
			})
			if err != nil {
				return fmt.Errorf("%s task %d: %w", set.mode, i, err)
			}
			open[ids[0]] = pending{Result{Epoch: epoch, Index: i, Mode: set.mode}, time.Now()}
		}
	}
	for len(open) > 0 {
		if err := b.harvest(ctx, env, open, b.cfg.PollInterval); err != nil {
			return err
		}
	}
	return nil
}

// waitForRoom returns once few enough rollouts wait in the queue.
func (b *Baseline) waitForRoom(ctx context.Context, env algorithm.Env, open map[string]pending) error {
	for {
		page, err := env.Store.QueryRollouts(ctx, store.RolloutQuery{
			StatusIn: []agl.RolloutStatus{agl.RolloutQueuing, agl.RolloutRequeuing}, Paging: store.Paging{Limit: 1},
		})
		if err != nil {
			return fmt.Errorf("look at the queue: %w", err)
		}
		if page.Total <= b.cfg.MaxQueue {
			return nil
		}
		if err := b.harvest(ctx, env, open, b.cfg.PollInterval); err != nil {
			return err
		}
		if len(open) == 0 { // the queue is full of somebody else's rollouts
			select {
			case <-time.After(b.cfg.PollInterval):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

// harvest waits up to a while for all open rollouts and reports those that ended.
func (b *Baseline) harvest(ctx context.Context, env algorithm.Env, open map[string]pending, wait time.Duration) error {
	ids := make([]string, 0, len(open))
	for id := range open {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return nil
	}
	done, err := env.Store.WaitForRollouts(ctx, ids, wait)
	if err != nil {
		return fmt.Errorf("wait for %d rollouts: %w", len(ids), err)
	}
	ids = ids[:0]
	for i := range done {
		ids = append(ids, done[i].RolloutID)
	}
	outcomes, err := algorithm.Collect(ctx, env.Store, ids, algorithm.Collecting{})
	if err != nil {
		return err
	}
	for i, id := range ids {
		r := open[id].Result
		r.Elapsed, r.Outcome = time.Since(open[id].began), outcomes[i]
		delete(open, id)
		b.report(ctx, env, r)
	}
	return nil
}

func (b *Baseline) report(ctx context.Context, env algorithm.Env, r Result) {
	b.results = append(b.results, r)
	attrs := []any{
		"rollout_id", r.Rollout.RolloutID, "mode", string(r.Mode), "task", r.Index,
		"status", string(r.Rollout.Status), "elapsed", r.Elapsed, "spans", len(r.Spans),
	}
	if a := r.Rollout.Attempt; a != nil {
		attrs = append(attrs, "attempts", a.SequenceID)
	}
	if r.Reward != nil {
		attrs = append(attrs, "reward", *r.Reward)
	}
	if r.Failure != "" {
		attrs = append(attrs, "failure", r.Failure)
	}
	env.Logger.InfoContext(ctx, "rollout finished", attrs...)
	if b.cfg.OnResult != nil {
		b.cfg.OnResult(r)
	}
}
