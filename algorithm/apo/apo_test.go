package apo_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/algorithm"
	"agentlightning/algorithm/apo"
	"agentlightning/algorithm/prompt"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/trainer"
)

type task struct {
	Question string `json:"question"`
}

// length rewards long prompts: min(1, bytes/40).
var length = agent.WithPrompt(func(_ context.Context, _ task, p agl.PromptTemplate) (float64, error) {
	return min(1, float64(len(p.Template))/40), nil
})

// diary writes down what an algorithm does, in order.
type diary struct {
	store.Store
	mu    sync.Mutex
	lines []string
	names map[string]int // of rollouts
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *diary) UpdateResources(ctx context.Context, id string, r agl.NamedResources) (agl.ResourcesUpdate, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return agl.ResourcesUpdate{}, err
	}
	d.note("publish %s %s", id, raw)
	return d.Store.UpdateResources(ctx, id, r)
}

func (d *diary) EnqueueRollouts(ctx context.Context, reqs []store.EnqueueRequest) ([]agl.Rollout, error) {
	out, err := d.Store.EnqueueRollouts(ctx, reqs)
	for _, r := range out {
		d.names[r.RolloutID] = len(d.names) + 1
		d.note("enqueue %s %s %s", r.Input, r.Mode, *r.ResourcesID)
	}
	return out, err
}

func (d *diary) QuerySpans(ctx context.Context, q store.SpanQuery) (store.Page[agl.Span], error) {
	d.note("spans <rollout-%d>", d.names[q.RolloutID])
	return d.Store.QuerySpans(ctx, q)
}

// recorded returns the calls of the Python implementation in the words of a diary.
func recorded(t *testing.T) (lines []string, best string, score float64) {
	t.Helper()
	raw, err := os.ReadFile("../../testdata/vectors/runner/traces/apo_small.json")
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Calls []struct {
			Seq     int
			Path    string
			Request json.RawMessage
		} `json:"algorithm_calls"`
		LLM []struct {
			Model string
			Roles []string
		} `json:"openai_calls_of_the_algorithm"`
		Result struct {
			Version string  `json:"best_version"`
			Score   float64 `json:"best_score"`
		}
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	asked := 0
	for i, c := range v.Calls {
		if id, ok := strings.CutPrefix(c.Path, "/v1/agl/resources/"); ok {
			// Model calls were recorded apart: two follow on each evaluation in
			// training, before whatever is published next.
			if i > 0 && strings.HasPrefix(lines[len(lines)-1], "spans") && trained(lines) {
				for range 2 {
					lines = append(lines, fmt.Sprintf("ask %s %s", v.LLM[asked].Model, strings.Join(v.LLM[asked].Roles, ",")))
					asked++
				}
			}
			var r agl.NamedResources
			if err := json.Unmarshal(c.Request, &r); err != nil {
				t.Fatal(err)
			}
			canonical, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, fmt.Sprintf("publish %s %s", id, canonical))
			continue
		}
		var r struct {
			Rollouts []struct {
				Input       task
				Mode        string
				ResourcesID string `json:"resources_id"`
			}
			RolloutID string `json:"rollout_id"`
		}
		if err := json.Unmarshal(c.Request, &r); err != nil {
			t.Fatal(err)
		}
		for _, e := range r.Rollouts {
			lines = append(lines, fmt.Sprintf(`enqueue {"question":%q} %s %s`, e.Input.Question, e.Mode, e.ResourcesID))
		}
		if r.RolloutID != "" {
			lines = append(lines, "spans "+r.RolloutID)
		}
	}
	if asked != len(v.LLM) {
		t.Fatalf("%d of %d recorded model calls have a place", asked, len(v.LLM))
	}
	return lines, v.Result.Version, v.Result.Score
}

// trained reports whether the last rollout asked for was one for training.
func trained(lines []string) bool {
	for _, l := range slices.Backward(lines) {
		if strings.HasPrefix(l, "enqueue") {
			return strings.Contains(l, " train ")
		}
	}
	return false
}

func tasks(t *testing.T, questions ...string) []json.RawMessage {
	t.Helper()
	var list []task
	for _, q := range questions {
		list = append(list, task{q})
	}
	out, err := algorithm.Tasks(list)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func initial(texts ...string) agl.NamedResources {
	var out agl.NamedResources
	for i, text := range texts {
		name := "prompt_template"
		if i > 0 {
			name += fmt.Sprint(i)
		}
		out = append(out, agl.NamedResource{Name: name, Resource: agl.PromptTemplate{Template: text, Engine: agl.EngineFString}})
	}
	return out
}

// recordedSeed draws the tasks that the recorded run drew.
const recordedSeed = 31

// The same publications, rollouts, reads and model calls, in the same order, as
// those of the Python implementation; it asks for rollouts one by one.
func TestRecordedOrder(t *testing.T) {
	t.Parallel()
	want, version, score := recorded(t)
	s := engine.New(memory.New(), engine.Config{})
	defer s.Close()
	d := &diary{Store: s, names: map[string]int{}}
	edits := []string{"Edited prompt 7: answer {question}", "Edited prompt 11: answer {question}"}
	// The recorded chats have these roles: the first critique prompt twice.
	user := []apo.Instruction{{User: "{prompt} {experiments}"}}
	a, err := apo.New(apo.Config{
		Completer: prompt.CompleterFunc(func(_ context.Context, r prompt.Request) (prompt.Answer, error) {
			var roles []string
			for _, m := range r.Messages {
				roles = append(roles, m.Role)
			}
			d.note("ask %s %s", r.Model, strings.Join(roles, ","))
			if r.Temperature != 1 {
				t.Errorf("temperature %v, want 1", r.Temperature)
			}
			if r.Purpose == "gradient" {
				return prompt.Answer{Text: "longer"}, nil
			}
			text := edits[0]
			edits = edits[1:]
			return prompt.Answer{Text: text}, nil
		}),
		GradientModel: "grad-model", EditModel: "edit-model", GradientPrompts: user,
		GradientBatch: 2, ValBatch: 2, BeamWidth: 2, BranchFactor: 1, Rounds: 1, Seed: recordedSeed,
	})
	if err != nil {
		t.Fatal(err)
	}
	err = trainer.Fit(t.Context(), trainer.Config{
		Agent: length, Store: s, InitialResources: initial("Q: {question}"),
		Algorithm: algorithm.Func(func(ctx context.Context, env algorithm.Env) error {
			env.Store = d
			return a.Run(ctx, env)
		}),
	}, tasks(t, "t0", "t1", "t2"), tasks(t, "v0", "v1", "v2"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(d.lines, want) {
		t.Errorf("calls\n%s\nwant\n%s", strings.Join(d.lines, "\n"), strings.Join(want, "\n"))
	}
	best, err := a.Best()
	if err != nil || best.Version != version || best.Score == nil || *best.Score != score {
		t.Errorf("Best() = %+v, %v, want %s with %v", best, err, version, score)
	}
}

// growing is a model that makes prompts longer, and counts its calls.
type growing struct {
	calls int
	// stop is called before the answer number at, from 1.
	at   int
	stop func()
}

func (g *growing) Complete(ctx context.Context, r prompt.Request) (prompt.Answer, error) {
	if g.calls++; g.calls == g.at {
		g.stop()
		return prompt.Answer{}, context.Cause(ctx)
	}
	if r.Purpose == "gradient" {
		return prompt.Answer{Text: "longer"}, nil
	}
	_, text, _ := strings.Cut(r.Messages[len(r.Messages)-1].Content, "The prompt:\n\n")
	text, _, _ = strings.Cut(text, "\n\nThe review:")
	return prompt.Answer{Text: text + "!"}, nil
}

func run(ctx context.Context, t *testing.T, s store.Store, g *growing, runID string) (*apo.APO, error) {
	t.Helper()
	a, err := apo.New(apo.Config{Completer: g, BeamWidth: 2, BranchFactor: 2, Rounds: 2, GradientBatch: 1, ValBatch: 1, Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	return a, trainer.Fit(ctx, trainer.Config{
		Agent: length, Store: s, Algorithm: a, InitialResources: initial("Q: {question}"), RunID: runID, Logger: slog.New(slog.DiscardHandler),
	}, tasks(t, "t0", "t1", "t2"), tasks(t, "v0", "v1", "v2"))
}

func enqueued(t *testing.T, s store.Store) int {
	t.Helper()
	page, err := s.QueryRollouts(t.Context(), store.RolloutQuery{})
	if err != nil {
		t.Fatal(err)
	}
	return page.Total
}

// lineage is what the last checkpoint of the only run says of all prompts.
func lineage(t *testing.T, s store.Store) string {
	t.Helper()
	runs, err := s.Runs(t.Context(), 1)
	if err != nil || len(runs) != 1 {
		t.Fatalf("runs %+v, %v", runs, err)
	}
	c, err := s.LatestCheckpoint(t.Context(), runs[0].RunID)
	if err != nil {
		t.Fatal(err)
	}
	var kept struct {
		State struct{ Prompts []apo.Prompt }
	}
	if err := json.Unmarshal(c.State, &kept); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, p := range kept.State.Prompts {
		score := "unscored"
		if p.Score != nil {
			score = fmt.Sprint(*p.Score)
		}
		fmt.Fprintf(&b, "%s of %s: %s\n", p.Version, p.Parent, score)
	}
	return b.String()
}

func TestResume(t *testing.T) {
	t.Parallel()
	s := engine.New(memory.New(), engine.Config{})
	defer s.Close()
	whole := &growing{}
	a, err := run(t.Context(), t, s, whole, "")
	if err != nil {
		t.Fatal(err)
	}
	want, err := a.Best()
	if err != nil {
		t.Fatal(err)
	}
	rollouts := enqueued(t, s)
	tree := lineage(t, s)
	if !strings.HasPrefix(tree, "v0 of ") || strings.Count(tree, "\n") != 9 || strings.Contains(tree, "unscored") || !strings.Contains(tree, "v1 of v0") || !strings.Contains(tree, want.Version+" of ") {
		t.Errorf("lineage\n%s", tree)
	}
	for at := 1; at <= whole.calls; at++ {
		s := engine.New(memory.New(), engine.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		g := &growing{at: at, stop: cancel}
		if _, err := run(ctx, t, s, g, ""); !errors.Is(err, context.Canceled) {
			t.Fatalf("stopped at call %d: %v", at, err)
		}
		runs, err := s.Runs(t.Context(), 1)
		if err != nil || len(runs) != 1 || runs[0].Status != agl.RunInterrupted {
			t.Fatalf("runs %+v, %v", runs, err)
		}
		g.at = 0
		a, err := run(t.Context(), t, s, g, runs[0].RunID)
		if err != nil {
			t.Fatal(err)
		}
		got, err := a.Best()
		if err != nil || got.Version != want.Version || got.Template != want.Template || *got.Score != *want.Score {
			t.Errorf("stopped at call %d: Best() = %+v, %v, want %+v", at, got, err, want)
		}
		if n := enqueued(t, s); g.calls != whole.calls+1 || n != rollouts {
			t.Errorf("stopped at call %d: %d calls and %d rollouts, want %d and %d", at, g.calls, n, whole.calls+1, rollouts)
		}
		if got := lineage(t, s); got != tree {
			t.Errorf("stopped at call %d: lineage\n%swant\n%s", at, got, tree)
		}
		latest, err := s.LatestResources(t.Context())
		if err != nil || latest.Resources.Get("prompt_template") != agl.Resource(want.Template) {
			t.Errorf("stopped at call %d: published %+v, %v", at, latest, err)
		}
		s.Close()
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	some := prompt.CompleterFunc(func(context.Context, prompt.Request) (prompt.Answer, error) { return prompt.Answer{}, nil })
	for want, c := range map[string]apo.Config{
		"apo: Completer: must be set":                 {},
		"apo: Rounds: -1: must not be negative":       {Completer: some, Rounds: -1},
		"apo: EditPrompts[0].User: must not be empty": {Completer: some, EditPrompts: []apo.Instruction{{System: "x"}}},
		// A text of package text/template has its names in double braces.
		"apo: GradientPrompts[0]: lacks the placeholder {prompt}; System and User must use {prompt}, {experiments}": {
			Completer: some, GradientPrompts: []apo.Instruction{{User: "{{.Prompt}}"}},
		},
		"apo: EditPrompts[1]: lacks the placeholder {critique}": {
			Completer: some, EditPrompts: []apo.Instruction{{User: "{prompt} {critique}"}, {System: "{prompt}", User: "x"}},
		},
		"apo: GradientPrompts[0].System: placeholder {critique}: must be one of {prompt}, {experiments}; write {{critique}} for braces that stay": {
			Completer: some, GradientPrompts: []apo.Instruction{{System: "{critique}", User: "{prompt} {experiments}"}},
		},
		"apo: EditPrompts[0].User: placeholder {critique!r}: must be one of {prompt}, {critique}": {
			Completer: some, EditPrompts: []apo.Instruction{{User: "{prompt} {critique!r}"}},
		},
		"apo: GradientPrompts[0].Experiment: placeholder {score}: must be one of {number}, {status}, {reward}, {messages}, {spans}, {feedback}": {
			Completer: some, GradientPrompts: []apo.Instruction{{User: "{prompt} {experiments}", Experiment: "{score}"}},
		},
		"apo: EditPrompts[0].Experiment: must be empty": {
			Completer: some, EditPrompts: []apo.Instruction{{User: "{prompt} {critique}", Experiment: "{status}"}},
		},
	} {
		if _, err := apo.New(c); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("New() = %v, want %q", err, want)
		}
	}
	s := engine.New(memory.New(), engine.Config{})
	defer s.Close()
	one := tasks(t, "q")
	for want, env := range map[string]algorithm.Env{
		"no training tasks":                   {Val: one},
		"no validation tasks":                 {Train: one},
		"no prompt template":                  {Train: one, Val: one},
		"(prompt_template, prompt_template1)": {Train: one, Val: one, InitialResources: initial("a", "b")},
	} {
		a, err := apo.New(apo.Config{Completer: some})
		if err != nil {
			t.Fatal(err)
		}
		env.Store, env.Logger = s, slog.New(slog.DiscardHandler)
		if err := a.Run(t.Context(), env); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Run() = %v, want %q", err, want)
		}
		if _, err := a.Best(); !errors.Is(err, apo.ErrNoPrompt) {
			t.Errorf("Best() = %v", err)
		}
	}
}
