package trainer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/algorithm/baseline"
	"agentlightning/execution"
	"agentlightning/runner"
	"agentlightning/store"
)

// Fit trains: it returns nil when the algorithm is done and the runners have
// stopped, the first error otherwise, and the cause of ctx when that ended
// first. Val may be empty. Without an algorithm there must be no tasks; what is
// queued is done.
func Fit(ctx context.Context, c Config, train, val []json.RawMessage) error {
	strategy, err := c.resolve()
	if err != nil {
		return err
	}
	if c.Algorithm == nil && c.Role != execution.RoleRunner {
		if len(train)+len(val) > 0 {
			return errors.New("trainer: there are tasks but Config.Algorithm is nil; pass an algorithm, or use Dev to run the tasks once")
		}
		c.Algorithm = algorithm.Func(c.drain)
		c.published = make(chan struct{})
	}
	if c.log != nil {
		defer c.log.End(ctx)
	}
	work := execution.Work{Runners: c.Runners, Runner: c.runner}
	if c.Role != execution.RoleRunner {
		work.Algorithm = func(ctx context.Context, s store.Store) error { return c.algorithm(ctx, s, train, val) }
	}
	return strategy.Execute(ctx, work, c.Store)
}

// Dev runs the agent once over the tasks, without learning, and returns how
// each ended. It is for trying an agent out.
func Dev(ctx context.Context, c Config, train, val []json.RawMessage) ([]baseline.Result, error) {
	if c.Algorithm != nil {
		if _, ok := c.Algorithm.(*baseline.Baseline); !ok {
			return nil, fmt.Errorf("trainer: Dev does not learn, but Config.Algorithm is a %T; leave it empty or call Fit", c.Algorithm)
		}
	} else {
		c.Algorithm = baseline.New(baseline.Config{MaxQueue: max(4, 2*cmp.Or(c.Runners, 1)*cmp.Or(c.Concurrency, 1))})
	}
	err := Fit(ctx, c, train, val)
	return c.Algorithm.(*baseline.Baseline).Report(), err
}

// runner is the runner with this number.
func (c *Config) runner(ctx context.Context, s store.Store, number int) error {
	if c.published != nil {
		select {
		case <-c.published:
		case <-ctx.Done():
			return nil
		}
	}
	rc := c.Runner
	rc.Store, rc.Agent, rc.Hooks, rc.Logger = s, c.Agent, c.Hooks, c.Logger
	rc.Concurrency, rc.MaxRollouts = c.Concurrency, c.MaxRollouts
	rc.WorkerID = fmt.Sprintf("%s-%d", c.WorkerName, number)
	r, err := runner.New(rc)
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// stopProxy is how long model calls may take to finish once the algorithm is done.
const stopProxy = 5 * time.Second

func (c *Config) algorithm(ctx context.Context, s store.Store, train, val []json.RawMessage) (err error) {
	resources := slices.Clone(c.InitialResources)
	if c.Proxy != nil {
		models, err := c.Proxy.Start(ctx, s)
		if err != nil {
			return fmt.Errorf("start the model proxy: %w", err)
		}
		for _, m := range models {
			if resources.Get(m.Name) == nil {
				resources = append(resources, m)
			}
		}
		defer func() {
			stopping, done := context.WithTimeout(context.WithoutCancel(ctx), stopProxy)
			defer done()
			if failed := c.Proxy.Stop(stopping); failed != nil {
				c.Logger.WarnContext(ctx, "the model proxy did not stop cleanly", "err", failed)
			}
		}()
	}
	if c.RolloutConfig != nil {
		s = withRolloutConfig{s, *c.RolloutConfig}
	}
	return c.Algorithm.Run(ctx, algorithm.Env{
		Store: s, Train: train, Val: val, InitialResources: resources,
		RunID: c.RunID, Logger: c.Logger,
	})
}

// withRolloutConfig gives a configuration to rollouts that are asked for without.
type withRolloutConfig struct {
	store.Store
	config agl.RolloutConfig
}

func (s withRolloutConfig) EnqueueRollouts(ctx context.Context, reqs []store.EnqueueRequest) ([]agl.Rollout, error) {
	reqs = slices.Clone(reqs)
	for i := range reqs {
		if reqs[i].Config == nil {
			reqs[i].Config = &s.config
		}
	}
	return s.Store.EnqueueRollouts(ctx, reqs)
}

func (s withRolloutConfig) StartRollout(ctx context.Context, req store.StartRequest) (agl.AttemptedRollout, error) {
	if req.Config == nil {
		req.Config = &s.config
	}
	return s.Store.StartRollout(ctx, req)
}

// lookEvery is how long drain waits for rollouts before it looks for new ones
// and says what it is waiting for.
const lookEvery = 10 * time.Second

// drain is the algorithm of a training without one: it ends when nothing is
// queued or under way.
func (c *Config) drain(ctx context.Context, env algorithm.Env) error {
	if len(env.InitialResources) > 0 {
		if _, err := env.Store.AddResources(ctx, env.InitialResources); err != nil {
			return fmt.Errorf("publish the initial resources: %w", err)
		}
	}
	close(c.published)
	unfinished := store.RolloutQuery{StatusIn: []agl.RolloutStatus{
		agl.RolloutQueuing, agl.RolloutRequeuing, agl.RolloutPreparing, agl.RolloutRunning,
	}}
	for first := true; ; first = false {
		page, err := env.Store.QueryRollouts(ctx, unfinished)
		if err != nil {
			return fmt.Errorf("look for open rollouts: %w", err)
		}
		if len(page.Items) == 0 {
			return nil
		}
		if !first {
			r := page.Items[0]
			c.Logger.InfoContext(ctx, "waiting for rollouts", slog.Int("open", page.Total),
				slog.String("rollout_id", r.RolloutID), slog.String("status", string(r.Status)))
		}
		ids := make([]string, len(page.Items))
		for i := range page.Items {
			ids[i] = page.Items[i].RolloutID
		}
		if _, err := env.Store.WaitForRollouts(ctx, ids, lookEvery); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("wait for open rollouts: %w", err)
		}
	}
}
