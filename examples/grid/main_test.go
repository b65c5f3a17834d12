package main

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"agentlightning/adapter/credit"
	"agentlightning/examples/internal/lessontest"
	"agentlightning/learner/native"
	"agentlightning/store"
)

// small is a plan that goes through all phases in a second; it is far too short
// to learn much.
func small() plan {
	p := tuned()
	p.train, p.validation = 40, 6
	p.warmupSteps, p.warmupRows = 60, 32
	p.steps, p.tasks, p.group, p.validateEvery = 2, 2, 4, 1
	p.model = native.Config{Dim: 32, Layers: 1, Heads: 2, Hidden: 64, Context: 24}
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

// All rules start from the same weights, and a seed repeats a run.
func TestAllRules(t *testing.T) {
	t.Parallel()
	r, out := play(t, "--seed", "5")
	if len(r.Rules) != len(strings.Fields(compared)) {
		t.Fatalf("%d rules in the report, want those of %q", len(r.Rules), compared)
	}
	for i, rule := range r.Rules {
		if rule.Before != r.Rules[0].Before || rule.Steps != 2 || len(rule.Curve) != 3 || rule.FailedRollouts != 0 || rule.Rollouts != 2*2*4+3*6 {
			t.Errorf("rule %d: %+v, want the same start, 2 steps, %d rollouts and none failed", i, rule, 2*2*4+3*6)
		}
		if !strings.Contains(out, "\n"+rule.Rule) {
			t.Errorf("output lacks %s:\n%s", rule.Rule, out)
		}
	}
	again, _ := play(t, "--seed", "5")
	lessontest.SameReport(t, r, again)
}

// What moves earned is in the store where they earned it, and a state is all that
// a call saw.
func TestSpans(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "grid.db")
	play(t, "--credit", "step-rewards:0.9", "--shuffle-rewards", "--db", db)
	st := lessontest.Open(t, db)
	page, err := st.QueryRollouts(t.Context(), store.RolloutQuery{})
	if err != nil || len(page.Items) == 0 {
		t.Fatalf("QueryRollouts = %d, %v", len(page.Items), err)
	}
	onTheWay := 0
	for _, r := range page.Items {
		spans, err := st.QuerySpans(t.Context(), store.SpanQuery{RolloutID: r.RolloutID, Paging: store.Paging{SortBy: "sequence_id"}})
		if err != nil {
			t.Fatal(err)
		}
		read := credit.Read(r.RolloutID, "", spans.Items)
		if read.Final == nil || len(read.Calls) == 0 || len(read.Unreadable) > 0 {
			t.Fatalf("rollout %s: final %v, %d calls, %v", r.RolloutID, read.Final, len(read.Calls), read.Unreadable)
		}
		onTheWay += len(read.Rewards) - 1
		for i, c := range read.Calls {
			if !strings.Contains(c.State, "You are at ") {
				t.Errorf("rollout %s: call %d stood at %q", r.RolloutID, i, c.State)
			}
		}
	}
	if onTheWay == 0 {
		t.Errorf("no reward on the way in %d rollouts", len(page.Items))
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	lessontest.Refuses(t, example, map[string][]string{
		`--credit: `:           {"--credit", "fair"},
		`unexpected argument`:  {"x"},
		"--steps -1":           {"--steps", "-1"},
		"provided but not":     {"--nope"},
		"--port 70000: must b": {"--port", "70000"},
	})
	var out, errs bytes.Buffer
	if status := mainStatus([]string{"--help"}, small(), &out, &errs); status != 0 || !strings.Contains(out.String(), "-shuffle-rewards") {
		t.Errorf("grid --help = %d, %q", status, out.String())
	}
}
