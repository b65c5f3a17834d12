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
	"agentlightning/examples/rag/world"
	"agentlightning/learner/native"
	"agentlightning/semconv"
	"agentlightning/store"
)

// TestMain lets the test binary be the retriever that the agent starts.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == retrieverCommand {
		os.Exit(mainStatus(os.Args[1:], tuned(), os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// small is a plan that goes through all phases in some seconds; it is far too
// short to learn much.
func small() plan {
	p := tuned()
	p.train, p.validation = 40, 6
	p.warmupSteps, p.warmupRows = 60, 24
	p.steps, p.tasks, p.group, p.epochs, p.validateEvery = 2, 2, 4, 1, 1
	p.model = native.Config{Dim: 32, Layers: 1, Heads: 2, Hidden: 64, Context: 112}
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
	db := filepath.Join(t.TempDir(), "rag.db")
	r, out := playExample(t, "--seed", "5", "--db", db)
	if r.Steps != 2 || len(r.Curve) != 3 || r.FailedRollouts != 0 || len(r.Samples) != wantedSamples || len(r.Preview) != 2*previewed {
		t.Errorf("report = %+v, want 2 steps, no failed rollout, %d samples and a preview of %d", r, wantedSamples, previewed)
	}
	for _, text := range []string{"credit and advantage by " + byRole, "\nF1 of the answer ", "\n  before  ", db} {
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
	part := map[string]string{writer: partSearching, answerer: partAnswer}
	calls, toolCalls := map[string]int{}, 0
	for _, r := range page.Items {
		spans, err := st.QuerySpans(t.Context(), store.SpanQuery{RolloutID: r.RolloutID, Paging: store.Paging{SortBy: "sequence_id"}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range spans.Items {
			if spans.Items[i].Name == semconv.SpanOperation {
				toolCalls++
			}
		}
		read := credit.Read(r.RolloutID, "", spans.Items)
		parts := lesson.Parts(read.Dimensions)
		if len(parts) != 5 || read.Dimensions[0].Name != partAnswer {
			t.Fatalf("rollout %s: rewards %v", r.RolloutID, read.Dimensions)
		}
		earned, err := rule.Credit([]credit.Rollout{read})
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range read.Calls {
			calls[c.Agent]++
			if got := earned[0][i]; !c.Usable() || got.Reward == nil || *got.Reward != parts[part[c.Agent]] {
				t.Errorf("rollout %s: call %d by the %s is usable: %v, earned %v of %v", r.RolloutID, i, c.Agent, c.Usable(), got.Reward, parts)
			}
		}
		if last := read.Calls[len(read.Calls)-1]; last.Agent != answerer {
			t.Errorf("rollout %s: the last call is that of the %s", r.RolloutID, last.Agent)
		}
	}
	if calls[answerer] != len(page.Items) || calls[writer] < len(page.Items) || toolCalls == 0 {
		t.Errorf("%d rollouts, calls by agent %v, %d of the tool", len(page.Items), calls, toolCalls)
	}
}

func TestRewards(t *testing.T) {
	t.Parallel()
	q := world.Question{Answer: "Ada Kern", Evidence: []string{"Amber Mills", "Torvik"}}
	for _, tt := range []struct {
		found    []world.Article
		searches int
		said     string
		want     []float64
	}{
		{nil, 0, "Answer: Ada Kern", []float64{1, 1, 0, 0, 0}},
		{[]world.Article{{Title: "Torvik"}}, 2, "Ada Kern", []float64{1 - formPenalty, 1, 0.5, 2, 0.5 - 2*searchCost}},
		{[]world.Article{{Title: "Torvik"}, {Title: "Amber Mills"}}, 3, "", []float64{-formPenalty, 0, 1, 3, 1 - 3*searchCost}},
	} {
		var got []float64
		for _, d := range rewards(q, tt.found, tt.searches, tt.said) {
			got = append(got, d.Value)
		}
		if diff := cmp.Diff(tt.want, got, cmpopts.EquateApprox(0, 1e-12)); diff != "" {
			t.Errorf("%q after %d searches: answer, f1, found, searches, searching (-want +got):\n%s", tt.said, tt.searches, diff)
		}
	}
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
		if trained.ShuffleRewards || !control.ShuffleRewards || trained.Start != control.Start {
			t.Errorf("seed %d: report and control do not belong together", seed)
		}
		if trained.End.Answer <= trained.Start.Answer || trained.End.Answer <= control.End.Answer || trained.End.Found <= control.End.Found {
			t.Errorf("seed %d: %+v, control %+v: nothing was learned", seed, trained.End, control.End)
		}
		row := fmt.Sprintf("| %d | %.2f | %.2f | %.2f | %.1f | %.1f | %.1f |\n", seed,
			trained.Start.F1, trained.End.F1, control.End.F1, 100*trained.Start.Found, 100*trained.End.Found, 100*control.End.Found)
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
		"--credit: ":                       {"--credit", "fair"},
		"unexpected argument":              {"x"},
		"--steps -1":                       {"--steps", "-1"},
		"provided but not":                 {"--nope"},
		retrieverCommand + ` "x": must be`: {retrieverCommand, "x"},
	})
}
