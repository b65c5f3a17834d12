package pg_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/algorithm/pg"
	"agentlightning/learner"
	"agentlightning/rl"
	"agentlightning/semconv"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

func TestMain(m *testing.M) {
	if os.Getenv(childServer) != "" {
		os.Exit(trainAndBeKilled())
	}
	goleak.VerifyTestMain(m)
}

type bundle struct {
	store  store.Store
	policy *arms
	work   *workers
	env    algorithm.Env
}

func setup(t *testing.T) *bundle {
	t.Helper()
	st := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	policy := &arms{}
	tasks := []json.RawMessage{json.RawMessage("0"), json.RawMessage("1")}
	return &bundle{
		st, policy, &workers{store: st, policy: policy},
		algorithm.Env{Store: st, Train: tasks, Val: tasks, Logger: slog.New(slog.DiscardHandler)},
	}
}

func config(b *bundle, dir string) pg.Config {
	return pg.Config{
		Learner: b.policy, Steps: 12, Tasks: 4, GroupSize: 8, Seed: 7,
		LearningRate: learner.Schedule{Peak: 0.05}, Checkpoints: dir, ValidateEvery: 4,
	}
}

func train(t *testing.T, c pg.Config, env algorithm.Env) error {
	t.Helper()
	a, err := pg.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return a.Run(t.Context(), env)
}

// right is the probability of the right token, averaged over the two prompts.
func right(p *arms) float64 { return (math.Exp(p.logprob(0, 0)) + math.Exp(p.logprob(1, 1))) / 2 }

func TestLearns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.work.start(t)
	var steps []int
	c := config(b, t.TempDir())
	c.OnStep = func(s pg.Step) {
		steps = append(steps, s.Number)
		if s.Failed != 0 {
			t.Errorf("step %d: %d failed: %s", s.Number, s.Failed, s.LastFailure)
		}
		if want := s.Number%4 == 0; (s.Accuracy != nil) != want {
			t.Errorf("step %d: validated = %v, want %v", s.Number, s.Accuracy != nil, want)
		}
	}
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, steps); diff != "" {
		t.Errorf("reported steps (-want +got):\n%s", diff)
	}
	if got := right(b.policy); got < 0.8 {
		t.Errorf("probability of the right token = %.3f after training, want more than 0.8 (it began at 0.5)", got)
	}
	runs, err := b.store.Runs(t.Context(), 10)
	if err != nil || len(runs) != 1 || runs[0].Status != agl.RunSucceeded || runs[0].Algorithm != "pg" {
		t.Fatalf("Runs = %+v, %v, want one that succeeded", runs, err)
	}
	metrics, err := b.store.StepMetrics(t.Context(), runs[0].RunID, -1)
	if err != nil || len(metrics) != 13 {
		t.Fatalf("StepMetrics = %d steps, %v, want 13", len(metrics), err)
	}
	if got := metrics[1].Values["training/n_sample"] + 8*metrics[1].Values["training/n_zero_adv_groups"]; got != 32 {
		t.Errorf("rows and dropped rows of step 1 = %v, want 32", got)
	}
}

func TestShuffledRewardsTeachNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.work.start(t)
	c := config(b, "")
	c.ShuffleRewards = true
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	if got := right(b.policy); got > 0.65 {
		t.Errorf("probability of the right token = %.3f with shuffled rewards, want about 0.5", got)
	}
}

func TestRepeatsFromItsSeed(t *testing.T) {
	t.Parallel()
	var got [2][2][2]float64
	for i := range got {
		b := setup(t)
		b.work.start(t)
		if err := train(t, config(b, ""), b.env); err != nil {
			t.Fatal(err)
		}
		got[i] = b.policy.logits
	}
	if diff := cmp.Diff(got[0], got[1]); diff != "" {
		t.Errorf("weights of two runs with one seed differ:\n%s", diff)
	}
}

// TestResumes interrupts a run after its fifth step, and in the middle of the
// next one, and expects the same weights as without an interruption.
func TestResumes(t *testing.T) {
	t.Parallel()
	whole := setup(t)
	whole.work.start(t)
	if err := train(t, config(whole, ""), whole.env); err != nil {
		t.Fatal(err)
	}

	b := setup(t)
	b.work.start(t)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	c := config(b, dir)
	c.OnStep = func(s pg.Step) {
		if s.Number == 5 {
			c.OnProgress = nil
		}
	}
	c.OnProgress = func(step, finished, _ int) {
		if step == 6 && finished > 0 {
			cancel()
		}
	}
	a, err := pg.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(ctx, b.env); !errors.Is(err, context.Canceled) {
		t.Fatalf("Run = %v, want context.Canceled", err)
	}
	runs, err := b.store.Runs(t.Context(), 1)
	if err != nil || runs[0].Status != agl.RunInterrupted {
		t.Fatalf("run after the interruption = %+v, %v, want interrupted", runs, err)
	}
	asked := b.work.calls.Load()

	b.policy.logits = [2][2]float64{{9, 9}, {9, 9}} // the process lost its weights
	b.env.RunID = runs[0].RunID
	if err := train(t, config(b, dir), b.env); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(whole.policy.logits, b.policy.logits); diff != "" {
		t.Errorf("weights with and without an interruption differ:\n%s", diff)
	}
	if again := b.work.calls.Load() - asked; again > 7*32+2*2+32 {
		t.Errorf("%d rollouts were done after the interruption, want those of the open steps only", again)
	}
}

// TestFailedRolloutsAreLeftOut lets two members of each group crash.
func TestFailedRolloutsAreLeftOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.work.fails = func(member int) bool { return member < 2 }
	b.work.start(t)
	failed := 0
	c := config(b, "")
	c.Steps = 3
	c.OnStep = func(s pg.Step) {
		failed += s.Failed
		if s.Number > 0 && s.LastFailure != "the agent crashed" {
			t.Errorf("LastFailure = %q, want the reason of the attempt", s.LastFailure)
		}
	}
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	if failed != 3*4*2 {
		t.Errorf("failed = %d, want %d", failed, 3*4*2)
	}
	for _, batch := range b.policy.batches {
		sums := map[int32]float64{}
		for _, row := range batch.Rows {
			sums[row.IDs[0]] += float64(row.Advantages[1])
		}
		for task, sum := range sums {
			if math.Abs(sum) > 1e-4 {
				t.Errorf("advantages of task %d sum to %v, want 0 over the members that finished", task, sum)
			}
		}
	}
}

// TestCallsAreLeftOutByName gives every attempt a call that was cut off, and a
// reward on the way that cannot be read.
func TestCallsAreLeftOutByName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.work.beside = []agl.SpanCore{
		{Name: semconv.SpanModelCall, Attributes: agl.Attributes{{Key: semconv.CallProblem, Value: semconv.ProblemTruncated}}},
		{Name: semconv.SpanModelCall, Attributes: agl.Attributes{{Key: semconv.CallBackend, Value: "http://b"}}},
		{Name: semconv.SpanAnnotation, Attributes: agl.Attributes{{Key: semconv.RewardName(0), Value: "half"}}},
	}
	b.work.start(t)
	c := config(b, "")
	c.Steps = 1
	var last pg.Step
	c.OnStep = func(s pg.Step) { last = s }
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"calls": 96, "calls_left_out": 64, "calls_left_out_truncated": 32, "calls_left_out_token_ids_missing": 32,
	} {
		if got := last.Metrics[name]; got != want {
			t.Errorf("metric %s is %v, want %v", name, got, want)
		}
	}
	if rows := last.Metrics["rows"]; rows == 0 || len(b.policy.batches[0].Rows) != int(rows) {
		t.Errorf("%v rows were trained on, want those of the good calls", rows)
	}
}

// Rows name their rollout, so that a learner can weigh rollouts.
func TestRolloutMean(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.work.start(t)
	c := config(b, "")
	c.Steps, c.Method.Loss.Aggregation = 1, rl.RolloutMean
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	batch := b.policy.batches[0]
	if got := batch.Options.Loss; got.Aggregation != rl.RolloutMean {
		t.Errorf("loss of the update = %+v, want rollout_mean", got)
	}
	seen := map[string]bool{}
	for i, row := range batch.Rows {
		if row.Rollout == "" || seen[row.Rollout] {
			t.Errorf("row %d is of rollout %q, want one of its own", i, row.Rollout)
		}
		seen[row.Rollout] = true
	}
}

func TestStopsWhenNothingIsRewarded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.work.fails = func(int) bool { return true }
	b.work.start(t)
	err := train(t, config(b, ""), b.env)
	if !errors.Is(err, pg.ErrNoRewards) || !strings.Contains(fmt.Sprint(err), "the agent crashed") {
		t.Fatalf("Run = %v, want ErrNoRewards with the reason of the first failure", err)
	}
	runs, err := b.store.Runs(t.Context(), 1)
	if err != nil || runs[0].Status != agl.RunFailed || !strings.Contains(runs[0].Error, "the agent crashed") {
		t.Errorf("run = %+v, %v, want failed with the reason", runs, err)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	good := pg.Config{Learner: &arms{}, Steps: 1, LearningRate: learner.Schedule{Peak: 1}}
	tests := []struct {
		want   string
		change func(*pg.Config)
	}{
		{"Learner", func(c *pg.Config) { c.Learner = nil }},
		{"Steps: 0", func(c *pg.Config) { c.Steps = 0 }},
		{"GroupSize: 1", func(c *pg.Config) { c.GroupSize = 1 }},
		{"Tasks: -1", func(c *pg.Config) { c.Tasks = -1 }},
		{"LearningRate.Peak", func(c *pg.Config) { c.LearningRate.Peak = 0 }},
		{"LearningRate.Final", func(c *pg.Config) { c.LearningRate.Final = -1 }},
		{"LearningRate.Warmup", func(c *pg.Config) { c.LearningRate.Warmup = -1 }},
		{"Epochs: -1", func(c *pg.Config) { c.Epochs = -1 }},
		{"Minibatch: -1", func(c *pg.Config) { c.Minibatch = -1 }},
		{"MaxGradNorm", func(c *pg.Config) { c.MaxGradNorm = math.NaN() }},
		{"ValidateEvery", func(c *pg.Config) { c.ValidateEvery = -1 }},
		{"clip low 2", func(c *pg.Config) { c.Method.Loss.Clip.Low = 2 }},
		{"Advantages", func(c *pg.Config) { c.Method.Advantages.Estimator = "best" }},
		{"Reference: must be set", func(c *pg.Config) { c.Method.Loss.KL.Coefficient = 0.1 }},
	}
	if _, err := pg.New(good); err != nil {
		t.Fatalf("New = %v", err)
	}
	for _, tt := range tests {
		c := good
		tt.change(&c)
		if _, err := pg.New(c); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("New = %v, want an error that names %q", err, tt.want)
		}
	}
}

// Weights that were not kept cannot be gone on from.
func TestResumeNeedsCheckpoints(t *testing.T) {
	t.Parallel()
	for _, dirs := range [][2]string{{"", t.TempDir()}, {t.TempDir(), ""}} {
		b := setup(t)
		b.work.start(t)
		c := config(b, dirs[0])
		c.Steps = 1
		if err := train(t, c, b.env); err != nil {
			t.Fatal(err)
		}
		runs, err := b.store.Runs(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		b.env.RunID = runs[0].RunID
		c.Steps, c.Checkpoints = 2, dirs[1]
		if err := train(t, c, b.env); err == nil || !strings.Contains(err.Error(), "Checkpoints") || len(b.policy.batches) != 1 {
			t.Errorf("resuming with folders %q: %v after %d updates, want it refused after the first", dirs, err, len(b.policy.batches))
		}
	}
}
