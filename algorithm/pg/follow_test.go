package pg_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/algorithm/pg"
	"agentlightning/gateway"
	"agentlightning/internal/daemon"
	"agentlightning/learner"
	"agentlightning/learner/native"
	"agentlightning/llmproxy"
	"agentlightning/rl"
	"agentlightning/semconv"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/storehttp"
)

// production is agents in use that nobody asked for anything: they start
// rollouts by themselves and report what came of them.
type production struct {
	store  store.Store
	policy *served
	dice   *rand.Rand
}

// report reports one rollout. kind says what is wrong with it.
func (p *production) report(ctx context.Context, kind string) (string, error) {
	task := p.dice.Int32N(2)
	req := store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: json.RawMessage([]string{"0", "1"}[task]), Mode: agl.ModeTrain}}
	switch kind {
	case "validation":
		req.Mode = agl.ModeVal
	case "of a run":
		req.Metadata = json.RawMessage(`{"agl.run_id":"run-other"}`)
	}
	r, err := p.store.StartRollout(ctx, req)
	if err != nil {
		return "", err
	}
	token, logprob := p.policy.sample(task, p.dice.Int64N(1<<40))
	reward := 0.0
	if token == task {
		reward = 1
	}
	ok := agl.TraceStatus{StatusCode: agl.StatusOK}
	call := agl.SpanCore{Name: semconv.SpanModelCall, Status: ok, Attributes: agl.Attributes{
		{Key: semconv.PromptTokenIDs, Value: []int64{int64(task)}},
		{Key: semconv.ResponseTokenIDs, Value: []int64{int64(token)}},
		{Key: semconv.ResponseLogprobs, Value: []float64{logprob}},
	}}
	if kind == "no calls" {
		call.Attributes = agl.Attributes{{Key: semconv.CallProblem, Value: semconv.ProblemTruncated}}
	}
	final := agl.SpanCore{Name: semconv.SpanAnnotation, Status: ok, Attributes: agl.Attributes{
		{Key: semconv.RewardName(0), Value: semconv.PrimaryReward}, {Key: semconv.RewardValue(0), Value: reward},
	}}
	now := agl.Seconds(time.Now())
	spans := []agl.Span{call.Span(r.RolloutID, r.Attempt.AttemptID, 1, now)}
	if kind != "unrewarded" {
		spans = append(spans, final.Span(r.RolloutID, r.Attempt.AttemptID, 2, now))
	}
	if _, err := p.store.AddSpans(ctx, spans); err != nil {
		return "", err
	}
	status := agl.AttemptSucceeded
	if kind == "failed" {
		status = agl.AttemptFailed
	}
	_, err = p.store.UpdateAttempt(ctx, r.RolloutID, r.Attempt.AttemptID, store.AttemptUpdate{Status: store.To(status)})
	return r.RolloutID, err
}

// start reports good rollouts until the test ends, as fast as they are trained on.
func (p *production) start(t *testing.T, ask <-chan struct{}) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-ask:
			case <-ctx.Done():
				return
			}
			for range 40 {
				if _, err := p.report(ctx, ""); err != nil && ctx.Err() == nil {
					t.Errorf("report: %v", err)
				}
			}
		}
	})
	t.Cleanup(func() { stop(); wg.Wait() })
}

func followed(dir string, s *served, policy *arms) pg.Config {
	method := pg.Method{Advantages: rl.AdvantageConfig{Estimator: rl.ReinforcePP}}
	return pg.Config{
		Learner: policy, Method: method, Steps: 10, LearningRate: learner.Schedule{Peak: 0.1}, Checkpoints: dir, Seed: 7,
		Follow: &pg.Follow{Rollouts: 32}, PublishEvery: 2, Stall: 20 * time.Second,
		Publish: func(context.Context, int) (agl.NamedResources, error) {
			s.policy.Store(policy)
			return agl.NamedResources{{Name: "main_llm", Resource: agl.ProxyLLM{Endpoint: "http://x", Model: "m"}}}, nil
		},
	}
}

// Rollouts that others report teach the policy, and what it learnt is published.
func TestFollow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.env.Train, b.env.Val = nil, nil
	s := &served{}
	s.policy.Store(b.policy)
	p := &production{b.store, s, rand.New(rand.NewPCG(1, 2))}
	ask := make(chan struct{}, 1)
	ask <- struct{}{}
	c := followed(t.TempDir(), s, b.policy)
	c.OnStep = func(pg.Step) { ask <- struct{}{} }
	p.start(t, ask)
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	if got := right(b.policy); got < 0.8 {
		t.Errorf("probability of the right token = %.3f after training, want more than 0.8", got)
	}
	versions, err := b.store.QueryResources(t.Context(), store.ResourcesQuery{})
	if err != nil || len(versions.Items) != 1+5 {
		t.Errorf("%d versions of resources, %v, want one at the beginning and one every 2 of 10 steps", len(versions.Items), err)
	}
	if asked := b.work.calls.Load(); asked != 0 {
		t.Errorf("%d rollouts were asked for, want none", asked)
	}
}

// What cannot be trained on is left out, counted by reason, and what is none of
// its business is not even counted.
func TestFollowLeavesOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.env.Train, b.env.Val = nil, nil
	s := &served{}
	s.policy.Store(b.policy)
	p := &production{b.store, s, rand.New(rand.NewPCG(1, 2))}
	trainedOn := &remembering{arms: b.policy}
	c := followed(t.TempDir(), s, b.policy)
	c.Learner, c.Steps, c.PublishEvery, c.Follow.MaxStaleness = trainedOn, 3, 1, 1
	report := func(n int, kind string) (ids []string) {
		for range n {
			id, err := p.report(t.Context(), kind)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		return ids
	}
	early := report(3, "") // before the run
	var steps []pg.Step
	var open agl.AttemptedRollout
	var never []string
	c.OnStep = func(step pg.Step) {
		steps = append(steps, step)
		switch step.Number {
		case 0:
			var err error // started under the first weights, and finished too late for them
			open, err = b.store.StartRollout(t.Context(), store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: json.RawMessage("0")}})
			if err != nil {
				t.Fatal(err)
			}
			never = append(never, open.RolloutID)
			for kind, n := range map[string]int{"failed": 2, "unrewarded": 3, "no calls": 4, "validation": 5, "of a run": 6} {
				never = append(never, report(n, kind)...)
			}
			report(32, "")
		case 1, 2:
			report(32, "")
		}
	}
	if err := train(t, c, b.env); err != nil {
		t.Fatal(err)
	}
	sum := map[string]float64{}
	for _, step := range steps {
		for name, v := range step.Metrics {
			if strings.HasPrefix(name, "left_out_") {
				sum[name] += v
			}
		}
	}
	for name, want := range map[string]float64{"left_out_failed": 2, "left_out_unrewarded": 3, "left_out_no_calls": 4, "left_out_stale": 1} {
		if sum[name] != want {
			t.Errorf("%s = %v, want %v", name, sum[name], want)
		}
		delete(sum, name)
	}
	if len(sum) != 0 {
		t.Errorf("left out for other reasons: %v", sum)
	}
	for _, id := range append(early, never...) {
		if trainedOn.rollouts[id] != 0 {
			t.Errorf("rollout %s was trained on", id)
		}
	}
	if len(trainedOn.rollouts) != 3*32 {
		t.Errorf("%d rollouts were trained on, want 96", len(trainedOn.rollouts))
	}
}

// remembering counts how often each rollout was trained on.
type remembering struct {
	*arms
	rollouts map[string]int
}

func (r *remembering) Update(ctx context.Context, b learner.Batch) (learner.Metrics, error) {
	if r.rollouts == nil {
		r.rollouts = map[string]int{}
	}
	for _, row := range b.Rows {
		r.rollouts[row.Rollout]++
	}
	return r.arms.Update(ctx, b)
}

// A reward may come after the rollout has finished.
func TestFollowWaitsForRewards(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.env.Train, b.env.Val = nil, nil
	s := &served{}
	s.policy.Store(b.policy)
	p := &production{b.store, s, rand.New(rand.NewPCG(1, 2))}
	c := followed(t.TempDir(), s, b.policy)
	c.Steps, c.Follow.Rollouts, c.Follow.RewardWait = 1, 4, 10*time.Second
	var late []string
	c.OnStep = func(step pg.Step) {
		if step.Number != 0 {
			return
		}
		for range 4 {
			id, err := p.report(t.Context(), "unrewarded")
			if err != nil {
				t.Fatal(err)
			}
			late = append(late, id)
		}
	}
	looked := make(chan struct{})
	first := sync.OnceFunc(func() { close(looked) })
	env := b.env
	env.Store = &looking{b.store, first}
	var wg sync.WaitGroup
	wg.Go(func() {
		<-looked
		for i, id := range late {
			final := agl.SpanCore{Name: semconv.SpanAnnotation, Status: agl.TraceStatus{StatusCode: agl.StatusOK}, Attributes: agl.Attributes{
				{Key: semconv.RewardName(0), Value: semconv.PrimaryReward}, {Key: semconv.RewardValue(0), Value: float64(i % 2)},
			}}
			r, err := b.store.Rollout(context.WithoutCancel(t.Context()), id)
			if err == nil {
				_, err = b.store.AddSpans(context.WithoutCancel(t.Context()), []agl.Span{final.Span(id, r.Attempt.AttemptID, 5, agl.Seconds(time.Now()))})
			}
			if err != nil {
				t.Errorf("late reward: %v", err)
			}
		}
	})
	if err := train(t, c, env); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if n := len(b.policy.batches); n != 1 || len(b.policy.batches[0].Rows) != 4 {
		t.Errorf("%d updates, want one with the 4 rollouts whose rewards came late", n)
	}
}

// looking tells when somebody has read spans.
type looking struct {
	store.Store
	looked func()
}

func (l *looking) QuerySpans(ctx context.Context, q store.SpanQuery) (store.Page[agl.Span], error) {
	page, err := l.Store.QuerySpans(ctx, q)
	l.looked()
	return page, err
}

// Killed at every write, a run that follows trains on each rollout once.
func TestFollowKilled(t *testing.T) {
	t.Parallel()
	for at := 1; ; at++ {
		for _, done := range []bool{false, true} {
			b := setup(t)
			b.env.Train, b.env.Val = nil, nil
			s := &served{}
			s.policy.Store(&arms{})
			p := &production{b.store, s, rand.New(rand.NewPCG(1, 2))}
			dir := t.TempDir()
			reported := 0
			live := func(at int) (*arms, error) {
				policy := &arms{}
				c := followed(dir, s, policy)
				c.Steps, c.Follow.Rollouts = 3, 8
				c.OnStep = func(pg.Step) {
					for ; reported < 24; reported++ {
						if _, err := p.report(t.Context(), ""); err != nil {
							t.Fatal(err)
						}
					}
				}
				runs, err := b.store.Runs(t.Context(), 1)
				if err != nil {
					t.Fatal(err)
				}
				env := b.env
				env.Store = &mortal{Store: b.store, at: at, done: done}
				if len(runs) > 0 {
					env.RunID = runs[0].RunID
				}
				a, err := pg.New(c)
				if err != nil {
					t.Fatal(err)
				}
				return policy, a.Run(t.Context(), env)
			}
			policy, err := live(at)
			if err == nil {
				return // there are no more writes
			}
			if !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			if reported == 0 { // killed before anybody reported anything, and OnStep may not come again
				for ; reported < 24; reported++ {
					if _, err := p.report(t.Context(), ""); err != nil {
						t.Fatal(err)
					}
				}
			}
			kept := policy.batches
			if policy, err = live(0); err != nil {
				t.Fatalf("resumed after write %d (done: %v): %v", at, done, err)
			}
			// What the killed execution did after its last checkpoint is undone.
			resumed := map[string]bool{}
			for _, batch := range policy.batches {
				for _, row := range batch.Rows {
					if resumed[row.Rollout] {
						t.Errorf("killed at write %d: rollout %s was trained on twice", at, row.Rollout)
					}
					resumed[row.Rollout] = true
				}
			}
			if n := len(kept) + len(policy.batches); n < 3 || n > 4 {
				t.Errorf("killed at write %d (done: %v): %d updates, want 3 and at most the last one again", at, done, n)
			}
			twice := 0
			for _, batch := range kept {
				for _, row := range batch.Rows {
					if resumed[row.Rollout] {
						twice++
					}
				}
			}
			if repeats := len(kept) + len(policy.batches) - 3; twice != 8*repeats {
				t.Errorf("killed at write %d (done: %v): %d rollouts in both executions, want the %d of the update that was undone", at, done, twice, 8*repeats)
			}
		}
	}
}

// Agents that report by the protocols of 0.3 and of 1.0, with their model calls
// recorded by the proxy, are learnt from alike.
func TestFollowProtocols(t *testing.T) {
	t.Parallel()
	model, err := native.New(native.Config{Dim: 16, Layers: 1, Heads: 1, Hidden: 32, Context: 16, Seed: 3}, native.NewTokenizer(nil))
	if err != nil {
		t.Fatal(err)
	}
	engineServer := httptest.NewServer(native.NewServer(model, native.ServerConfig{Name: "policy"}))
	st := engine.New(memory.New(), engine.Config{})
	server, err := daemon.Listen(t.Context(), daemon.Config{
		Store: st, Proxy: llmproxy.Config{Static: []agl.Model{{Name: "policy", Endpoint: engineServer.URL + "/v1"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := server.Run(ctx); err != nil {
			t.Errorf("server: %v", err)
		}
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
		engineServer.Close()
		if err := errors.Join(st.Close(), model.Close()); err != nil {
			t.Error(err)
		}
	})
	client, err := storehttp.NewClient(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	v1 := &gateway.Client{BaseURL: server.URL()}
	ask := func(base string, seed int64) {
		t.Helper()
		body, err := json.Marshal(map[string]any{"model": "policy", "seed": seed, "max_tokens": 2, "messages": []map[string]string{{"role": "user", "content": "1"}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := forward(t.Context(), base+"/chat/completions", body); err != nil {
			t.Fatal(err)
		}
	}
	byOld := func(i int64) string {
		r, err := client.StartRollout(t.Context(), store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: json.RawMessage(`"1"`)}})
		if err != nil {
			t.Fatal(err)
		}
		ask(server.URL()+"/rollout/"+r.RolloutID+"/attempt/"+r.Attempt.AttemptID+"/v1", i)
		final := agl.SpanCore{Name: semconv.SpanAnnotation, Status: agl.TraceStatus{StatusCode: agl.StatusOK}, Attributes: agl.Attributes{
			{Key: semconv.RewardName(0), Value: semconv.PrimaryReward}, {Key: semconv.RewardValue(0), Value: float64(i % 2)},
		}}
		_, err = client.AddSpans(t.Context(), []agl.Span{final.Span(r.RolloutID, r.Attempt.AttemptID, 1000, agl.Seconds(time.Now()))})
		if err == nil {
			_, err = client.UpdateAttempt(t.Context(), r.RolloutID, r.Attempt.AttemptID, store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)})
		}
		if err != nil {
			t.Fatal(err)
		}
		return r.RolloutID
	}
	byNew := func(i int64) string {
		made, err := v1.CreateRollouts(t.Context(), gateway.RolloutCreate{Input: json.RawMessage(`{"data_id":"d","question":"1"}`)})
		if err != nil {
			t.Fatal(err)
		}
		id, attempt := made[0].RolloutID, new("0")
		if _, err = v1.PatchRollout(t.Context(), id, gateway.StatusPatch{State: gateway.Running, LastAttemptID: &attempt}); err != nil {
			t.Fatal(err)
		}
		ask(v1.OpenAIBaseURL(id, "0", "train"), i)
		_, err = v1.PostEvent(t.Context(), id, "0", "reward", json.RawMessage([]string{`{"value":0.0}`, `{"value":1.0}`}[i%2]))
		if err == nil {
			_, err = v1.PatchRollout(t.Context(), id, gateway.StatusPatch{State: gateway.Succeeded})
		}
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	seen := &spying{Learner: model, rollouts: map[string]int{}}
	want := map[string]int{}
	c := pg.Config{
		Learner: seen, Method: pg.Method{}, Steps: 1, LearningRate: learner.Schedule{Peak: 1e-3}, Stall: 20 * time.Second,
		Follow: &pg.Follow{Rollouts: 16}, Resources: agl.NamedResources{{Name: "main_llm", Resource: agl.ProxyLLM{Model: "policy"}}},
	}
	c.OnStep = func(s pg.Step) {
		if s.Number > 0 {
			if s.Metrics["groups"] != 2 || s.Metrics["rows"] != 16 {
				t.Errorf("metrics %v, want 16 rows in the 2 groups of equal tasks", s.Metrics)
			}
			return
		}
		for i := range int64(8) {
			want[byOld(i)], want[byNew(i)] = 1, 1
		}
	}
	env := setup(t).env
	env.Store, env.Train, env.Val = client, nil, nil
	if err := train(t, c, env); err != nil {
		t.Fatal(err)
	}
	for id := range want {
		if seen.rollouts[id] != 1 {
			t.Errorf("rollout %s was trained on %d times, want once", id, seen.rollouts[id])
		}
	}
}

// spying counts the rows of each rollout.
type spying struct {
	learner.Learner
	rollouts map[string]int
}

func (s *spying) Update(ctx context.Context, b learner.Batch) (learner.Metrics, error) {
	for _, row := range b.Rows {
		s.rollouts[row.Rollout]++
	}
	return s.Learner.Update(ctx, b)
}

func TestFollowRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, tt := range []struct {
		want   string
		change func(*pg.Config)
	}{
		{"Follow: Tasks", func(c *pg.Config) { c.Tasks = 4 }},
		{"Follow: Tasks", func(c *pg.Config) { c.Rollout.MaxAttempts = 3 }},
		{"Follow: Tasks", func(c *pg.Config) { c.Async.Groups = 3 }},
		{"Follow.Rollouts: -1", func(c *pg.Config) { c.Follow.Rollouts = -1 }},
		{"Follow.MaxStaleness: -1", func(c *pg.Config) { c.Follow.MaxStaleness = -1 }},
		{"Follow.RewardWait", func(c *pg.Config) { c.Follow.RewardWait = -1 }},
		{"Follow.Window", func(c *pg.Config) { c.Follow.RewardWait, c.Follow.Window = time.Hour, time.Minute }},
		{"remax", func(c *pg.Config) { c.Method.Advantages.Estimator = rl.ReMax }},
		{"Resample", func(c *pg.Config) { c.Method = pg.Method{Resample: 1} }},
		{"LearningRate.Final", func(c *pg.Config) { c.Steps, c.LearningRate.Final = 0, 0.1 }},
		{"nothing to publish", func(c *pg.Config) { c.Publish = nil }},
	} {
		c := followed("", &served{}, b.policy)
		tt.change(&c)
		if _, err := pg.New(c); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("New = %v, want an error that says %q", err, tt.want)
		}
	}
	if err := train(t, followed("", &served{}, b.policy), b.env); err == nil || !strings.Contains(err.Error(), "2 training tasks") {
		t.Errorf("Run with tasks = %v, want them refused", err)
	}
}
