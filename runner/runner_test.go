package runner_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/emit"
	"agentlightning/runner"
	"agentlightning/semconv"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

type task struct {
	N int `json:"n"`
}

// bench is a store with a runner on it, inside a synctest bubble.
type bench struct {
	*testing.T
	store store.Store
	log   *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// bubble runs f with a fresh store under a fake clock.
func bubble(t *testing.T, f func(b *bench)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := engine.New(memory.New(), engine.Config{HealthScanInterval: 10 * time.Second})
		defer s.Close()
		f(&bench{T: t, store: s, log: &lockedBuffer{}})
	})
}

func (b *bench) enqueue(config *agl.RolloutConfig, tasks ...int) []string {
	b.Helper()
	reqs := make([]store.EnqueueRequest, len(tasks))
	for i, n := range tasks {
		reqs[i] = store.EnqueueRequest{Input: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)), Mode: agl.ModeTrain, Config: config}
	}
	rollouts, err := b.store.EnqueueRollouts(b.Context(), reqs)
	if err != nil {
		b.Fatal(err)
	}
	ids := make([]string, len(rollouts))
	for i := range rollouts {
		ids[i] = rollouts[i].RolloutID
	}
	return ids
}

// start runs a runner; the returned function stops it and waits.
func (b *bench) start(cfg runner.Config) (stop func()) {
	b.Helper()
	if cfg.Store == nil {
		cfg.Store = b.store
	}
	cfg.Logger = slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r, err := runner.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.Errorf("Run() = %v, want nil after a stop", err)
		}
	})
}

// finish waits for rollouts and returns them with their latest attempts.
func (b *bench) finish(ids ...string) []agl.AttemptedRollout {
	b.Helper()
	done, err := b.store.WaitForRollouts(b.Context(), ids, time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	if len(done) != len(ids) {
		b.Fatalf("%d of %d rollouts finished; log:\n%s", len(done), len(ids), b.log)
	}
	out := make([]agl.AttemptedRollout, len(ids))
	for i, id := range ids {
		if out[i], err = b.store.Rollout(b.Context(), id); err != nil {
			b.Fatal(err)
		}
	}
	return out
}

func (b *bench) attempts(id string) []agl.Attempt {
	b.Helper()
	page, err := b.store.QueryAttempts(b.Context(), store.AttemptQuery{RolloutID: id, Paging: store.Paging{SortBy: "sequence_id"}})
	if err != nil {
		b.Fatal(err)
	}
	return page.Items
}

func (b *bench) spans(id string) []agl.Span {
	b.Helper()
	page, err := b.store.QuerySpans(b.Context(), store.SpanQuery{RolloutID: id, Paging: store.Paging{SortBy: "sequence_id"}})
	if err != nil {
		b.Fatal(err)
	}
	return page.Items
}

// failure reads why an attempt failed from its metadata.
func failure(tb testing.TB, a agl.Attempt) (reason, text, stack string) {
	tb.Helper()
	var m struct {
		Reason string `json:"reason"`
		Error  string `json:"error"`
		Stack  string `json:"stack"`
	}
	if len(a.Metadata) > 0 {
		if err := json.Unmarshal(a.Metadata, &m); err != nil {
			tb.Fatal(err)
		}
	}
	return m.Reason, m.Error, m.Stack
}

func rewardAgent(v float64) agent.Agent {
	return agent.New(func(context.Context, task, *agent.Call) (float64, error) { return v, nil })
}

func TestRewardIsWritten(t *testing.T) {
	bubble(t, func(b *bench) {
		id := b.enqueue(nil, 1)[0]
		defer b.start(runner.Config{Agent: rewardAgent(0.75), WorkerID: "Worker-3"})()
		r := b.finish(id)[0]
		if r.Status != agl.RolloutSucceeded || *r.Attempt.WorkerID != "Worker-3" {
			b.Errorf("rollout ended as %s by %s", r.Status, *r.Attempt.WorkerID)
		}
		spans := b.spans(id)
		if len(spans) != 1 || spans[0].Name != semconv.SpanAnnotation || spans[0].SequenceID != 1 {
			b.Fatalf("spans = %+v, want one annotation with sequence id 1", spans)
		}
		if got, err := agl.FinalReward(spans); err != nil || *got != 0.75 {
			b.Errorf("FinalReward() = %v, %v, want 0.75", got, err)
		}
	})
}

func TestAttemptsThatFail(t *testing.T) {
	tests := []struct {
		name   string
		agent  agent.Agent
		input  string
		reason runner.Reason
		text   string // part of it
		spans  int
	}{
		{"error", agent.New(func(context.Context, task, *agent.Call) (float64, error) {
			return 1, errors.New("no luck")
		}), `{"n":1}`, runner.ReasonAgent, "no luck", 0},
		{"panic", agent.New(func(context.Context, task, *agent.Call) (float64, error) {
			panic("broken")
		}), `{"n":1}`, runner.ReasonPanic, "panic: broken", 1},
		{"index", agent.New(func(_ context.Context, t task, _ *agent.Call) (float64, error) {
			return []float64{0}[t.N], nil
		}), `{"n":1}`, runner.ReasonPanic, "index out of range [1] with length 1", 1},
		{"task", rewardAgent(1), `{"n":"one"}`, runner.ReasonTask, `field "n": a JSON string does not fit int`, 0},
		{"not a task", rewardAgent(1), `[1]`, runner.ReasonTask, "the task itself: a JSON array does not fit", 0},
		{"no model", agent.WithLLM(func(context.Context, task, agl.LLM) (float64, error) {
			return 1, nil
		}), `{"n":1}`, runner.ReasonResources, "the agent needs a model; the rollout's resources hold nothing", 0},
		{"NaN", rewardAgent(math.NaN()), `{"n":1}`, runner.ReasonResult, "the reward NaN", 0},
		{"span of another attempt", agent.New(func(context.Context, task, *agent.Call) ([]agl.Span, error) {
			return []agl.Span{{RolloutID: "ro-x", AttemptID: "at-x", SequenceID: 1, TraceID: "t", SpanID: "s", Name: "foreign"}}, nil
		}), `{"n":1}`, runner.ReasonResult, `span "foreign"`, 0},
		{"goexit", agent.New(func(context.Context, task, *agent.Call) (float64, error) {
			runtime.Goexit()
			return 1, nil
		}), `{"n":1}`, runner.ReasonAgent, "runtime.Goexit", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				rollouts, err := b.store.EnqueueRollouts(b.Context(), []store.EnqueueRequest{{Input: json.RawMessage(tt.input)}})
				if err != nil {
					b.Fatal(err)
				}
				id := rollouts[0].RolloutID
				defer b.start(runner.Config{Agent: tt.agent})()
				r := b.finish(id)[0]
				reason, text, stack := failure(b, *r.Attempt)
				if r.Status != agl.RolloutFailed || r.Attempt.Status != agl.AttemptFailed {
					b.Errorf("rollout %s, attempt %s, want both failed", r.Status, r.Attempt.Status)
				}
				if runner.Reason(reason) != tt.reason || !strings.Contains(text, tt.text) {
					b.Errorf("reason %q, error %q, want %q and %q", reason, text, tt.reason, tt.text)
				}
				if (tt.reason == runner.ReasonPanic) != strings.Contains(stack, "runner_test.go") {
					b.Errorf("stack = %q", stack)
				}
				if spans := b.spans(id); len(spans) != tt.spans {
					b.Errorf("%d spans, want %d: %+v", len(spans), tt.spans, spans)
				}
			})
		})
	}
}

func TestHooksAreCalledInOrderAndAreHarmless(t *testing.T) {
	bubble(t, func(b *bench) {
		var mu sync.Mutex
		var calls []string
		note := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, fmt.Sprintf(format, args...))
		}
		hook := func(name string, fail func() error) agent.Hook {
			at := func(where string) func(context.Context, *agent.Call) error {
				return func(context.Context, *agent.Call) error { note("%s %s", name, where); return fail() }
			}
			return agent.Hook{
				OnRolloutStart: at("rollout start"), OnTraceStart: at("trace start"), OnTraceEnd: at("trace end"),
				OnRolloutEnd: func(_ context.Context, c *agent.Call, o agent.Outcome) error {
					note("%s rollout end: %d spans, err %v, attempt %s", name, len(o.Spans), o.Err, c.Rollout.Attempt.Status)
					return fail()
				},
			}
		}
		work := agent.New(func(ctx context.Context, t task, _ *agent.Call) (float64, error) {
			note("agent")
			if t.N == 2 {
				return 0, errors.New("second task")
			}
			return 1, emit.Message(ctx, "working")
		})
		ids := b.enqueue(nil, 1, 2)
		defer b.start(runner.Config{Agent: work, Hooks: []agent.Hook{
			hook("a", func() error { return errors.New("hook error") }),
			{},
			hook("b", func() error { panic("hook panic") }),
		}})()
		rollouts := b.finish(ids...)
		if rollouts[0].Status != agl.RolloutSucceeded || rollouts[1].Status != agl.RolloutFailed {
			b.Errorf("rollouts ended as %s and %s", rollouts[0].Status, rollouts[1].Status)
		}
		want := []string{
			"a rollout start", "b rollout start", "a trace start", "b trace start", "agent", "a trace end", "b trace end",
			"a rollout end: 2 spans, err <nil>, attempt preparing", "b rollout end: 2 spans, err <nil>, attempt preparing",
			"a rollout start", "b rollout start", "a trace start", "b trace start", "agent",
			"a rollout end: 0 spans, err second task, attempt preparing", "b rollout end: 0 spans, err second task, attempt preparing",
		}
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(calls, want) {
			b.Errorf("calls:\n%s\nwant:\n%s", strings.Join(calls, "\n"), strings.Join(want, "\n"))
		}
	})
}

func TestRewardEmittedAndReturnedCountsOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		work := agent.New(func(ctx context.Context, _ task, _ *agent.Call) (float64, error) {
			return 0.9, emit.Reward(ctx, 0.2)
		})
		ids := b.enqueue(nil, 1, 2, 3)
		defer b.start(runner.Config{Agent: work})()
		b.finish(ids...)
		for _, id := range ids {
			spans := b.spans(id)
			if len(spans) != 2 {
				b.Fatalf("%d spans, want the emitted and the returned reward", len(spans))
			}
			if got, err := agl.FinalReward(spans); err != nil || *got != 0.9 {
				b.Errorf("FinalReward() = %v, %v, want the returned 0.9", *got, err)
			}
		}
		if n := strings.Count(b.log.String(), "both emitted and returned a reward"); n != 1 {
			b.Errorf("%d warnings, want 1; log:\n%s", n, b.log)
		}
	})
}

func TestTimeLimitEndsTheAgentAndCausesARetry(t *testing.T) {
	bubble(t, func(b *bench) {
		limit := 5.0
		var causes atomic.Value
		work := agent.New(func(ctx context.Context, _ task, c *agent.Call) (float64, error) {
			if c.Rollout.Attempt.SequenceID > 1 {
				return 1, nil
			}
			<-ctx.Done()
			causes.Store(context.Cause(ctx))
			return 0, ctx.Err()
		})
		began := time.Now()
		id := b.enqueue(&agl.RolloutConfig{
			TimeoutSeconds: &limit, MaxAttempts: 2,
			RetryCondition: []agl.AttemptStatus{agl.AttemptTimeout},
		}, 1)[0]
		defer b.start(runner.Config{Agent: work})()
		r := b.finish(id)[0]
		if r.Status != agl.RolloutSucceeded || r.Attempt.SequenceID != 2 {
			b.Errorf("rollout %s after %d attempts, want success with the second", r.Status, r.Attempt.SequenceID)
		}
		if took := time.Since(began); took != 5*time.Second {
			b.Errorf("took %v, want the 5s of the first attempt", took)
		}
		first := b.attempts(id)[0]
		reason, text, _ := failure(b, first)
		if first.Status != agl.AttemptTimeout || reason != "timeout" || !strings.Contains(text, "time limit of 5s") {
			b.Errorf("first attempt: %s, %s, %q", first.Status, reason, text)
		}
		if cause, _ := causes.Load().(error); !errors.Is(cause, runner.ErrTimeout) {
			b.Errorf("cause = %v, want ErrTimeout", cause)
		}
	})
}

func TestCancelledRolloutEndsTheAgent(t *testing.T) {
	bubble(t, func(b *bench) {
		started, ended := make(chan struct{}), make(chan error, 1)
		work := agent.New(func(ctx context.Context, _ task, _ *agent.Call) (float64, error) {
			close(started)
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return 1, nil // a result that comes too late must not revive the rollout
		})
		id := b.enqueue(nil, 1)[0]
		stop := b.start(runner.Config{Agent: work})
		<-started
		began := time.Now()
		if _, err := b.store.UpdateRollout(b.Context(), id, store.RolloutUpdate{Status: store.To(agl.RolloutCancelled)}); err != nil {
			b.Fatal(err)
		}
		if cause := <-ended; !errors.Is(cause, runner.ErrCancelled) {
			b.Errorf("cause = %v, want ErrCancelled", cause)
		}
		if took := time.Since(began); took > time.Second {
			b.Errorf("the agent ended after %v, want within a second", took)
		}
		stop()
		r, err := b.store.Rollout(b.Context(), id)
		if err != nil || r.Status != agl.RolloutCancelled {
			b.Errorf("rollout is %s, %v, want cancelled", r.Status, err)
		}
	})
}

func TestSupersededAttemptEnds(t *testing.T) {
	bubble(t, func(b *bench) {
		started, ended := make(chan struct{}), make(chan error, 1)
		work := agent.New(func(ctx context.Context, _ task, _ *agent.Call) (float64, error) {
			close(started)
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return 0, ctx.Err()
		})
		id := b.enqueue(nil, 1)[0]
		stop := b.start(runner.Config{Agent: work})
		<-started
		if _, err := b.store.StartAttempt(b.Context(), id, nil); err != nil {
			b.Fatal(err)
		}
		if cause := <-ended; !errors.Is(cause, runner.ErrSuperseded) {
			b.Errorf("cause = %v, want ErrSuperseded", cause)
		}
		stop()
		if r, err := b.store.Rollout(b.Context(), id); err != nil || r.Status != agl.RolloutPreparing {
			b.Errorf("rollout is %s, %v, want the second attempt's preparing", r.Status, err)
		}
	})
}

func TestFailuresAreRetriedUpToTheLimit(t *testing.T) {
	bubble(t, func(b *bench) {
		var calls atomic.Int32
		work := agent.New(func(context.Context, task, *agent.Call) (float64, error) {
			calls.Add(1)
			panic("always")
		})
		id := b.enqueue(&agl.RolloutConfig{MaxAttempts: 3, RetryCondition: []agl.AttemptStatus{agl.AttemptFailed}}, 1)[0]
		defer b.start(runner.Config{Agent: work})()
		r := b.finish(id)[0]
		if r.Status != agl.RolloutFailed || calls.Load() != 3 || len(b.attempts(id)) != 3 {
			b.Errorf("rollout %s after %d calls and %d attempts, want failed after 3", r.Status, calls.Load(), len(b.attempts(id)))
		}
	})
}

func TestOnePanicLeavesTheOthersAlone(t *testing.T) {
	bubble(t, func(b *bench) {
		work := agent.New(func(_ context.Context, t task, _ *agent.Call) (float64, error) {
			if t.N == 13 {
				panic("unlucky")
			}
			return float64(t.N), nil
		})
		tasks := make([]int, 64)
		for i := range tasks {
			tasks[i] = i
		}
		ids := b.enqueue(nil, tasks...)
		defer b.start(runner.Config{Agent: work, Concurrency: 8})()
		good := 0
		for i, r := range b.finish(ids...) {
			if r.Status == agl.RolloutSucceeded {
				good++
			} else if i != 13 {
				b.Errorf("task %d is %s", i, r.Status)
			}
		}
		if good != 63 {
			b.Errorf("%d succeeded, want 63", good)
		}
	})
}

func TestTwoRunnersShareTheQueue(t *testing.T) {
	bubble(t, func(b *bench) {
		work := agent.New(func(ctx context.Context, t task, _ *agent.Call) (float64, error) {
			select {
			case <-time.After(time.Second):
				return float64(t.N), nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		})
		ids := b.enqueue(nil, 0, 1, 2, 3, 4, 5)
		began := time.Now()
		defer b.start(runner.Config{Agent: work, WorkerID: "Worker-0"})()
		defer b.start(runner.Config{Agent: work, WorkerID: "Worker-1"})()
		workers := map[string]int{}
		for i, r := range b.finish(ids...) {
			workers[*r.Attempt.WorkerID]++
			if got, _ := agl.FinalReward(b.spans(ids[i])); got == nil || *got != float64(i) || len(b.attempts(ids[i])) != 1 {
				b.Errorf("task %d: reward %v", i, got)
			}
		}
		if workers["Worker-0"] != 3 || workers["Worker-1"] != 3 {
			b.Errorf("work was shared as %v", workers)
		}
		if took := time.Since(began); took != 3*time.Second {
			b.Errorf("took %v, want 3s", took)
		}
	})
}

func TestStopLetsTheAgentFinishWithinTheGracePeriod(t *testing.T) {
	bubble(t, func(b *bench) {
		started := make(chan struct{}, 1)
		work := agent.New(func(ctx context.Context, _ task, _ *agent.Call) (float64, error) {
			started <- struct{}{}
			select {
			case <-time.After(1500 * time.Millisecond):
				return 1, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		})
		ids := b.enqueue(nil, 1, 2)
		stop := b.start(runner.Config{Agent: work})
		<-started
		stop()
		r, err := b.store.Rollout(b.Context(), ids[0])
		if err != nil || r.Status != agl.RolloutSucceeded {
			b.Errorf("the running rollout is %s, %v, want succeeded", r.Status, err)
		}
		if r, err := b.store.Rollout(b.Context(), ids[1]); err != nil || r.Status != agl.RolloutQueuing {
			b.Errorf("the waiting rollout is %s, %v, want queuing", r.Status, err)
		}
	})
}

func TestStopHandsAnUnfinishedRolloutToAnotherRunner(t *testing.T) {
	bubble(t, func(b *bench) {
		started := make(chan struct{}, 1)
		work := agent.New(func(ctx context.Context, _ task, c *agent.Call) (float64, error) {
			if c.Rollout.Attempt.SequenceID > 1 {
				return 1, nil
			}
			started <- struct{}{}
			<-ctx.Done()
			return 0, context.Cause(ctx)
		})
		id := b.enqueue(&agl.RolloutConfig{MaxAttempts: 2, RetryCondition: []agl.AttemptStatus{agl.AttemptUnresponsive}}, 1)[0]
		stop := b.start(runner.Config{Agent: work, WorkerID: "Worker-0"})
		<-started
		stop()
		first := b.attempts(id)[0]
		if reason, text, _ := failure(b, first); first.Status != agl.AttemptUnresponsive || reason != "stopped" {
			b.Errorf("first attempt is %s: %s %q", first.Status, reason, text)
		}
		defer b.start(runner.Config{Agent: work, WorkerID: "Worker-1"})()
		if r := b.finish(id)[0]; r.Status != agl.RolloutSucceeded || *r.Attempt.WorkerID != "Worker-1" {
			b.Errorf("rollout %s by %s, want success by the other runner", r.Status, *r.Attempt.WorkerID)
		}
	})
}

func TestAgentThatIgnoresItsContextIsLeftBehind(t *testing.T) {
	bubble(t, func(b *bench) {
		release := make(chan struct{})
		defer close(release)
		limit := 1.0
		work := agent.New(func(_ context.Context, t task, _ *agent.Call) (float64, error) {
			if t.N == 1 {
				<-release
			}
			return 1, nil
		})
		ids := b.enqueue(&agl.RolloutConfig{TimeoutSeconds: &limit, MaxAttempts: 1}, 1, 2)
		defer b.start(runner.Config{Agent: work})()
		rollouts := b.finish(ids...)
		if rollouts[0].Attempt.Status != agl.AttemptTimeout || rollouts[1].Status != agl.RolloutSucceeded {
			b.Errorf("attempts ended as %s and %s", rollouts[0].Attempt.Status, rollouts[1].Attempt.Status)
		}
		if !strings.Contains(b.log.String(), "left behind") {
			b.Errorf("nothing was logged:\n%s", b.log)
		}
	})
}

func TestHeartbeat(t *testing.T) {
	bubble(t, func(b *bench) {
		stop := b.start(runner.Config{Agent: rewardAgent(1), WorkerID: "Worker-7"})
		synctest.Wait()
		w, err := b.store.Worker(b.Context(), "Worker-7")
		if err != nil {
			b.Fatal(err)
		}
		var stats map[string]any
		if err := json.Unmarshal(w.HeartbeatStats, &stats); err != nil {
			b.Fatal(err)
		}
		for _, key := range []string{"timestamp", "host", "os", "cpu_name", "cpu_threads"} {
			if stats[key] == nil {
				b.Errorf("heartbeat has no %s: %s", key, w.HeartbeatStats)
			}
		}
		first := *w.LastHeartbeatTime
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		if w, err = b.store.Worker(b.Context(), "Worker-7"); err != nil || *w.LastHeartbeatTime-first != 10 {
			b.Errorf("second heartbeat after %v s, %v, want 10", *w.LastHeartbeatTime-first, err)
		}
		stop()
	})
}

func TestIdleRunnerStartsAtOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		stop := b.start(runner.Config{Agent: rewardAgent(1)})
		time.Sleep(17 * time.Second)
		began := time.Now()
		b.finish(b.enqueue(nil, 1)...)
		if took := time.Since(began); took > 20*time.Millisecond {
			b.Errorf("took %v, want at most 20ms", took)
		}
		stop()
	})
}

func TestMaxRollouts(t *testing.T) {
	bubble(t, func(b *bench) {
		b.enqueue(nil, 1, 2, 3, 4, 5)
		r, err := runner.New(runner.Config{Store: b.store, Agent: rewardAgent(1), MaxRollouts: 3, Concurrency: 2})
		if err != nil {
			b.Fatal(err)
		}
		if err := r.Run(b.Context()); err != nil {
			b.Fatal(err)
		}
		page, err := b.store.QueryRollouts(b.Context(), store.RolloutQuery{StatusIn: []agl.RolloutStatus{agl.RolloutSucceeded}})
		if err != nil || page.Total != 3 {
			b.Errorf("%d rollouts were done, %v, want 3", page.Total, err)
		}
	})
}

func TestConfigErrors(t *testing.T) {
	t.Parallel()
	if _, err := runner.New(runner.Config{Agent: rewardAgent(1)}); err == nil || !strings.Contains(err.Error(), "Config.Store") {
		t.Errorf("New() without a store = %v", err)
	}
	s := engine.New(memory.New(), engine.Config{})
	defer s.Close()
	if _, err := runner.New(runner.Config{Store: s}); err == nil || !strings.Contains(err.Error(), "Config.Agent") {
		t.Errorf("New() without an agent = %v", err)
	}
}
