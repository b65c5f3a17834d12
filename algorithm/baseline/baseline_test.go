package baseline_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/algorithm"
	"agentlightning/algorithm/baseline"
	"agentlightning/execution"
	"agentlightning/runner"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

func tasks(n int) []json.RawMessage {
	out := make([]json.RawMessage, n)
	for i := range out {
		out[i] = json.RawMessage(strconv.Itoa(i))
	}
	return out
}

// run has the agent do what the baseline asks for, under a fake clock.
func run(t *testing.T, s store.Store, b *baseline.Baseline, a agent.Agent, env algorithm.Env) error {
	t.Helper()
	return execution.InProcess{}.Execute(t.Context(), execution.Work{
		Runners: 1,
		Runner: func(ctx context.Context, s store.Store, _ int) error {
			r, err := runner.New(runner.Config{Store: s, Agent: a})
			if err != nil {
				return err
			}
			return r.Run(ctx)
		},
		Algorithm: func(ctx context.Context, s store.Store) error {
			env.Store, env.Logger = s, slog.New(slog.DiscardHandler)
			return b.Run(ctx, env)
		},
	}, s)
}

func TestEveryTaskOnceAnEpoch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := engine.New(memory.New(), engine.Config{})
		defer s.Close()
		longest := 0
		a := agent.New(func(ctx context.Context, n float64, _ *agent.Call) (float64, error) {
			page, err := s.QueryRollouts(ctx, store.RolloutQuery{StatusIn: []agl.RolloutStatus{agl.RolloutQueuing}})
			longest = max(longest, page.Total)
			time.Sleep(time.Second)
			if n == 3 {
				return 0, errors.New("three is unlucky")
			}
			return n, err
		})
		seen := 0
		b := baseline.New(baseline.Config{Epochs: 2, MaxQueue: 2, OnResult: func(baseline.Result) { seen++ }})
		prompt := agl.NamedResources{{Name: "p", Resource: agl.PromptTemplate{Template: "x", Engine: "f-string"}}}
		if err := run(t, s, b, a, algorithm.Env{Train: tasks(8), Val: tasks(2), InitialResources: prompt}); err != nil {
			t.Fatal(err)
		}
		report := b.Report()
		if len(report) != 20 || seen != 20 {
			t.Fatalf("%d results, %d seen, want 20", len(report), seen)
		}
		for i, r := range report {
			epoch, index, mode := i/10, i%10, agl.ModeTrain
			if index >= 8 {
				index, mode = index-8, agl.ModeVal
			}
			if r.Epoch != epoch || r.Index != index || r.Mode != mode || r.Rollout.Mode != mode || string(r.Rollout.Input) != strconv.Itoa(index) {
				t.Errorf("result %d: epoch %d, %s task %d (%s)", i, r.Epoch, r.Mode, r.Index, r.Rollout.Input)
			}
			if index == 3 {
				if r.Reward != nil || r.Failure != "three is unlucky" {
					t.Errorf("result %d: %v, %q", i, r.Reward, r.Failure)
				}
			} else if r.Reward == nil || *r.Reward != float64(index) {
				t.Errorf("result %d: reward %v, %s", i, r.Reward, r.Failure)
			}
			if *r.Rollout.ResourcesID != baseline.ResourcesID || r.Elapsed < time.Second {
				t.Errorf("result %d: resources %s, elapsed %v", i, *r.Rollout.ResourcesID, r.Elapsed)
			}
		}
		if longest > 3 { // MaxQueue, and the one that is added when there is room
			t.Errorf("%d rollouts waited in the queue, want at most 3", longest)
		}
	})
}

func TestWithoutTasks(t *testing.T) {
	t.Parallel()
	s := engine.New(memory.New(), engine.Config{})
	defer s.Close()
	err := baseline.New(baseline.Config{}).Run(t.Context(), algorithm.Env{Store: s, Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "there are no tasks") {
		t.Errorf("Run() = %v", err)
	}
}

func TestStopsWithItsContext(t *testing.T) {
	t.Parallel()
	s := engine.New(memory.New(), engine.Config{})
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := baseline.New(baseline.Config{}).Run(ctx, algorithm.Env{Store: s, Train: tasks(20), Logger: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run() without runners = %v, want the end of the context", err)
	}
}
