package trainer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/algorithm"
	"agentlightning/execution"
	"agentlightning/runner"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/trainer"
)

func numbers(n int) []json.RawMessage {
	out := make([]json.RawMessage, n)
	for i := range out {
		out[i] = json.RawMessage(strconv.Itoa(i))
	}
	return out
}

func requests(tasks []json.RawMessage) []store.EnqueueRequest {
	out := make([]store.EnqueueRequest, len(tasks))
	for i := range tasks {
		out[i].Input = tasks[i]
	}
	return out
}

// number is an agent whose reward is its task.
var number = agent.New(func(_ context.Context, n float64, _ *agent.Call) (float64, error) { return n, nil })

// sumOf is an algorithm that stores the sum of the rewards of its tasks.
func sumOf(sum *float64) algorithm.Func {
	return func(ctx context.Context, env algorithm.Env) error {
		ids, err := algorithm.Ask(ctx, env.Store, requests(env.Train))
		if err != nil {
			return err
		}
		outcomes, err := algorithm.Collect(ctx, env.Store, ids, algorithm.Collecting{})
		if err != nil {
			return err
		}
		for _, o := range outcomes {
			if o.Reward == nil {
				return fmt.Errorf("rollout %s: %s", o.Rollout.RolloutID, o.Failure)
			}
			*sum += *o.Reward
		}
		return nil
	}
}

func newStore(t *testing.T) store.Store {
	t.Helper()
	s := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() { s.Close() })
	return s
}

func TestFit(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	sum, limit := 0.0, 90.0
	err := trainer.Fit(t.Context(), trainer.Config{
		Agent: number, Algorithm: sumOf(&sum), Store: s, Runners: 3, Concurrency: 2,
		RolloutConfig: &agl.RolloutConfig{MaxAttempts: 3, TimeoutSeconds: &limit},
	}, numbers(50), nil)
	if err != nil || sum != 49*50/2 {
		t.Errorf("Fit() = %v with sum %v", err, sum)
	}
	page, err := s.QueryRollouts(t.Context(), store.RolloutQuery{})
	if err != nil {
		t.Fatal(err)
	}
	workers := map[string]bool{}
	for _, r := range page.Items {
		if r.Config.MaxAttempts != 3 || r.Config.TimeoutSeconds == nil || *r.Config.TimeoutSeconds != limit {
			t.Fatalf("rollout has %+v, want the trainer's configuration", r.Config)
		}
		workers[*r.Attempt.WorkerID] = true
	}
	for id := range workers {
		if !slices.Contains([]string{"Worker-0", "Worker-1", "Worker-2"}, id) {
			t.Errorf("a worker is called %s", id)
		}
	}
}

func TestAlgorithmThatFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	err := trainer.Fit(t.Context(), trainer.Config{
		Agent: number, Store: newStore(t), Runners: 2,
		Algorithm: algorithm.Func(func(context.Context, algorithm.Env) error { return broken }),
	}, nil, nil)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "algorithm: broken") {
		t.Errorf("Fit() = %v", err)
	}
}

func TestWithoutAlgorithm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := engine.New(memory.New(), engine.Config{})
		defer s.Close()
		// The last task adds one more while it runs, and one fails once.
		var extra atomic.Bool
		a := agent.New(func(ctx context.Context, n float64, c *agent.Call) (float64, error) {
			time.Sleep(time.Second)
			if n == 4 && extra.CompareAndSwap(false, true) {
				if _, err := s.EnqueueRollouts(ctx, requests(numbers(1))); err != nil {
					return 0, err
				}
			}
			if n == 2 && c.Rollout.Attempt.SequenceID == 1 {
				return 0, errors.New("once")
			}
			if _, err := c.Prompt(""); err != nil {
				return 0, err
			}
			return n, nil
		})
		reqs := requests(numbers(5))
		for i := range reqs {
			reqs[i].Config = &agl.RolloutConfig{MaxAttempts: 2, RetryCondition: []agl.AttemptStatus{agl.AttemptFailed}}
		}
		if _, err := s.EnqueueRollouts(t.Context(), reqs); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		err := trainer.Fit(t.Context(), trainer.Config{
			Agent: a, Store: s, Runners: 1,
			InitialResources: agl.NamedResources{{Name: "p", Resource: agl.PromptTemplate{Template: "x", Engine: "f-string"}}},
		}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 7*time.Second {
			t.Errorf("took %v, want 7s for 7 attempts", took)
		}
		page, err := s.QueryRollouts(t.Context(), store.RolloutQuery{StatusIn: []agl.RolloutStatus{agl.RolloutSucceeded}})
		if err != nil || page.Total != 6 {
			t.Errorf("%d rollouts succeeded, %v, want 6", page.Total, err)
		}
	})
}

func TestWithoutAlgorithmAndWork(t *testing.T) {
	t.Parallel()
	began := time.Now()
	if err := trainer.Fit(t.Context(), trainer.Config{Agent: number, Store: newStore(t)}, nil, nil); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v to see that there is nothing to do", took)
	}
}

func TestInterruptedFit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := engine.New(memory.New(), engine.Config{})
		defer s.Close()
		a := agent.New(func(ctx context.Context, _ float64, _ *agent.Call) (float64, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		sum := 0.0
		err := trainer.Fit(ctx, trainer.Config{
			Agent: a, Store: s, Algorithm: sumOf(&sum), Runners: 4,
			RolloutConfig: &agl.RolloutConfig{MaxAttempts: 2, RetryCondition: []agl.AttemptStatus{agl.AttemptUnresponsive}},
		}, numbers(8), nil)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Fit() = %v, want the cause of the stop", err)
		}
		if late := time.Since(began) - time.Minute; late > 5*time.Second {
			t.Errorf("Fit() returned %v after the stop, want at most 5s", late)
		}
		page, err := s.QueryRollouts(t.Context(), store.RolloutQuery{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Items {
			if !r.Status.Queueing() {
				t.Errorf("rollout is %s after the stop, want it to wait for another runner", r.Status)
			}
		}
	})
}

type proxy struct {
	started, stopped atomic.Int32
	fail             error
}

func (p *proxy) Start(context.Context, store.Store) (agl.NamedResources, error) {
	p.started.Add(1)
	return agl.NamedResources{
		{Name: "policy", Resource: agl.ProxyLLM{Endpoint: "http://127.0.0.1:1/v1", Model: "m"}},
		{Name: "taken", Resource: agl.ProxyLLM{Endpoint: "http://127.0.0.1:1/v1", Model: "m"}},
	}, p.fail
}

func (p *proxy) Stop(context.Context) error { p.stopped.Add(1); return nil }

func TestProxy(t *testing.T) {
	t.Parallel()
	p := &proxy{}
	var got []string
	c := trainer.Config{
		Agent: number, Store: newStore(t), Proxy: p,
		InitialResources: agl.NamedResources{{Name: "taken", Resource: agl.PromptTemplate{Template: "x", Engine: "f-string"}}},
		Algorithm: algorithm.Func(func(_ context.Context, env algorithm.Env) error {
			for _, r := range env.InitialResources {
				got = append(got, r.Name+" "+r.Resource.Kind())
			}
			return nil
		}),
	}
	if err := trainer.Fit(t.Context(), c, nil, nil); err != nil {
		t.Fatal(err)
	}
	if want := []string{"taken prompt_template", "policy proxy_llm"}; !slices.Equal(got, want) {
		t.Errorf("initial resources %q, want %q", got, want)
	}
	if p.started.Load() != 1 || p.stopped.Load() != 1 {
		t.Errorf("the proxy was started %d and stopped %d times", p.started.Load(), p.stopped.Load())
	}
	c.Proxy = &proxy{fail: errors.New("port in use")}
	if err := trainer.Fit(t.Context(), c, nil, nil); err == nil || !strings.Contains(err.Error(), "start the model proxy: port in use") {
		t.Errorf("Fit() = %v", err)
	}
}

func TestDevReportsEachTask(t *testing.T) {
	t.Parallel()
	a := agent.New(func(_ context.Context, n int, _ *agent.Call) (float64, error) {
		if n == 1 {
			panic("one")
		}
		return float64(n), nil
	})
	results, err := trainer.Dev(t.Context(), trainer.Config{Agent: a, Store: newStore(t), Runners: 2}, numbers(3), numbers(1))
	if err != nil || len(results) != 4 {
		t.Fatalf("Dev() = %d results, %v", len(results), err)
	}
	if r := results[1]; r.Reward != nil || r.Failure != "panic: one" {
		t.Errorf("result 1: %v, %q", r.Reward, r.Failure)
	}
	if r := results[2]; r.Reward == nil || *r.Reward != 2 || r.Mode != agl.ModeTrain {
		t.Errorf("result 2: %+v", r)
	}
	if r := results[3]; r.Mode != agl.ModeVal || r.Index != 0 {
		t.Errorf("result 3: %s task %d", r.Mode, r.Index)
	}
}

func TestConfigErrors(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	done := algorithm.Func(func(context.Context, algorithm.Env) error { return nil })
	tests := []struct {
		name  string
		c     trainer.Config
		train int
		want  string
	}{
		{"no agent", trainer.Config{Store: s, Algorithm: done}, 0, "Config.Agent is nil"},
		{"no store", trainer.Config{Agent: number, Algorithm: done}, 0, "Config.Store is nil"},
		{"role", trainer.Config{Agent: number, Store: s, Role: "boss"}, 0, `Config.Role "boss"`},
		{"algorithm without one", trainer.Config{Store: s, Role: execution.RoleAlgorithm}, 0, "Config.Algorithm is nil"},
		{"tasks without an algorithm", trainer.Config{Agent: number, Store: s}, 1, "there are tasks but Config.Algorithm is nil"},
		{"runners", trainer.Config{Agent: number, Store: s, Runners: -1}, 0, "Config.Runners"},
		{"there and here", trainer.Config{Agent: number, Store: s, ServerURL: "http://x", Listen: ":1"}, 0, "exclude each other"},
		{"twice", trainer.Config{Agent: number, Store: s, Runner: runner.Config{WorkerID: "w"}}, 0, "fields of Config itself"},
		{"strategy and role", trainer.Config{Agent: number, Store: s, Strategy: execution.InProcess{}, Role: execution.RoleBoth}, 0, "cannot be combined"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if err := trainer.Fit(t.Context(), tt.c, numbers(tt.train), nil); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Fit() = %v, want %q", err, tt.want)
			}
		})
	}
	if _, err := trainer.Dev(t.Context(), trainer.Config{Agent: number, Store: s, Algorithm: done}, numbers(1), nil); err == nil || !strings.Contains(err.Error(), "Dev does not learn") {
		t.Errorf("Dev() = %v", err)
	}
}

// TestRolesFromTheEnvironment sets variables and so does not run beside others.
func TestRolesFromTheEnvironment(t *testing.T) {
	t.Setenv(execution.EnvRole, "nobody")
	if err := trainer.Fit(t.Context(), trainer.Config{Agent: number, Store: newStore(t)}, nil, nil); err == nil || !strings.Contains(err.Error(), "AGL_CURRENT_ROLE=nobody") {
		t.Errorf("Fit() = %v", err)
	}
	t.Setenv(execution.EnvRole, "algorithm")
	t.Setenv(execution.EnvServerHost, "127.0.0.1")
	t.Setenv(execution.EnvServerPort, "0")
	var out lockedBuffer
	err := trainer.Fit(t.Context(), trainer.Config{
		Store: newStore(t), Logger: slog.New(slog.NewTextHandler(&out, nil)),
		Algorithm: algorithm.Func(func(context.Context, algorithm.Env) error { return nil }),
	}, nil, nil)
	if err != nil || !strings.Contains(out.String(), "serving the store") {
		t.Errorf("Fit() = %v; log:\n%s", err, out.String())
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// What agents, runners and the algorithm say is in the log of the run, that of the
// time before it too, although the program shows nothing.
func TestTheRunKeepsWhatIsSaid(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	speaks := agent.New(func(ctx context.Context, n float64, c *agent.Call) (float64, error) {
		c.Logger.InfoContext(ctx, "agent speaks", "n", n)
		return n, nil
	})
	var runID string
	algo := algorithm.Func(func(ctx context.Context, env algorithm.Env) error {
		env.Logger.InfoContext(ctx, "before the run")
		run, err := algorithm.Begin(ctx, env, "own", struct{}{}, 1)
		if err != nil {
			return err
		}
		runID = run.RunID
		sum := 0.0
		return run.Finish(ctx, errors.Join(sumOf(&sum)(ctx, env), errors.New("it broke")))
	})
	if err := trainer.Fit(t.Context(), trainer.Config{Agent: speaks, Algorithm: algo, Store: s}, numbers(2), nil); err == nil {
		t.Error("Fit of an algorithm that failed = nil")
	}
	log, err := s.RunLog(t.Context(), store.LogQuery{RunID: runID})
	if err != nil || len(log.Lines) == 0 {
		t.Fatalf("log = %+v, %v", log, err)
	}
	said := map[string]int{}
	for _, l := range log.Lines {
		said[l.Message]++
	}
	if said["before the run"] != 1 || said["algorithm started"] != 1 || said["agent speaks"] != 2 {
		t.Errorf("messages = %v, want one of the algorithm, one of the run and two of the agent", said)
	}
	if last := log.Lines[len(log.Lines)-1]; last.Message != "run failed" || !strings.Contains(string(last.Attributes), "it broke") {
		t.Errorf("last line = %+v, want why it failed", last)
	}
}
