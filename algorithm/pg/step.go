package pg

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentlightning/algorithm"
	"agentlightning/algorithm/stage"
	"agentlightning/learner"
)

// Step is what one step did.
type Step struct {
	Number int `json:"number"`
	Of     int `json:"of"` // 0 when there is no end
	// Reward is the mean reward of the rollouts trained on; nil before the
	// first step and when none was rewarded.
	Reward *float64 `json:"reward,omitempty"`
	// Accuracy is the mean reward on the validation tasks; nil when they were
	// not run.
	Accuracy *float64 `json:"accuracy,omitempty"`
	// Sources has that mean for each data_source of the validation tasks.
	Sources  map[string]float64 `json:"sources,omitempty"`
	Rollouts int                `json:"rollouts"` // looked at, validation included
	Failed   int                `json:"failed"`   // of these, failed or not rewarded
	// LastFailure is why the last of them failed; empty when none did.
	LastFailure string             `json:"last_failure,omitempty"`
	Tokens      int                `json:"tokens"` // sampled, as far as they were captured
	Metrics     map[string]float64 `json:"metrics"`
	Elapsed     time.Duration      `json:"elapsed"`
}

// number is one that need not be finite: JSON has no way to write the others.
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	if f := float64(n); math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.AppendQuote(nil, strconv.FormatFloat(f, 'g', -1, 64)), nil
	}
	return json.Marshal(float64(n))
}

func (n *number) UnmarshalJSON(text []byte) error {
	f, err := strconv.ParseFloat(strings.Trim(string(text), `"`), 64)
	*n = number(f)
	return err
}

// keptStep is a step as a checkpoint keeps it.
type keptStep struct{ *Step }

type plainStep Step

func (k keptStep) MarshalJSON() ([]byte, error) {
	out := struct {
		plainStep
		Metrics map[string]number `json:"metrics"`
	}{plainStep(*k.Step), map[string]number{}}
	for name, v := range k.Metrics {
		out.Metrics[name] = number(v)
	}
	return json.Marshal(out)
}

func (k *keptStep) UnmarshalJSON(text []byte) error {
	in := struct {
		*plainStep
		Metrics map[string]number `json:"metrics"`
	}{plainStep: &plainStep{}}
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	in.plainStep.Metrics = make(map[string]float64, len(in.Metrics))
	for name, v := range in.Metrics {
		in.plainStep.Metrics[name] = float64(v)
	}
	k.Step = (*Step)(in.plainStep)
	return nil
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

// gathered are the rollouts that a step is trained on.
type gathered struct {
	outcomes []algorithm.Outcome
	groups   []string // of each
	// baselines are the greedy rollouts of the groups, where the method has them.
	baselines map[string]algorithm.Outcome
	// metrics tell how they were gathered.
	metrics map[string]float64
}

func (t *training) gather(ctx context.Context, step int) (gathered, error) {
	switch {
	case t.Stored != nil:
		return t.gatherStored(ctx)
	case t.Follow != nil:
		return t.follow(ctx, step)
	case t.Async.Groups > 0:
		return t.gatherSome(ctx, step)
	default:
		return t.gatherAll(ctx, step)
	}
}

func (t *training) step(ctx context.Context, number int, first bool) error {
	started := time.Now()
	s := &Step{Number: number, Of: t.Steps, Metrics: map[string]float64{}}
	var g gathered
	err := t.run.Stage(ctx, stage.Collect, func(ctx context.Context) (err error) {
		g, err = t.gather(ctx, number)
		return err
	})
	if err != nil {
		return err
	}
	waited := time.Since(started)
	s.count(g.outcomes)
	for _, group := range slices.Sorted(maps.Keys(g.baselines)) {
		s.count([]algorithm.Outcome{g.baselines[group]})
	}
	rewarded := func(o algorithm.Outcome) bool { return t.Method.reward(o) != nil }
	if first && !slices.ContainsFunc(g.outcomes, rewarded) {
		return fmt.Errorf("%w: %s", ErrNoRewards, s.LastFailure)
	}
	maps.Copy(s.Metrics, g.metrics)
	lifecycle(g.outcomes, s.Metrics)
	if err := t.learn(ctx, s, g); err != nil {
		return err
	}
	s.Metrics["seconds_rollouts"] = waited.Seconds()
	s.Metrics["rollouts_per_second"] = float64(len(g.outcomes)+len(g.baselines)) / waited.Seconds()
	s.Elapsed = time.Since(started)
	if err := t.keep(ctx, s); err != nil {
		return err
	}
	if t.PublishEvery > 0 && number%t.PublishEvery == 0 {
		if err := t.publish(ctx, number); err != nil {
			return err
		}
	}
	return t.complete(ctx, s)
}

// learn updates the policy by what was gathered.
func (t *training) learn(ctx context.Context, s *Step, g gathered) error {
	b := newBatch(&t.Config, g)
	if t.ShuffleRewards {
		b.shuffle(rand.New(rand.NewPCG(uint64(t.Seed), uint64(s.Number)^0x5eed)))
	}
	if err := t.run.Stage(ctx, stage.Score, b.assign); err != nil {
		return err
	}
	rows, err := b.rows(rand.New(rand.NewPCG(uint64(t.Seed), uint64(s.Number)^0x0dd)))
	if err != nil {
		return err
	}
	stats := b.stats
	started := time.Now()
	if len(rows) > 0 {
		if err := t.update(ctx, s, b, rows, g.outcomes); err != nil {
			return err
		}
	} else {
		t.env.Logger.WarnContext(ctx, "step skipped: nothing to train on", "run_id", t.run.RunID, "step", s.Number,
			"groups", stats.Groups, "groups_constant", stats.GroupsConstant, "unrewarded", stats.Unrewarded,
			"calls", b.counts.calls, "left_out", b.counts.problems, "see", "agl rollouts explain --run "+t.run.RunID)
	}
	if stats.Usable > 0 {
		s.Reward = &stats.RewardMean
		s.Metrics["reward"], s.Metrics["reward_std"] = stats.RewardMean, stats.RewardStd
	}
	s.Tokens = b.counts.tokens
	b.counts.add(s.Metrics)
	b.describe(rows, s.Metrics)
	s.Metrics["lr"] = t.options(s.Number).LearningRate
	s.Metrics["rewards_not_finite"] = float64(stats.NonFinite)
	s.Metrics["groups"] = float64(stats.Groups)
	s.Metrics["groups_constant"] = float64(stats.GroupsConstant)
	s.Metrics["groups_small"] = float64(stats.GroupsSmall)
	if rejected := stats.Rejected - b.counts.noBaseline; rejected > 0 {
		s.Metrics["rollouts_rejected"] = float64(rejected)
	}
	s.Metrics["seconds_update"] = time.Since(started).Seconds()
	return nil
}

// update hands the rows to the learner and keeps what it thought of their tokens.
func (t *training) update(ctx context.Context, s *Step, b *batch, rows []learner.Row, outcomes []algorithm.Outcome) error {
	var metrics learner.Metrics
	gaps := newGaps(b)
	err := t.run.Stage(ctx, stage.Update, func(ctx context.Context) (err error) {
		metrics, err = t.Learner.Update(ctx, learner.Batch{Rows: rows, Options: t.options(s.Number), Trained: gaps.add})
		return err
	})
	if err != nil {
		return fmt.Errorf("update: %w", err)
	}
	maps.Copy(s.Metrics, metrics)
	gaps.describe(s.Metrics)
	return t.keepGaps(ctx, s.Number, gaps, outcomes)
}

// options are what the learner is told in a step.
func (c *Config) options(step int) learner.Options {
	return learner.Options{
		Objective: learner.PolicyGradient, LearningRate: c.LearningRate.At(step, c.Steps),
		Epochs: c.Epochs, Minibatch: c.Minibatch, Loss: c.Method.Loss, Critic: c.Method.criticOptions(),
		MaxGradNorm: c.MaxGradNorm, Seed: c.Seed + int64(step),
	}
}
