package gepa_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/algorithm"
	"agentlightning/algorithm/gepa"
	"agentlightning/algorithm/prompt"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/trainer"
)

var errKilled = errors.New("killed")

// mortal is the store as an algorithm sees it that is killed: from the n-th
// write on nothing reaches it any more. The n-th itself is done or not.
type mortal struct {
	store.Store
	mu     sync.Mutex
	writes int
	at     int // 0 never
	done   bool
}

// die reports whether the write may be made, and whether its answer is seen.
func (m *mortal) die() (write, answer bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	switch {
	case m.at == 0 || m.writes < m.at:
		return true, true
	case m.writes == m.at:
		return m.done, false
	}
	return false, false
}

func (m *mortal) EnqueueRollouts(ctx context.Context, reqs []store.EnqueueRequest) (out []agl.Rollout, err error) {
	write, answer := m.die()
	if write {
		out, err = m.Store.EnqueueRollouts(ctx, reqs)
	}
	if !answer {
		return nil, errKilled
	}
	return out, err
}

func (m *mortal) UpdateResources(ctx context.Context, id string, r agl.NamedResources) (out agl.ResourcesUpdate, err error) {
	write, answer := m.die()
	if write {
		out, err = m.Store.UpdateResources(ctx, id, r)
	}
	if !answer {
		return out, errKilled
	}
	return out, err
}

func (m *mortal) PutCheckpoint(ctx context.Context, id string, c agl.Checkpoint) (err error) {
	write, answer := m.die()
	if write {
		err = m.Store.PutCheckpoint(ctx, id, c)
	}
	if !answer {
		return errKilled
	}
	return err
}

// fit runs a search over the landscape, whose store lives until a given write.
func fit(t *testing.T, s store.Store, m *mortal, c gepa.Config, runID string) (gepa.Result, error) {
	t.Helper()
	g, err := gepa.New(c)
	if err != nil {
		t.Fatal(err)
	}
	err = trainer.Fit(t.Context(), trainer.Config{
		Agent: several, Store: s, InitialResources: separate(), Runners: 2,
		Algorithm: algorithm.Func(func(ctx context.Context, env algorithm.Env) error {
			m.Store, env.Store, env.RunID = env.Store, m, runID
			return g.Run(ctx, env)
		}),
	}, needs(t, 1), needs(t, 2))
	r, _ := g.Result()
	return r, err
}

// TestKilled kills a run at twenty random writes, before or after they are done.
// Resumed, it comes to the same result, without another rollout, and pays twice
// for one model call at the most: the one whose answer was not recorded yet.
func TestKilled(t *testing.T) {
	t.Parallel()
	calls := 0
	config := func() gepa.Config {
		calls = 0
		ask := author(7)
		return gepa.Config{MaxEvaluations: 500, MaxFailures: 50, Seed: 7, Completer: prompt.CompleterFunc(
			func(ctx context.Context, r prompt.Request) (prompt.Answer, error) {
				calls++
				return ask(ctx, r)
			})}
	}
	rollouts := func(s store.Store) int64 {
		got, err := s.Statistics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return got.TotalRollouts
	}
	s := engine.New(memory.New(), engine.Config{})
	life := &mortal{}
	want, err := fit(t, s, life, config(), "")
	if err != nil {
		t.Fatal(err)
	}
	wantCalls, wantRollouts := calls, rollouts(s)
	s.Close()
	merged := false
	for _, c := range want.Candidates {
		merged = merged || len(c.Parents) == 2
	}
	if len(want.Candidates) < 5 || !merged {
		t.Fatalf("%d candidates, merged %v: too few to show anything", len(want.Candidates), merged)
	}
	dice := rand.New(rand.NewPCG(1, 2))
	again := 0
	for n := range 20 {
		s := engine.New(memory.New(), engine.Config{})
		c := config()
		at, done := 2+dice.IntN(life.writes-1), n%2 == 0
		if _, err := fit(t, s, &mortal{at: at, done: done}, c, ""); !errors.Is(err, errKilled) {
			t.Fatalf("killed at write %d: %v", at, err)
		}
		runs, err := s.Runs(t.Context(), 1)
		if err != nil || len(runs) != 1 {
			t.Fatalf("runs %+v, %v", runs, err)
		}
		got, err := fit(t, s, &mortal{}, c, runs[0].RunID)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("killed at write %d (done: %v): result %+v, want %+v", at, done, got, want)
		}
		if n := rollouts(s); n != wantRollouts || calls > wantCalls+1 {
			t.Errorf("killed at write %d (done: %v): %d rollouts and %d calls, want %d and %d or one more", at, done, n, calls, wantRollouts, wantCalls)
		}
		again += calls - wantCalls
		s.Close()
	}
	t.Logf("%d calls and %d rollouts; killed 20 times: %d calls paid twice", wantCalls, wantRollouts, again)
}

// ask is a search over tasks for a single prompt, with answers that are given.
func ask(t *testing.T, c gepa.Config, a agent.Agent, initial string) (gepa.Result, store.Store, error) {
	t.Helper()
	s := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() { s.Close() })
	g, err := gepa.New(c)
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := algorithm.Tasks([]string{"a", "b", "c"})
	if err != nil {
		t.Fatal(err)
	}
	err = trainer.Fit(t.Context(), trainer.Config{
		Agent: a, Algorithm: g, Store: s,
		InitialResources: agl.NamedResources{
			{Name: "model", Resource: agl.LLM{Endpoint: "http://127.0.0.1:1/v1", Model: "m"}},
			{Name: "p", Resource: agl.PromptTemplate{Template: initial, Engine: agl.EngineFString}},
		},
	}, tasks, nil)
	r, _ := g.Result()
	return r, s, err
}

func answers(texts ...string) prompt.CompleterFunc {
	n := 0
	return func(context.Context, prompt.Request) (prompt.Answer, error) {
		n++
		return prompt.Answer{Text: texts[(n-1)%len(texts)], InputTokens: 90, OutputTokens: 10, Cost: 0.5}, nil
	}
}

// words rewards a prompt by its length.
var words = agent.New(func(_ context.Context, task string, c *agent.Call) (float64, error) {
	p, err := c.Prompt("p")
	if err != nil {
		return 0, err
	}
	text, err := p.Format(map[string]string{"x": task})
	if err != nil {
		return 0, err
	}
	if strings.Contains(text, "crash") {
		return 0, errors.New("crashed")
	}
	return float64(len(strings.Fields(text))), nil
})

func TestBrokenRewritesAreNotRun(t *testing.T) {
	t.Parallel()
	got, s, err := ask(t, gepa.Config{MaxEvaluations: 60, MaxFailures: 1000, Completer: answers(
		"no tags", "<prompt>no placeholder at all, but long</prompt>", "<prompt>{x} and {y}</prompt>",
		`<prompt>Reply as {"a": {"b": 1}} for {x}</prompt>`,
	)}, words, "{x}")
	if err != nil {
		t.Fatal(err)
	}
	want := `Reply as {{"a": {{"b": 1}}}} for {x}`
	if p := got.Best.Templates["p"].Template; p != want || len(got.Candidates) != 2 {
		t.Errorf("best %q of %d candidates, want %q of 2", p, len(got.Candidates), want)
	}
	page, err := s.QueryResources(t.Context(), store.ResourcesQuery{})
	if err != nil || page.Total != 2 {
		t.Errorf("%d versions published, want 2: %v", page.Total, err)
	}
	latest, err := s.LatestResources(t.Context())
	if err != nil || latest.Resources.Get("p") != agl.Resource(got.Best.Templates["p"]) || latest.Resources.Get("model") == nil {
		t.Errorf("latest %+v, %v", latest, err)
	}
}

func TestStops(t *testing.T) {
	t.Parallel()
	better := answers("<prompt>{x} a</prompt>", "<prompt>{x} a b</prompt>", "<prompt>{x} a b c</prompt>", "<prompt>{x} a b c d</prompt>")
	broken := prompt.CompleterFunc(func(context.Context, prompt.Request) (prompt.Answer, error) {
		return prompt.Answer{}, errors.New("service is down")
	})
	got, s, err := ask(t, gepa.Config{MaxEvaluations: 60, Completer: broken}, words, "{x}")
	if !errors.Is(err, gepa.ErrFailures) || !strings.Contains(err.Error(), "5: the last for service is down") || got.Spent.Calls != 5 {
		t.Errorf("down: %v, spent %+v", err, got.Spent)
	}
	if runs, err := s.Runs(t.Context(), 1); err != nil || runs[0].Status != agl.RunFailed {
		t.Errorf("runs %+v, %v", runs, err)
	}
	if _, _, err = ask(t, gepa.Config{MaxEvaluations: 20, Completer: better}, words, "{x}"); err == nil || !strings.Contains(err.Error(), "MaxEvaluations: 20: must be at least 21 for 3 validation tasks") {
		t.Errorf("small budget: %v", err)
	}
	got, _, err = ask(t, gepa.Config{MaxEvaluations: 90, MaxTokens: 200, Completer: better}, words, "{x}")
	if err != nil || got.Spent.Tokens != 200 || !strings.Contains(got.Stopped, "tokens") {
		t.Errorf("tokens: %+v, %v", got.Spent, err)
	}
	got, _, err = ask(t, gepa.Config{MaxEvaluations: 90, MaxCost: 1, Completer: better}, words, "{x}")
	if err != nil || got.Spent.Cost != 1 || !strings.Contains(got.Stopped, "money") {
		t.Errorf("money: %+v, %v", got.Spent, err)
	}
	_, _, err = ask(t, gepa.Config{MaxEvaluations: 90, Completer: answers("<prompt>crash {x}</prompt>")}, words, "{x}")
	if !errors.Is(err, gepa.ErrFailures) || !strings.Contains(err.Error(), "crashed") {
		t.Errorf("crashing rewrites: %v", err)
	}
	if _, _, err = ask(t, gepa.Config{MaxEvaluations: 90, Completer: better}, words, "crash {x}"); err == nil || !strings.Contains(err.Error(), "no rollout has a reward") {
		t.Errorf("crashing agent: %v", err)
	}
	if _, _, err = ask(t, gepa.Config{MaxEvaluations: 90, Completer: better, Objectives: []string{"speed"}}, words, "{x}"); err == nil {
		t.Error("an objective that no reward has is no error")
	}
	if _, _, err = ask(t, gepa.Config{MaxEvaluations: 90, Completer: better, Components: []string{"model"}}, words, "{x}"); err == nil || !strings.Contains(err.Error(), `Components[0]: "model"`) {
		t.Errorf("component: %v", err)
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]gepa.Config{
		"Completer: must be set":                {MaxEvaluations: 1},
		"MaxEvaluations: 0: must be at least 1": {Completer: answers("x")},
		`OnFailure: "ignore"`:                   {Completer: answers("x"), MaxEvaluations: 1, OnFailure: "ignore"},
		`Objectives[0]: "primary"`:              {Completer: answers("x"), MaxEvaluations: 1, Objectives: []string{"primary"}},
		"MaxCost: -1":                           {Completer: answers("x"), MaxEvaluations: 1, MaxCost: -1},
	} {
		if _, err := gepa.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New() = %v, want %q", err, want)
		}
	}
	p, err := gepa.Config{MaxEvaluations: 8, Minibatch: 3}.Plan(6)
	if err == nil || p.Floor != 33 || !strings.Contains(err.Error(), "at least 33") {
		t.Errorf("Plan(6) = %+v, %v, want a floor of 6 + 3·(3 + 6) = 33", p, err)
	}
}
