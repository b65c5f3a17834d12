// Package pg trains a policy by policy gradients: GRPO and its kin, PPO, and what
// can be put together of their parts.
//
// Each step asks the store for a group of rollouts for each of some tasks,
// waits for them, turns what the proxy recorded into rows of the engine's own
// token ids, credits every call with its part of the reward, and updates the
// policy. How, is a [Method]; [Preset] has the published ones. Rollouts that
// failed or were not rewarded are left out and counted; they are a reward of 0
// only when the method says so. Every step's metrics and checkpoint belong to a run in the store, from
// which it goes on after an interruption.
package pg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
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
		if len(env.Train) == 0 {
			return errors.New("pg: there are no training tasks")
		}
		run, err := algorithm.Begin(ctx, env, Name, c.summary(), c.Seed)
		if err != nil {
			return err
		}
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

	drawn   int     // tasks drawn in the steps before the one in hand
	pending []asked // rollouts of the step in hand
	rounds  int     // how often it asked for more
}

// state is what a checkpoint keeps beside the weights.
type state struct {
	Drawn     int      `json:"drawn"`
	Pending   []asked  `json:"pending,omitempty"`
	Rounds    int      `json:"rounds,omitempty"`
	BestStep  int      `json:"best_step"`
	BestScore *float64 `json:"best_score"`
}

func (t *training) train(ctx context.Context) error {
	done, err := t.restore(ctx)
	if err != nil {
		return err
	}
	if len(t.Resources) > 0 {
		err := t.run.Stage(ctx, stage.Publish, func(ctx context.Context) error {
			_, err := t.env.Store.AddResources(ctx, t.Resources)
			return err
		})
		if err != nil {
			return fmt.Errorf("publish resources: %w", err)
		}
	}
	if done < 0 {
		if err := t.begin(ctx); err != nil {
			return fmt.Errorf("before the first step: %w", err)
		}
		done = 0
	}
	for step := done + 1; step <= t.Steps; step++ {
		if err := t.step(ctx, step, step == done+1); err != nil {
			return fmt.Errorf("step %d of %d: %w", step, t.Steps, err)
		}
	}
	return nil
}

// restore goes back to the latest checkpoint and returns its step, -1 when the
// run is new.
func (t *training) restore(ctx context.Context) (int, error) {
	latest, ok, err := t.run.Latest(ctx)
	if err != nil || !ok {
		return -1, err
	}
	if t.Checkpoints == "" || latest.Path == "" {
		return 0, fmt.Errorf("run %s cannot be resumed: Checkpoints must be set, from its beginning on, for its weights to be kept", t.run.RunID)
	}
	var s state
	if err := json.Unmarshal(latest.State, &s); err != nil {
		return 0, fmt.Errorf("state of step %d: %w", latest.Step, err)
	}
	if err := t.Learner.Load(ctx, latest.Path); err != nil {
		return 0, fmt.Errorf("resume from step %d: %w", latest.Step, err)
	}
	if s.BestScore != nil {
		t.kept.Restore(s.BestStep, *s.BestScore)
	}
	t.path, t.score = latest.Path, latest.Score
	t.drawn, t.pending, t.rounds = s.Drawn, s.Pending, s.Rounds
	t.env.Logger.InfoContext(ctx, "run resumed", "run_id", t.run.RunID, "step", latest.Step, "pending", len(s.Pending))
	return latest.Step, nil
}

// begin validates the policy as it is and keeps it as step 0.
func (t *training) begin(ctx context.Context) error {
	started := time.Now()
	s := Step{Of: t.Steps, Metrics: map[string]float64{}}
	err := t.run.Stage(ctx, stage.Validate, func(ctx context.Context) error { return t.validate(ctx, 0, &s) })
	if err != nil {
		return err
	}
	return t.complete(ctx, s, started)
}

func (t *training) step(ctx context.Context, number int, first bool) error {
	started := time.Now()
	s := Step{Number: number, Of: t.Steps, Metrics: map[string]float64{}}
	var outcomes []algorithm.Outcome
	var groups []string
	err := t.run.Stage(ctx, stage.Collect, func(ctx context.Context) (err error) {
		outcomes, groups, err = t.gather(ctx, number)
		return err
	})
	if err != nil {
		return err
	}
	waited := time.Since(started)
	s.count(outcomes)
	rewarded := func(o algorithm.Outcome) bool { return t.Method.reward(o) != nil }
	if first && !slices.ContainsFunc(outcomes, rewarded) {
		return fmt.Errorf("%w: %s", ErrNoRewards, s.LastFailure)
	}
	b := newBatch(&t.Config, outcomes, groups)
	if t.ShuffleRewards {
		b.shuffle(rand.New(rand.NewPCG(uint64(t.Seed), uint64(number)^0x5eed)))
	}
	if err := t.run.Stage(ctx, stage.Score, b.assign); err != nil {
		return err
	}
	rows, err := b.rows(rand.New(rand.NewPCG(uint64(t.Seed), uint64(number)^0x0dd)))
	if err != nil {
		return err
	}
	stats := b.stats
	trained := time.Now()
	if len(rows) > 0 {
		batch := learner.Batch{Rows: rows, Options: learner.Options{
			Objective: learner.PolicyGradient, LearningRate: t.LearningRate.At(number, t.Steps),
			Epochs: t.Epochs, Minibatch: t.Minibatch, Loss: t.Method.Loss, Critic: t.Method.criticOptions(),
			MaxGradNorm: t.MaxGradNorm, Seed: t.Seed + int64(number),
		}}
		var metrics learner.Metrics
		err := t.run.Stage(ctx, stage.Update, func(ctx context.Context) (err error) {
			metrics, err = t.Learner.Update(ctx, batch)
			return err
		})
		if err != nil {
			return fmt.Errorf("update: %w", err)
		}
		maps.Copy(s.Metrics, metrics)
	} else {
		t.env.Logger.WarnContext(ctx, "step skipped: nothing to train on", "run_id", t.run.RunID, "step", number,
			"groups", stats.Groups, "groups_constant", stats.GroupsConstant, "unrewarded", stats.Unrewarded,
			"calls", b.counts.calls, "left_out", b.counts.problems, "see", "agl rollouts explain --run "+t.run.RunID)
	}
	if stats.Usable > 0 {
		s.Reward = &stats.RewardMean
		s.Metrics["reward"], s.Metrics["reward_std"] = stats.RewardMean, stats.RewardStd
	}
	s.Tokens = b.counts.tokens
	b.counts.add(s.Metrics)
	s.Metrics["rewards_not_finite"] = float64(stats.NonFinite)
	s.Metrics["groups"] = float64(stats.Groups)
	s.Metrics["groups_constant"] = float64(stats.GroupsConstant)
	s.Metrics["groups_small"] = float64(stats.GroupsSmall)
	if stats.Rejected > 0 {
		s.Metrics["rollouts_rejected"] = float64(stats.Rejected)
	}
	s.Metrics["seconds_rollouts"] = waited.Seconds()
	s.Metrics["seconds_update"] = time.Since(trained).Seconds()
	s.Metrics["rollouts_per_second"] = float64(len(outcomes)) / waited.Seconds()

	if number == t.Steps || t.ValidateEvery > 0 && number%t.ValidateEvery == 0 {
		err := t.run.Stage(ctx, stage.Validate, func(ctx context.Context) error { return t.validate(ctx, number, &s) })
		if err != nil {
			return err
		}
	}
	return t.complete(ctx, s, started)
}

// complete makes the step durable and reports it.
func (t *training) complete(ctx context.Context, s Step, started time.Time) error {
	s.Metrics["seconds"] = time.Since(started).Seconds()
	s.Metrics["rollouts"], s.Metrics["rollouts_failed"] = float64(s.Rollouts), float64(s.Failed)
	if err := t.run.Record(ctx, s.Number, s.Metrics); err != nil {
		return err
	}
	t.score = s.Accuracy
	if t.Checkpoints != "" {
		err := t.run.Stage(ctx, stage.Checkpoint, func(ctx context.Context) (err error) {
			t.path, err = t.kept.Save(ctx, t.Learner, s.Number, s.Accuracy)
			return err
		})
		if err != nil {
			return err
		}
	}
	groups := 0
	for _, a := range t.pending {
		groups = max(groups, a.Group+1)
	}
	t.drawn, t.pending, t.rounds = t.drawn+groups, nil, 0
	if err := t.mark(ctx, s.Number); err != nil {
		return err
	}
	if t.OnStep != nil {
		s.Elapsed = time.Since(started)
		t.OnStep(s)
	}
	return nil
}

// mark stores that step is complete and what was asked for since.
func (t *training) mark(ctx context.Context, step int) error {
	s := state{Drawn: t.drawn, Pending: t.pending, Rounds: t.rounds}
	if best, score, ok := t.kept.Best(); ok {
		s.BestStep, s.BestScore = best, &score
	}
	return t.run.Checkpoint(ctx, step, t.path, t.score, s)
}

func (s *Step) count(outcomes []algorithm.Outcome) {
	s.Rollouts += len(outcomes)
	for _, o := range outcomes {
		if o.Reward != nil {
			continue
		}
		s.Failed++
		if s.LastFailure = o.Failure; o.Failure == "" {
			s.LastFailure = "rollout " + o.Rollout.RolloutID + " succeeded without a reward"
		}
	}
}

func (t *training) validate(ctx context.Context, step int, s *Step) error {
	if len(t.env.Val) == 0 {
		return nil
	}
	requests := make([]request, len(t.env.Val))
	for i, task := range t.env.Val {
		requests[i] = request{task, i, 0}
	}
	ids, err := t.enqueue(ctx, step, agl.ModeVal, requests)
	if err != nil {
		return err
	}
	rollouts := make([]asked, len(ids))
	for i, id := range ids {
		rollouts[i] = asked{id, i}
	}
	outcomes, err := t.collect(ctx, step, rollouts)
	if err != nil {
		return fmt.Errorf("validation: %w", err)
	}
	s.count(outcomes)
	accuracy, rewarded := algorithm.MeanReward(outcomes)
	s.Metrics["validation_failed"] = float64(len(outcomes) - rewarded)
	if rewarded == 0 {
		return fmt.Errorf("validation: %w: %s", ErrNoRewards, s.LastFailure)
	}
	s.Accuracy = &accuracy
	s.Metrics["accuracy"] = accuracy
	return nil
}
