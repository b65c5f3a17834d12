package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"agentlightning/adapter/credit"
	"agentlightning/examples/internal/lesson"
	"agentlightning/examples/internal/lessontest"
	"agentlightning/examples/twenty-questions/game"
	"agentlightning/learner/native"
	"agentlightning/store"
)

// small is a plan that goes through all phases in a second; it is far too short
// to learn much.
func small() plan {
	p := tuned()
	p.warmupSteps, p.warmupRows = 60, 32
	p.steps, p.tasks, p.group, p.validateEvery = 2, 2, 4, 1
	p.model = native.Config{Dim: 32, Layers: 1, Heads: 2, Hidden: 64, Context: 40}
	return p
}

// example is the command with the small plan.
func example(args []string, stdout, stderr io.Writer) int {
	return mainStatus(args, small(), stdout, stderr)
}

// playExample runs the example and returns its report and what it printed.
func playExample(t *testing.T, args ...string) (report, string) {
	t.Helper()
	return lessontest.Play[report](t, example, append([]string{"--port", "0", "--agents", "8"}, args...)...)
}

// A seed repeats a run, and every call earns the part of the reward of the agent
// that made it.
func TestWholeLoop(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "questions.db")
	r, out := playExample(t, "--seed", "5", "--db", db)
	if r.Steps != 2 || len(r.Curve) != 3 || r.FailedRollouts != 0 || len(r.Games) != len(shown) || len(r.Preview) != 2*previewed {
		t.Errorf("report = %+v, want 2 steps, no failed rollout, %d games and a preview of %d", r, len(shown), previewed)
	}
	for _, text := range []string{"credit and advantage by " + byRole, "\nguessed ", "\nthe whale\n  before  ", db} {
		if !strings.Contains(out, text) {
			t.Errorf("output lacks %q:\n%s", text, out)
		}
	}
	again, _ := playExample(t, "--seed", "5")
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
	rule, err := credit.Parse(byRole)
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]int{}
	for _, r := range page.Items {
		spans, err := st.QuerySpans(t.Context(), store.SpanQuery{RolloutID: r.RolloutID, Paging: store.Paging{SortBy: "sequence_id"}})
		if err != nil {
			t.Fatal(err)
		}
		read := credit.Read(r.RolloutID, "", spans.Items)
		parts := lesson.Parts(read.Dimensions)
		if len(parts) != 4 || read.Dimensions[0].Name != solved || parts[answerer] < 0 || parts[answerer] > 1 {
			t.Fatalf("rollout %s: rewards %v", r.RolloutID, read.Dimensions)
		}
		earned, err := rule.Credit([]credit.Rollout{read})
		if err != nil {
			t.Fatal(err)
		}
		asked := 0.0
		for i, c := range read.Calls {
			calls[c.Agent]++
			if c.Agent == answerer {
				asked++
				if !strings.HasPrefix(c.State, "You think of the ") {
					t.Errorf("rollout %s: the answerer sees %q", r.RolloutID, c.State)
				}
			} else if strings.Contains(c.State, "think") {
				t.Errorf("rollout %s: the asker sees the thing: %q", r.RolloutID, c.State)
			}
			if got := earned[0][i]; !c.Usable() || got.Reward == nil || *got.Reward != parts[c.Agent] {
				t.Errorf("rollout %s: call %d by the %s is usable: %v, earned %v, want %v", r.RolloutID, i, c.Agent, c.Usable(), got.Reward, parts[c.Agent])
			}
		}
		if asked != parts[questions] {
			t.Errorf("rollout %s: %v answers, the reward says %v questions", r.RolloutID, asked, parts[questions])
		}
	}
	if calls[asker] == 0 || calls[answerer] == 0 || len(calls) != 2 {
		t.Errorf("calls by agent: %v, want some of each", calls)
	}
}

func TestRewards(t *testing.T) {
	t.Parallel()
	g, err := game.New(game.Task{Thing: "whale"})
	if err != nil {
		t.Fatal(err)
	}
	want := func(when string, values ...float64) {
		t.Helper()
		var got []float64
		for _, d := range rewards(g) {
			got = append(got, d.Value)
		}
		if diff := cmp.Diff(values, got, cmpopts.EquateApprox(0, 1e-12)); diff != "" {
			t.Errorf("%s: solved, questions, asker, answerer (-want +got):\n%s", when, diff)
		}
	}
	want("nothing asked", 0, 0, 0, 1)
	g.Answered("alive", "yes")
	g.Answered("metal", "yes")
	want("a truth and a lie", 0, 2, 0, 0.5)
	g.Guess("whale")
	want("guessed all the same", 1, 2, 1-2*questionCost, 0.5)
}

// The README shows what the reports in figures say, and they say that rewards are
// what the agents learned from.
func TestFigures(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for seed := int64(1); seed <= 3; seed++ {
		trained, control := lessontest.Figures[report](t, seed)
		if trained.ShuffleRewards || !control.ShuffleRewards || !cmp.Equal(trained.Start, control.Start) {
			t.Errorf("seed %d: report and control do not belong together", seed)
		}
		if trained.End.Solved <= trained.Start.Solved || trained.End.Solved <= control.End.Solved {
			t.Errorf("seed %d: %+v, control %+v: nothing was learned", seed, trained.End, control.End)
		}
		row := fmt.Sprintf("| %d | %.1f | %.1f | %.1f | %s | %s | %s |\n", seed,
			100*trained.Start.Solved, 100*trained.End.Solved, 100*control.End.Solved,
			percent(trained.Start.Truths), percent(trained.End.Truths), percent(control.End.Truths))
		if !strings.Contains(string(readme), row) {
			t.Errorf("the README lacks %q", row)
		}
		if seed == 1 {
			var out bytes.Buffer
			if err := trained.print(&out); err != nil {
				t.Fatal(err)
			}
			lessontest.ReadmeShows(t, strings.TrimPrefix(out.String(), "\n"))
		}
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	lessontest.Refuses(t, example, map[string][]string{
		"--credit: ":          {"--credit", "fair"},
		"unexpected argument": {"x"},
		"--agents 0":          {"--agents", "0"},
		"provided but not":    {"--nope"},
	})
}
