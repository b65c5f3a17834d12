package pg_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/algorithm/pg"
	"agentlightning/learner"
	"agentlightning/rl"
	"agentlightning/semconv"
)

// scoring is a policy that tells what it thinks of tokens.
type scoring struct{ *arms }

func (s scoring) Score(_ context.Context, rows []learner.Row) ([][]float32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([][]float32, len(rows))
	for i, row := range rows {
		out[i] = make([]float32, len(row.IDs))
		for t := 1; t < len(row.IDs); t++ {
			if row.Mask[t] != 0 {
				out[i][t] = float32(s.logprob(row.IDs[t-1], row.IDs[t]))
			}
		}
	}
	return out, nil
}

// recorded runs agents with an untrained policy and returns the run that asked
// for them.
func recorded(t *testing.T, b *bundle) string {
	t.Helper()
	b.work.start(t)
	c := config(b, "")
	c.Steps, c.ValidateEvery, c.LearningRate = 6, 0, learner.Schedule{Peak: 1e-9}
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	runs, err := b.store.Runs(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return runs[0].RunID
}

// invert adds a reward set to every rollout of a run: what was right is wrong.
func invert(t *testing.T, b *bundle, run, set string) {
	t.Helper()
	ctx := t.Context()
	found, err := algorithm.Stored{RunID: run}.Find(ctx, b.store)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range found {
		outcomes, err := algorithm.Stored{}.Outcomes(ctx, b.store, []string{r.ID})
		if err != nil {
			t.Fatal(err)
		}
		o := outcomes[0]
		core := agl.SpanCore{Name: semconv.SpanRescore, Attributes: agl.Attributes{
			{Key: semconv.RescoreSet, Value: set},
			{Key: semconv.RescoreReward + ".0.name", Value: semconv.PrimaryReward},
			{Key: semconv.RescoreReward + ".0.value", Value: 1 - *o.Reward},
		}}
		if _, err := b.store.AddSpans(ctx, []agl.Span{core.Span(r.ID, o.Rollout.Attempt.AttemptID, 99, 1)}); err != nil {
			t.Fatal(err)
		}
	}
}

func stored(policy learner.Learner, run, dir string) pg.Config {
	return pg.Config{
		Learner: policy, Steps: 40, Tasks: 4, Seed: 3, LearningRate: learner.Schedule{Peak: 0.05}, Checkpoints: dir,
		Stored: &algorithm.Stored{RunID: run, Mode: agl.ModeTrain},
	}
}

// From stored rollouts alone the policy learns what their rewards say, and the
// opposite from a set that says the opposite; no agent runs.
func TestLearnsFromStoredRolloutsAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	run := recorded(t, b)
	invert(t, b, run, "inverted")
	before := b.work.calls.Load()
	env := algorithm.Env{Store: b.store, Logger: b.env.Logger}
	for set, learns := range map[string]bool{"": true, "inverted": false} {
		policy := scoring{&arms{}}
		c := stored(policy, run, "")
		c.Stored.RewardSet = set
		var last pg.Step
		c.OnStep = func(s pg.Step) { last = s }
		if err := train(t, c, env); err != nil {
			t.Fatal(err)
		}
		if p := right(policy.arms); learns != (p > 0.8) || !learns != (p < 0.2) {
			t.Errorf("set %q: probability of the right token = %.3f, it began at 0.5", set, p)
		}
		if m := last.Metrics; m["training/n_rollouts_w_reward"] != 32 || m["training/n_rollouts_w_trace"] != 32 || m["critic/score/max"] != 1 || m["critic/score/min"] != 0 ||
			m["critic/rewards/max"] != 1 ||
			m["response_length/clip_ratio"] != 0 || !(m["timing_per_token_ms/gen"] > 0) || !(m["perf/time_per_step"] > 0) || m["response_length/mean"] != 1 || m["prompt_length/max"] != 1 || !(m["critic/advantages/max"] > 0) || !(m["critic/advantages/min"] < 0) || m["lr"] <= 0 {
			t.Errorf("metrics %v", m)
		}
		// 40 steps of 4 groups go over the 24 groups almost seven times.
		if epoch := last.Metrics["epoch"]; math.Abs(epoch-160.0/24) > 1e-9 {
			t.Errorf("epoch = %v", epoch)
		}
		for _, row := range policy.batches[len(policy.batches)-1].Rows {
			at := slices.Index(row.Mask, 1)
			if len(row.Correction) == 0 || row.Correction[at] <= 0 || row.Correction[at] > 2 {
				t.Fatalf("a token is not weighed by how likely it is now: %+v", row)
			}
		}
	}
	if after := b.work.calls.Load(); after != before {
		t.Errorf("%d rollouts were run", after-before)
	}
	runs, err := b.store.Runs(t.Context(), 1)
	if err != nil || !strings.Contains(string(runs[0].Config), `"stored":{"run_id":"`+run) || !strings.Contains(string(runs[0].Config), `"correction":{"weights":"token"}`) {
		t.Errorf("kept configuration %s, %v", runs[0].Config, err)
	}
}

// A run on stored rollouts that is interrupted goes on with the same weights, and
// only when they are those that it began with.
func TestStoredResumes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	run := recorded(t, b)
	env := algorithm.Env{Store: b.store, Logger: b.env.Logger}
	whole := scoring{&arms{}}
	if err := train(t, stored(whole, run, t.TempDir()), env); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	c := stored(scoring{&arms{}}, run, dir)
	c.OnStep = func(s pg.Step) {
		if s.Number == 17 {
			stop()
		}
	}
	a, err := pg.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(ctx, env); !errors.Is(err, context.Canceled) {
		t.Fatalf("Run = %v, want it to be interrupted", err)
	}
	runs, err := b.store.Runs(t.Context(), 1)
	if err != nil || runs[0].Status != agl.RunInterrupted {
		t.Fatalf("Runs = %+v, %v", runs, err)
	}
	env.RunID = runs[0].RunID
	again := scoring{&arms{}}
	if err := train(t, stored(again, run, dir), env); err != nil {
		t.Fatal(err)
	}
	if again.logits != whole.logits {
		t.Errorf("weights of the resumed run %v, of the whole one %v", again.logits, whole.logits)
	}
	other := stored(scoring{&arms{}}, run, dir)
	other.Steps, other.Stored.Mode = 41, agl.ModeVal
	if err := train(t, other, env); err == nil || !strings.Contains(err.Error(), "are not those with which run") && !strings.Contains(err.Error(), "no rollout") {
		t.Errorf("with another selection: %v", err)
	}
}

func TestStoredRefusesWhatItWouldIgnore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for want, spoil := range map[string]func(*pg.Config){
		"GroupSize":        func(c *pg.Config) { c.GroupSize = 4 },
		"Follow":           func(c *pg.Config) { c.Follow = &pg.Follow{} },
		"Async":            func(c *pg.Config) { c.Async = pg.Async{Groups: 9} },
		"Refill":           func(c *pg.Config) { c.Method.Refill = 1 },
		"remax":            func(c *pg.Config) { c.Method.Advantages.Estimator = rl.ReMax },
		"Stored.RewardSet": func(c *pg.Config) { c.Stored.RewardSet = "a b" },
		"cannot score":     func(c *pg.Config) { c.Learner = b.policy },
	} {
		c := stored(scoring{&arms{}}, "run-1", "")
		spoil(&c)
		if _, err := pg.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New with a bad %s = %v", want, err)
		}
	}
	if err := train(t, stored(scoring{&arms{}}, "run-1", ""), b.env); err == nil || !strings.Contains(err.Error(), "2 training tasks") {
		t.Errorf("with tasks: %v", err)
	}
	b.env.Train, b.env.Val = nil, nil
	if err := train(t, stored(scoring{&arms{}}, "run-1", ""), b.env); err == nil || !strings.Contains(err.Error(), "no rollout that has ended") {
		t.Errorf("with nothing stored: %v", err)
	}
}
