package sft_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/algorithm/sft"
	"agentlightning/learner"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// sum is a learner whose weight is the sum of what it was shown, step by step.
type sum struct {
	learner.Learner
	seen  []int32
	after func(updates int)
}

func (s *sum) Update(ctx context.Context, b learner.Batch) (learner.Metrics, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.seen = append(s.seen, b.Rows[0].IDs[0])
	if s.after != nil {
		s.after(len(s.seen))
	}
	return learner.Metrics{"loss": 1}, b.Validate()
}

func (s *sum) Save(_ context.Context, dir string) error {
	text, err := json.Marshal(s.seen)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "seen"), text, 0o644)
}

func (s *sum) Load(_ context.Context, dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "seen"))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, &s.seen)
}

func config(l learner.Learner, dir string) sft.Config {
	return sft.Config{
		Learner: l, Steps: 6, LearningRate: learner.Schedule{Peak: 1}, Seed: 3,
		Checkpoints: dir, CheckpointEvery: 2,
		Rows: func(step int, r *rand.Rand) []learner.Row {
			return []learner.Row{{IDs: []int32{int32(1000*step) + r.Int32N(1000), 0}, Mask: []float32{0, 1}}}
		},
	}
}

func newEnv(t testing.TB) algorithm.Env {
	st := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	return algorithm.Env{Store: st, Logger: slog.New(slog.DiscardHandler)}
}

func run(ctx context.Context, t *testing.T, c sft.Config, env algorithm.Env) error {
	t.Helper()
	a, err := sft.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return a.Run(ctx, env)
}

func TestResumedRunSeesTheSameBatches(t *testing.T) {
	t.Parallel()
	whole := &sum{}
	if err := run(t.Context(), t, config(whole, t.TempDir()), newEnv(t)); err != nil {
		t.Fatal(err)
	}

	env, dir := newEnv(t), t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cut := &sum{after: func(n int) {
		if n == 5 {
			cancel()
		}
	}}
	if err := run(ctx, t, config(cut, dir), env); !errors.Is(err, context.Canceled) {
		t.Fatalf("Run = %v, want context.Canceled", err)
	}
	runs, err := env.Store.Runs(t.Context(), 1)
	if err != nil || runs[0].Status != agl.RunInterrupted {
		t.Fatalf("Runs = %+v, %v, want one that was interrupted", runs, err)
	}
	env.RunID = runs[0].RunID
	again := &sum{}
	if err := run(t.Context(), t, config(again, dir), env); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(again.seen), fmt.Sprint(whole.seen); got != want {
		t.Errorf("batches of the resumed run = %s, want %s", got, want)
	}
}

func TestResumeRefusesAnotherSeed(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	kept, err := env.Store.CreateRun(t.Context(), agl.Run{Algorithm: sft.Name, Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	env.RunID = kept.RunID
	if err := run(t.Context(), t, config(&sum{}, t.TempDir()), env); err == nil || !strings.Contains(err.Error(), "seed 4") {
		t.Errorf("Run = %v, want an error that names the run's seed", err)
	}
	env.RunID = "run-unknown"
	if err := run(t.Context(), t, config(&sum{}, t.TempDir()), env); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Run = %v, want store.ErrNotFound", err)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		want   string
		change func(*sft.Config)
	}{
		{"Learner", func(c *sft.Config) { c.Learner = nil }},
		{"Rows", func(c *sft.Config) { c.Rows = nil }},
		{"Steps: 0", func(c *sft.Config) { c.Steps = 0 }},
		{"MaxGradNorm", func(c *sft.Config) { c.MaxGradNorm = -1 }},
		{"CheckpointEvery: 3: there is no folder", func(c *sft.Config) { c.CheckpointEvery, c.Checkpoints = 3, "" }},
		{"CheckpointEvery: -1", func(c *sft.Config) { c.CheckpointEvery = -1 }},
		{"LearningRate.Warmup", func(c *sft.Config) { c.LearningRate.Warmup = -1 }},
		{"LearningRate.Peak", func(c *sft.Config) { c.LearningRate.Peak = -1 }},
	}
	for _, tt := range tests {
		c := config(&sum{}, t.TempDir())
		tt.change(&c)
		if _, err := sft.New(c); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("New = %v, want an error that names %q", err, tt.want)
		}
	}
}
