// Package pg trains a policy by policy gradients: GRPO and its kin, PPO, and what
// can be put together of their parts.
//
// Each step asks the store for a group of rollouts for each of some tasks,
// waits for them, turns what the proxy recorded into rows of the engine's own
// token ids, credits every call with its part of the reward, and updates the
// policy. How, is a [Method]; [Preset] has the published ones. Rollouts that
// failed or were not rewarded are left out and counted; they are a reward of 0
// only when the method says so. With [Async] agents work on while the policy is
// updated; with [Follow] there are no tasks, and others report the rollouts.
//
// Every step's metrics and checkpoint belong to a run in the store, from which it
// goes on after an interruption, also one that nobody saw coming: rollouts that
// were asked for are found again and not asked for twice.
package pg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/algorithm/stage"
	"agentlightning/learner"
)

// Name is the name of the algorithm in its runs.
const Name = "pg"

// ErrNoRewards is returned when the first step of an execution ends without a
// single reward: going on would train on nothing.
var ErrNoRewards = errors.New("no rollout of the first step was rewarded")

// New returns the algorithm.
func New(c Config) (algorithm.Algorithm, error) {
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return algorithm.Func(func(ctx context.Context, env algorithm.Env) error {
		if err := c.fits(env); err != nil {
			return fmt.Errorf("pg: %w", err)
		}
		run, err := algorithm.Begin(ctx, env, Name, c.summary(), c.Seed)
		if err != nil {
			return err
		}
		env.Logger = run.Logger
		t := &training{
			Config: c, env: env, run: run,
			kept: learner.Checkpoints{Dir: filepath.Join(c.Checkpoints, run.RunID)},
		}
		if err := t.train(ctx); err != nil {
			err = fmt.Errorf("pg: %w", err)
			return run.Finish(ctx, err)
		}
		return run.Finish(ctx, nil)
	}), nil
}

// fits returns an error when the configuration does not go with the tasks.
func (c *Config) fits(env algorithm.Env) error {
	switch {
	case c.Stored != nil && len(env.Train) > 0:
		return fmt.Errorf("Stored: there are %d training tasks, which nothing would look at", len(env.Train))
	case c.Follow == nil && c.Stored == nil && len(env.Train) == 0:
		return errors.New("there are no training tasks")
	case c.Follow != nil && len(env.Train) > 0:
		return fmt.Errorf("Follow: there are %d training tasks, which nothing would look at", len(env.Train))
	case len(env.Val) > 0:
		return nil
	case c.ValidateEvery > 0:
		return fmt.Errorf("ValidateEvery: %d: there are no validation tasks", c.ValidateEvery)
	case c.RestoreBest:
		return errors.New("RestoreBest: there are no validation tasks that would tell which weights are the best")
	}
	return nil
}

// training is one execution.
type training struct {
	Config
	env  algorithm.Env
	run  *algorithm.Run
	kept learner.Checkpoints

	path  string   // of the latest checkpoint
	score *float64 // of the latest checkpoint
	pass  int      // over the tasks, which order is that of
	order []int
	// resumed tells that no rollout was asked for since the run was resumed.
	resumed bool
	taken   map[string]bool // rollouts that the step in hand is trained on
	// selection are the stored rollouts that are learnt from; nil until they are read.
	selection *selection

	state
}

// state is what a checkpoint keeps beside the weights.
type state struct {
	// Drawn counts the tasks that were drawn.
	Drawn int `json:"drawn"`
	// Pending are the rollouts that no step was trained on yet.
	Pending []asked `json:"pending,omitempty"`
	// Rounds is how often the step in hand asked for more.
	Rounds int `json:"rounds,omitempty"`
	// Open is a step whose weights are kept, but which is not validated yet;
	// Validation are the rollouts of that.
	Open       *keptStep `json:"open,omitempty"`
	Validation []string  `json:"validation,omitempty"`

	BestStep  int      `json:"best_step"`
	BestScore *float64 `json:"best_score"`
	// Gained is the score that EarlyStop compares with, Waited how many
	// validations did not exceed it.
	Gained *float64 `json:"gained,omitempty"`
	Waited int      `json:"waited,omitempty"`

	Following *following `json:"following,omitempty"`
	// Selection tells stored rollouts that are learnt from apart from others.
	Selection string `json:"selection,omitempty"`
}

func (t *training) train(ctx context.Context) error {
	done, err := t.restore(ctx)
	if err != nil {
		return err
	}
	if done < 0 {
		done = 0
		if err := t.keep(ctx, &Step{Of: t.Steps, Metrics: map[string]float64{}}); err != nil {
			return fmt.Errorf("before the first step: %w", err)
		}
	}
	if err := t.publish(ctx, done); err != nil {
		return err
	}
	if t.Open != nil {
		if err := t.complete(ctx, t.Open.Step); err != nil {
			if done == 0 {
				return fmt.Errorf("before the first step: %w", err)
			}
			return fmt.Errorf("step %d of %d: %w", done, t.Steps, err)
		}
	}
	first := true
	for step := done + 1; t.Steps == 0 || step <= t.Steps; step++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if t.EarlyStop.Patience > 0 && t.Waited >= t.EarlyStop.Patience {
			t.env.Logger.InfoContext(ctx, "stopped early", "run_id", t.run.RunID, "step", step-1,
				"validations_without_gain", t.Waited, "best_step", t.BestStep)
			break
		}
		if err := t.step(ctx, step, first); err != nil {
			if t.Steps == 0 {
				return fmt.Errorf("step %d: %w", step, err)
			}
			return fmt.Errorf("step %d of %d: %w", step, t.Steps, err)
		}
		first, done = false, step
	}
	if err := t.giveUp(ctx, done, t.Pending); err != nil {
		return err
	}
	return t.restoreBest(ctx, done)
}

// restore goes back to the latest checkpoint and returns its step, -1 when the
// run is new.
func (t *training) restore(ctx context.Context) (int, error) {
	latest, ok, err := t.run.Latest(ctx)
	if err != nil || !ok {
		if t.Follow != nil {
			t.Following = &following{}
		}
		return -1, err
	}
	if t.Checkpoints == "" || latest.Path == "" {
		return 0, fmt.Errorf("run %s cannot be resumed: Checkpoints must be set, from its beginning on, for its weights to be kept", t.run.RunID)
	}
	if err := json.Unmarshal(latest.State, &t.state); err != nil {
		return 0, fmt.Errorf("state of step %d: %w", latest.Step, err)
	}
	if (t.Follow != nil) != (t.Following != nil) {
		return 0, fmt.Errorf("run %s cannot be resumed: it began with Follow, or without, and must go on so", t.run.RunID)
	}
	if err := t.Learner.Load(ctx, latest.Path); err != nil {
		return 0, fmt.Errorf("resume from step %d: %w", latest.Step, err)
	}
	if t.BestScore != nil {
		t.kept.Restore(t.BestStep, *t.BestScore)
	}
	t.path, t.score, t.resumed = latest.Path, latest.Score, true
	t.env.Logger.InfoContext(ctx, "run resumed", "run_id", t.run.RunID, "step", latest.Step, "pending", len(t.Pending))
	return latest.Step, nil
}

// publish says what rollouts are given from now on.
func (t *training) publish(ctx context.Context, step int) error {
	resources := t.Resources
	if t.Publish != nil {
		var err error
		if resources, err = t.Publish(ctx, step); err != nil {
			return fmt.Errorf("publish after step %d: %w", step, err)
		}
	}
	if len(resources) == 0 {
		return nil
	}
	var published agl.ResourcesUpdate
	err := t.run.Stage(ctx, stage.Publish, func(ctx context.Context) (err error) {
		published, err = t.env.Store.AddResources(ctx, resources)
		return err
	})
	if err != nil {
		return fmt.Errorf("publish resources: %w", err)
	}
	if t.Following != nil {
		t.Following.published(step, published.CreateTime)
	}
	return nil
}

// restoreBest goes back to the best weights of the run, which are what it leaves
// behind.
func (t *training) restoreBest(ctx context.Context, done int) error {
	best, score, ok := t.kept.Best()
	path := t.kept.Path(best)
	if !t.RestoreBest || !ok || path == t.path {
		return nil
	}
	if err := t.Learner.Load(ctx, path); err != nil {
		return fmt.Errorf("go back to the best weights, those of step %d: %w", best, err)
	}
	t.path, t.score = path, &score
	if err := t.mark(ctx, done); err != nil {
		return err
	}
	return t.publish(ctx, best)
}

// mark stores that step is complete, up to what is open of it, and what was
// asked for since.
func (t *training) mark(ctx context.Context, step int) error {
	if best, score, ok := t.kept.Best(); ok {
		t.BestStep, t.BestScore = best, &score
	}
	return t.run.Checkpoint(ctx, step, t.path, t.score, t.state)
}

// keep makes the weights of a step durable, before the step is validated.
func (t *training) keep(ctx context.Context, s *Step) error {
	if t.Checkpoints != "" {
		err := t.run.Stage(ctx, stage.Checkpoint, func(ctx context.Context) (err error) {
			t.path, err = t.kept.Save(ctx, t.Learner, s.Number, nil)
			return err
		})
		if err != nil {
			return err
		}
	}
	t.settle()
	t.score, t.Rounds, t.Validation, t.Open = nil, 0, nil, &keptStep{s}
	if !t.validates(s.Number) {
		return nil // complete does it
	}
	return t.mark(ctx, s.Number)
}

// settle forgets the rollouts that the step in hand was trained on.
func (t *training) settle() {
	t.Pending = slices.DeleteFunc(t.Pending, func(a asked) bool { return t.taken[a.ID] })
	if t.Following != nil {
		t.Following.settle(t.taken)
	}
	t.taken = nil
}

// complete validates a step whose weights are kept, if that is due, stores its
// metrics and reports it.
func (t *training) complete(ctx context.Context, s *Step) error {
	started := time.Now()
	if t.validates(s.Number) {
		err := t.run.Stage(ctx, stage.Validate, func(ctx context.Context) error { return t.validate(ctx, s) })
		if err != nil {
			return err
		}
	}
	s.Elapsed += time.Since(started)
	s.speeds()
	s.Metrics["rollouts"], s.Metrics["rollouts_failed"] = float64(s.Rollouts), float64(s.Failed)
	if err := t.run.Record(ctx, s.Number, s.Metrics); err != nil {
		return err
	}
	if t.score = s.Accuracy; s.Accuracy != nil {
		t.kept.Rate(s.Number, *s.Accuracy)
		if t.Gained == nil || *s.Accuracy > *t.Gained+t.EarlyStop.MinGain {
			t.Gained, t.Waited = s.Accuracy, 0
		} else {
			t.Waited++
		}
	}
	t.Open, t.Validation = nil, nil
	if err := t.mark(ctx, s.Number); err != nil {
		return err
	}
	if t.OnStep != nil {
		t.OnStep(*s)
	}
	return nil
}
