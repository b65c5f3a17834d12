package scale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	agl "agentlightning"
	"agentlightning/semconv"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/sqlite"
)

// What a run is made of, as far as there are enough rollouts.
const (
	members      = 10  // of a group
	groupsOfStep = 25  // each step of a run
	stepsOfRun   = 100 // after which the next run begins
	perRollout   = time.Second / 2
	// mostQueued is how many rollouts are left in the queue at the end.
	mostQueued = 10_000
)

// filler writes the history of some runs into a store whose clock it turns.
type filler struct {
	*engine.Store
	clock atomic.Int64 // Unix nanoseconds
	rand  *rand.Rand
	run   string
	tasks int
}

// fill makes a database with so many rollouts, most of them with five spans, and
// some attempts that are long. It ends now.
func fill(t *testing.T, path string, rollouts int, long []int) {
	t.Helper()
	backend, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Sync: sqlite.SyncNormal})
	if err != nil {
		t.Fatal(err)
	}
	f := &filler{rand: rand.New(rand.NewPCG(1, 2)), tasks: max(20, rollouts/200)}
	f.clock.Store(time.Now().Add(-time.Duration(rollouts) * perRollout).UnixNano())
	f.Store = engine.New(backend, engine.Config{
		Now:                func() time.Time { return time.Unix(0, f.clock.Load()) },
		HealthScanInterval: time.Hour,
	})
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	began, told := time.Now(), 0
	queued := min(mostQueued, rollouts/10)
	for made, step := 0, 0; made < rollouts-queued-len(long); step++ {
		n := min(members*groupsOfStep, rollouts-queued-len(long)-made)
		if err := f.step(t.Context(), step%stepsOfRun, n); err != nil {
			t.Fatalf("after %d rollouts: %v", made, err)
		}
		made += n
		if part := made * 20 / rollouts; part > told {
			told = part
			t.Logf("%d of %d rollouts after %v", made, rollouts, time.Since(began).Round(time.Second))
		}
	}
	for _, n := range long {
		if err := f.long(t.Context(), n); err != nil {
			t.Fatalf("an attempt of %d spans: %v", n, err)
		}
	}
	for rest := queued; rest > 0; rest -= min(rest, 1000) {
		if err := f.enqueue(t.Context(), stepsOfRun, min(rest, 1000)); err != nil {
			t.Fatal(err)
		}
	}
}

func (f *filler) pass(d time.Duration) { f.clock.Add(int64(d)) }

// step plays one step of a run: resources, its rollouts with their retries,
// metrics, now and then a checkpoint.
func (f *filler) step(ctx context.Context, step, n int) error {
	if step == 0 {
		if err := f.nextRun(ctx); err != nil {
			return err
		}
	}
	prompt := fmt.Sprintf("Version %d. Answer with a number. %s", step, strings.Repeat("Think before you speak. ", 8))
	if _, err := f.AddResources(ctx, agl.NamedResources{
		{Name: "main_llm", Resource: agl.LLM{Endpoint: "http://127.0.0.1:9000/v1", Model: f.model()}},
		{Name: "prompt", Resource: agl.PromptTemplate{Template: prompt, Engine: "f-string"}},
	}); err != nil {
		return err
	}
	if err := f.enqueue(ctx, step, n); err != nil {
		return err
	}
	for { // those that fail come back
		claimed, err := f.claim(ctx)
		if err != nil {
			return err
		}
		if len(claimed) == 0 {
			break
		}
		if err := f.attempt(ctx, claimed, step); err != nil {
			return err
		}
	}
	m := agl.StepMetrics{Step: step, Values: map[string]float64{
		"reward": f.skill(step) + 0.05*f.rand.NormFloat64(), "reward_std": 0.4, "actor/grad_norm": f.rand.ExpFloat64(),
		"actor/ppo_kl": 0.001 * f.rand.ExpFloat64(), "training/loss": f.rand.NormFloat64(), "timing_s/step": 100, "perf/total_num_tokens": 50_000,
	}}
	if step%10 == 0 {
		m.Values["val/reward"] = f.skill(step)
		if err := f.PutCheckpoint(ctx, f.run, agl.Checkpoint{Step: step, Path: fmt.Sprintf("checkpoints/%s/%d", f.run, step), Score: new(f.skill(step))}); err != nil {
			return err
		}
	}
	return f.AddStepMetrics(ctx, f.run, m)
}

func (f *filler) nextRun(ctx context.Context) error {
	if f.run != "" {
		if _, err := f.UpdateRun(ctx, f.run, store.RunUpdate{Status: store.To(agl.RunSucceeded)}); err != nil {
			return err
		}
	}
	run, err := f.CreateRun(ctx, agl.Run{Algorithm: "pg", Seed: 1, Config: json.RawMessage(`{"group_size":10,"lr":0.0003}`)})
	f.run = run.RunID
	return err
}

// skill is the mean reward of a step.
func (f *filler) skill(step int) float64 { return 0.2 + 0.6*float64(step)/stepsOfRun }

func (f *filler) model() string {
	return []string{"small", "large", "judge-v2", "policy-7b"}[f.rand.IntN(4)]
}

func (f *filler) enqueue(ctx context.Context, step, n int) error {
	reqs := make([]store.EnqueueRequest, n)
	for i := range reqs {
		group, task := i/members, f.rand.IntN(f.tasks)
		reqs[i] = store.EnqueueRequest{
			Mode:   agl.ModeTrain,
			Config: &agl.RolloutConfig{MaxAttempts: 2, RetryCondition: []agl.AttemptStatus{agl.AttemptFailed}},
			Input: fmt.Appendf(nil, `{"id":"task-%06d","question":"On bus %d Emma shares %d cards among %d friends. How many cards does each friend get? %s"}`,
				task, task%97, task, task%9+2, strings.Repeat("Count only those who have a ticket. ", 2)),
			Metadata: fmt.Appendf(nil, `{"agl.run_id":%q,"agl.step":%d,"agl.group":"%d","agl.member":%d,"dataset":"buses-%d","owner":"night"}`,
				f.run, step, group, i%members, task%5),
		}
		if group == groupsOfStep-1 {
			reqs[i].Mode = agl.ModeVal
		}
	}
	_, err := f.EnqueueRollouts(ctx, reqs)
	return err
}

// claim has each of some workers take a few rollouts.
func (f *filler) claim(ctx context.Context) (out []agl.AttemptedRollout, err error) {
	for w := range 10 {
		worker := fmt.Sprintf("night-%02d", w)
		f.pass(100 * time.Millisecond)
		got, err := f.DequeueRollouts(ctx, store.DequeueRequest{WorkerID: &worker, Limit: 25})
		if err != nil {
			return nil, err
		}
		out = append(out, got...)
	}
	return out, nil
}

// attempt adds the spans of some attempts, all at once, and ends them.
func (f *filler) attempt(ctx context.Context, claimed []agl.AttemptedRollout, step int) error {
	var spans []agl.Span
	ends := make([]agl.AttemptStatus, len(claimed))
	for i := range claimed {
		f.pass(perRollout)
		ends[i] = agl.AttemptSucceeded
		if f.rand.IntN(20) == 0 {
			ends[i] = agl.AttemptFailed
		}
		spans = append(spans, f.spans(&claimed[i], step, ends[i])...)
	}
	if _, err := f.AddSpans(ctx, spans); err != nil {
		return err
	}
	var all errgroup.Group // so that a commit serves many
	for i := range claimed {
		all.Go(func() error {
			_, err := f.UpdateAttempt(ctx, claimed[i].RolloutID, claimed[i].Attempt.AttemptID, store.AttemptUpdate{Status: store.To(ends[i])})
			return err
		})
	}
	return all.Wait()
}

// spans of an attempt: two calls of a model with a tool after each, and a reward
// when it did not fail.
func (f *filler) spans(r *agl.AttemptedRollout, step int, end agl.AttemptStatus) []agl.Span {
	out := []agl.Span{f.call(r, 1), f.tool(r, 2), f.call(r, 3), f.tool(r, 4)}
	if end != agl.AttemptSucceeded {
		return out
	}
	var reward float64
	if f.rand.Float64() < f.skill(step) {
		reward = 1 - float64(f.rand.IntN(4))/10
	}
	return append(out, f.span(r, 5, semconv.SpanAnnotation, agl.Attributes{
		{Key: semconv.RewardName(0), Value: semconv.PrimaryReward},
		{Key: semconv.RewardValue(0), Value: reward},
	}))
}

func (f *filler) span(r *agl.AttemptedRollout, i int64, name string, attributes agl.Attributes) agl.Span {
	now := agl.Seconds(time.Unix(0, f.clock.Load())) + float64(i)/100
	trace, id := fmt.Sprintf("%016x%016x", f.rand.Uint64(), f.rand.Uint64()), fmt.Sprintf("%016x", f.rand.Uint64())
	return agl.Span{
		RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, SequenceID: i, TraceID: trace, SpanID: id, Name: name,
		Status: agl.TraceStatus{StatusCode: agl.StatusOK}, Attributes: attributes, StartTime: &now, EndTime: new(now + 0.008),
		Context:  &agl.SpanContext{TraceID: trace, SpanID: id},
		Resource: agl.OtelResource{Attributes: agl.Attributes{{Key: "service.name", Value: "night"}}},
	}
}

// call is a call of a model of about 1.5 kB; one in a hundred lacks the ids that
// training needs.
func (f *filler) call(r *agl.AttemptedRollout, i int64) agl.Span {
	ids := func(n int) []int64 {
		out := make([]int64, n)
		for k := range out {
			out[k] = f.rand.Int64N(30_000)
		}
		return out
	}
	logprobs := make([]float64, 8)
	for k := range logprobs {
		logprobs[k] = -float64(f.rand.IntN(2_000_000)) / 1e6
	}
	model := f.model()
	a := agl.Attributes{
		{Key: "gen_ai.operation.name", Value: "chat"},
		{Key: "gen_ai.request.model", Value: model},
		{Key: "gen_ai.request.temperature", Value: 1.0},
		{Key: "gen_ai.prompt.0.role", Value: "user"},
		{Key: "gen_ai.prompt.0.content", Value: string(r.Input)},
		{Key: "gen_ai.response.model", Value: model},
		{Key: "gen_ai.completion.0.role", Value: "assistant"},
		{Key: "gen_ai.completion.0.content", Value: fmt.Sprintf("Let me see: %d divided by %d.", f.rand.IntN(1000), f.rand.IntN(9)+1)},
		{Key: "gen_ai.completion.0.finish_reason", Value: "stop"},
		{Key: semconv.GenAIInputTokens, Value: int64(40)},
		{Key: semconv.GenAIOutputTokens, Value: int64(8)},
	}
	if f.rand.IntN(100) == 0 {
		a.Set(semconv.CallProblem, "no_token_ids")
	} else {
		a.Set(semconv.PromptTokenIDs, ids(40))
		a.Set(semconv.ResponseTokenIDs, ids(8))
		a.Set("response_logprobs", logprobs)
	}
	return f.span(r, i, semconv.SpanModelCall, a)
}

func (f *filler) tool(r *agl.AttemptedRollout, i int64) agl.Span {
	return f.span(r, i, "tool.calc", agl.Attributes{
		{Key: "tool.name", Value: "calc"},
		{Key: "tool.input", Value: fmt.Sprintf("%d/%d", f.rand.IntN(1000), f.rand.IntN(9)+1)},
		{Key: "tool.output", Value: strings.Repeat("a line that the tool has printed, ", 3)},
	})
}

// long adds a rollout with an attempt of n spans, half of them calls.
func (f *filler) long(ctx context.Context, n int) error {
	r, err := f.StartRollout(ctx, store.StartRequest{EnqueueRequest: store.EnqueueRequest{
		Input:    fmt.Appendf(nil, `{"id":"long-%d","question":"A task of %d spans."}`, n, n),
		Metadata: json.RawMessage(`{"dataset":"long"}`),
	}})
	if err != nil {
		return err
	}
	for from := 1; from <= n; from += 1000 {
		spans := make([]agl.Span, 0, 1000)
		for i := from; i < from+1000 && i <= n; i++ {
			f.pass(10 * time.Millisecond)
			if i%2 == 0 {
				spans = append(spans, f.tool(&r, int64(i)))
			} else {
				spans = append(spans, f.call(&r, int64(i)))
			}
		}
		if _, err := f.AddSpans(ctx, spans); err != nil {
			return err
		}
	}
	_, err = f.UpdateAttempt(ctx, r.RolloutID, r.Attempt.AttemptID, store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)})
	return err
}

// database returns the file that is measured, and makes it when it is not there.
func database(t *testing.T, given string, rollouts int, long []int) string {
	t.Helper()
	path := given
	if path == "" {
		path = filepath.Join(t.TempDir(), "agl.db")
	}
	if _, err := os.Stat(path); err == nil {
		return path
	}
	began := time.Now()
	fill(t, path+".part", rollouts, long)
	if err := errors.Join(os.Rename(path+".part", path), os.Remove(path+".part.lock")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("made %s, %d MB, in %v", path, info.Size()/1_000_000, time.Since(began).Round(time.Second))
	return path
}
