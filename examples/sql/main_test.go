package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentlightning/adapter/credit"
	"agentlightning/examples/internal/lessontest"
	"agentlightning/examples/sql/library"
	"agentlightning/learner/native"
	"agentlightning/store"
)

// small is a plan that goes through all phases in some seconds; it is far too
// short to learn much.
func small() plan {
	p := tuned()
	p.validation = 4
	p.warmupSteps, p.warmupRows, p.checkerSteps = 40, 16, 30
	p.steps, p.tasks, p.group, p.epochs, p.validateEvery = 2, 2, 4, 1, 1
	p.writer = native.Config{Dim: 32, Layers: 1, Heads: 2, Hidden: 64, Context: 160}
	p.checker = native.Config{Dim: 16, Layers: 1, Heads: 1, Hidden: 32, Context: 160}
	return p
}

// example is the command with the small plan.
func example(args []string, stdout, stderr io.Writer) int {
	return mainStatus(args, small(), stdout, stderr)
}

// play runs the example and returns its report and what it printed.
func play(t *testing.T, args ...string) (report, string) {
	t.Helper()
	return lessontest.Play[report](t, example, append([]string{"--port", "0", "--agents", "8"}, args...)...)
}

// A seed repeats a run, and the checker's calls are recorded but not trained on.
func TestWholeLoop(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "sql.db")
	r, out := play(t, "--seed", "5", "--db", db)
	if r.Steps != 2 || len(r.Curve) != 3 || r.FailedRollouts != 0 {
		t.Errorf("report = %+v, want 2 steps and no failed rollout", r)
	}
	for _, text := range []string{"right answers", "right with the first query", "\n  right   select ", db} {
		if !strings.Contains(out, text) {
			t.Errorf("output lacks %q:\n%s", text, out)
		}
	}
	again, _ := play(t, "--seed", "5")
	lessontest.SameReport(t, r, again)
	checkDatabase(t, db)
}

func checkDatabase(t *testing.T, db string) {
	t.Helper()
	st := lessontest.Open(t, db)
	page, err := st.QueryRollouts(t.Context(), store.RolloutQuery{})
	if err != nil || len(page.Items) == 0 {
		t.Fatalf("QueryRollouts = %d, %v", len(page.Items), err)
	}
	rule, err := credit.Parse("role:^writer$=" + tuned().credit.String())
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, r := range page.Items {
		spans, err := st.QuerySpans(t.Context(), store.SpanQuery{RolloutID: r.RolloutID, Paging: store.Paging{SortBy: "sequence_id"}})
		if err != nil {
			t.Fatal(err)
		}
		read := credit.Read(r.RolloutID, "", spans.Items)
		earned, err := rule.Credit([]credit.Rollout{read})
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range read.Calls {
			checked++
			if writes := c.Agent == writer; !c.Usable() || writes != (earned[0][i].Reward != nil) {
				t.Errorf("rollout %s: call %d by %q is usable: %v, earned %v", r.RolloutID, i, c.Agent, c.Usable(), earned[0][i].Reward)
			}
		}
	}
	if checked < 2*len(page.Items) {
		t.Errorf("%d calls in %d rollouts, want at least one of each agent", checked, len(page.Items))
	}
}

// A checker that was warmed up knows its work.
func TestDemonstrations(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		result library.Result
		want   string
	}{
		{library.Result{Problem: "no such column: city"}, refused},
		{library.Result{}, refused},
		{library.Result{Rows: [][]string{{"anna 1"}}}, accepted},
	} {
		messages := checkerMessages(library.Attempt{Query: "select name from members", Result: tt.result})
		if got := messages[len(messages)-1].Text; got != tt.want {
			t.Errorf("verdict on %q = %q, want %q", tt.result, got, tt.want)
		}
	}
	attempts := []library.Attempt{
		{Query: "select a", Result: library.Result{Problem: "no such column: a"}},
		{Query: "select 1", Result: library.Result{Rows: [][]string{{"1"}}}},
	}
	var texts []string
	for _, m := range writerMessages("Who?", attempts) {
		texts = append(texts, string(m.Role)+": "+m.Text)
	}
	want := []string{"user: Who?", "assistant: select a", "user: error: no such column: a", "assistant: select 1"}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("the writer's demonstration (-want +got):\n%s", diff)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	lessontest.Refuses(t, example, map[string][]string{
		`unexpected argument`: {"x"},
		"--agents 0":          {"--agents", "0"},
		"provided but not":    {"--nope"},
	})
}
