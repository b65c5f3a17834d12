package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	agl "agentlightning"
	"agentlightning/examples/calc/problem"
	"agentlightning/examples/internal/lesson"
	"agentlightning/examples/internal/lessontest"
	"agentlightning/internal/cli"
	"agentlightning/learner/native"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/sqlite"
)

// TestMain lets the test binary be the processes that tests and agents start:
// the calculator, the server, and the example itself with its small plan.
func TestMain(m *testing.M) {
	switch child := os.Getenv("CALC_TEST_CHILD"); {
	case len(os.Args) == 2 && os.Args[1] == calculatorCommand:
		os.Exit(mainStatus(os.Args[1:], tuned(), os.Stdout, os.Stderr))
	case child == "agl":
		os.Exit(cli.Main())
	case child == "calc":
		os.Exit(mainStatus(os.Args[1:], small(), os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// small is a plan that goes through all phases in a second or two; it is far
// too short to learn much.
func small() plan {
	p := tuned()
	p.problems = problem.Config{Train: 60, Validation: 12, Test: 10, TestUnseen: 10}
	p.warmupSteps, p.warmupRows = 40, 16
	p.steps, p.tasks, p.group, p.epochs, p.validateEvery = 3, 4, 4, 1, 2
	p.silence = 2
	p.model = native.Config{Dim: 32, Layers: 1, Heads: 2, Hidden: 64, Context: 96}
	return p
}

func parse(t *testing.T, args ...string) options {
	t.Helper()
	dir := t.TempDir()
	o, err := parseOptions(append([]string{
		"--port", "0", "--db", filepath.Join(dir, "calc.db"),
		"--data", filepath.Join(dir, "data"), "--report", filepath.Join(dir, "report.json"), "--agents", "8",
	}, args...), &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func readReport(t *testing.T, file string) report {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestWholeLoop runs server, agents, tool, proxy, store and learner together.
func TestWholeLoop(t *testing.T) {
	t.Parallel()
	o := parse(t)
	var out, errs bytes.Buffer
	if err := run(t.Context(), o, small(), &out, &errs); err != nil {
		t.Fatalf("run = %v\n%s", err, out.String())
	}
	r := readReport(t, o.Report)
	if len(r.Curve) != 4 || r.Steps != 3 || r.FailedRollouts != 0 || r.Rollouts != 3*4*4+3*12+2*20 {
		t.Errorf("report = %+v, want 3 steps, %d rollouts and none failed", r, 3*4*4+3*12+2*20)
	}
	for _, text := range []string{"http://127.0.0.1:", "right answers", "before", "after", o.DB, "Try next"} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("output lacks %q:\n%s", text, out.String())
		}
	}
	for _, name := range []string{"train", "validation", "test"} {
		if _, err := os.Stat(filepath.Join(o.folder, "problems", name+".jsonl")); err != nil {
			t.Errorf("problems of people: %v", err)
		}
	}
	checkDatabase(t, o.DB)
}

// checkDatabase looks at what the run left: spans with token ids and the runs.
func checkDatabase(t *testing.T, file string) {
	t.Helper()
	backend, err := sqlite.Open(t.Context(), sqlite.Config{Path: file})
	if err != nil {
		t.Fatal(err)
	}
	st := engine.New(backend, engine.Config{})
	defer func() {
		if err := st.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	}()
	runs, err := st.Runs(t.Context(), 10)
	if err != nil || len(runs) != 3 {
		t.Fatalf("Runs = %d, %v, want the example, its warm-up and its training", len(runs), err)
	}
	for _, r := range runs {
		if r.Status != agl.RunSucceeded {
			t.Errorf("run %s of %s is %s: %s", r.RunID, r.Algorithm, r.Status, r.Error)
		}
	}
	page, err := st.QueryRollouts(t.Context(), store.RolloutQuery{Paging: store.Paging{Limit: 1}})
	if err != nil || len(page.Items) != 1 {
		t.Fatalf("QueryRollouts = %v", err)
	}
	spans, err := st.QuerySpans(t.Context(), store.SpanQuery{RolloutID: page.Items[0].RolloutID})
	if err != nil {
		t.Fatal(err)
	}
	if lines := lesson.Conversation(spans.Items, ""); len(lines) < 2 || lines[0].Role != "user" || lines[len(lines)-1].Role != "assistant" {
		t.Errorf("conversation = %v, want it to begin with the question and to end with the model", lines)
	}
}

// TestRepeatsAndResumes interrupts a run, goes on with it, and expects the
// figures of one that was not interrupted.
func TestRepeatsAndResumes(t *testing.T) {
	t.Parallel()
	whole := parse(t, "--seed", "5")
	var out bytes.Buffer
	if err := run(t.Context(), whole, small(), &out, &out); err != nil {
		t.Fatalf("run = %v", err)
	}

	cut := parse(t, "--seed", "5")
	ctx, cancel := context.WithCancel(t.Context())
	stopping := &stopAt{text: "step 1/3", stop: cancel}
	if err := run(ctx, cut, small(), stopping, &out); err == nil || ctx.Err() == nil {
		t.Fatalf("interrupted run = %v, want an error", err)
	}
	cut.resume = true
	if err := run(t.Context(), cut, small(), &out, &out); err != nil {
		t.Fatalf("resumed run = %v", err)
	}
	a, b := readReport(t, whole.Report), readReport(t, cut.Report)
	a.Seconds, b.Seconds, a.TokensPerSecond, b.TokensPerSecond = 0, 0, 0, 0
	if diff := cmp.Diff(a, b, cmpopts.IgnoreUnexported(lesson.Report{})); diff != "" {
		t.Errorf("report with an interruption differs (-whole +interrupted):\n%s", diff)
	}
	if err := run(t.Context(), cut, small(), &out, &out); err == nil || !strings.Contains(err.Error(), "is complete") {
		t.Errorf("resuming a complete run = %v, want a refusal", err)
	}
}

// stopAt calls stop when a text is written.
type stopAt struct {
	text string
	stop func()
}

func (s *stopAt) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(s.text)) {
		s.stop()
	}
	return len(p), nil
}

// TestModelEndpoint judges a model of somebody else; here it is one that knows
// nothing, behind the same protocol.
func TestModelEndpoint(t *testing.T) {
	t.Parallel()
	model, err := native.New(native.Config{Dim: 32, Layers: 1, Heads: 2, Hidden: 64, Context: 96, Seed: 1}, newTokenizer())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = model.Close() }()
	server := httptest.NewServer(native.NewServer(model, native.ServerConfig{Name: "stranger"}))
	defer server.Close()
	o := parse(t, "--model-endpoint", server.URL+"/v1", "--model", "stranger")
	var out bytes.Buffer
	if err := run(t.Context(), o, small(), &out, &out); err != nil {
		t.Fatalf("run = %v", err)
	}
	if r := readReport(t, o.Report); r.After > 0.2 || r.Rollouts != 32 || r.FailedRollouts != 0 {
		t.Errorf("report = %+v, want 32 rollouts and hardly a right answer", r)
	}
}

func TestModelEndpointThatIsDown(t *testing.T) {
	t.Parallel()
	o := parse(t, "--model-endpoint", "http://127.0.0.1:1/v1", "--model", "nobody")
	var out bytes.Buffer
	err := run(t.Context(), o, small(), &out, &out)
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("run = %v, want an error that names the backend", err)
	}
}

// TestProblemsOfPeople trains on the files that another run wrote, and names the
// line that is broken.
func TestProblemsOfPeople(t *testing.T) {
	t.Parallel()
	d, err := small().dataset(3, "")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := writeProblems(folder, d); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), parse(t, "--problems", folder, "--steps", "1"), small(), &out, &out); err != nil {
		t.Fatalf("run = %v", err)
	}
	file := filepath.Join(folder, "train.jsonl")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	lines[4] = []byte("{\"id\": \"train-4\", \n")
	if err := os.WriteFile(file, bytes.Join(lines, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	err = run(t.Context(), parse(t, "--problems", folder), small(), &out, &out)
	if err == nil || !strings.Contains(err.Error(), file+":5: ") {
		t.Errorf("run with a broken line = %v, want an error that begins with file and line", err)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	lessontest.Refuses(t, func(args []string, stdout, stderr io.Writer) int { return mainStatus(args, small(), stdout, stderr) }, map[string][]string{
		"--role boss: must be all, algorithm or runner":    {"--role", "boss"},
		"needs --server URL":                               {"--role", "runner"},
		"--server goes with":                               {"--server", "http://x"},
		"go together":                                      {"--model", "x"},
		"flag provided but not defined: -nope; see --help": {"--nope"},
		`unexpected argument "x"`:                          {"x"},
		"--agents -1":                                      {"--agents", "-1"},
	})
	var out, errs bytes.Buffer
	if status := mainStatus([]string{"--help"}, small(), &out, &errs); status != 0 || !strings.Contains(out.String(), "-shuffle-rewards") {
		t.Errorf("calc --help = %d, %q", status, out.String())
	}
}

// TestThreeProcesses plays the three roles against one server in one process.
func TestThreeProcesses(t *testing.T) {
	t.Parallel()
	backend, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "agl.db")})
	if err != nil {
		t.Fatal(err)
	}
	o := parse(t)
	s, err := lesson.OpenSite(t.Context(), o.Port, backend, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("close = %v", err)
		}
	}()
	o.server = s.URL
	runnerOptions := o
	o.role, runnerOptions.role = roleAlgorithm, roleRunner
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for range 2 {
		go func() { ended <- run(ctx, runnerOptions, small(), &bytes.Buffer{}, &bytes.Buffer{}) }()
	}
	var out bytes.Buffer
	if err := run(t.Context(), o, small(), &out, &out); err != nil {
		t.Errorf("algorithm = %v\n%s", err, out.String())
	}
	stop()
	for range 2 {
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("runner = %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("a runner did not stop")
		}
	}
	if r := readReport(t, o.Report); len(r.Curve) != 4 || r.FailedRollouts != 0 {
		t.Errorf("report = %+v, want 3 steps and no failure", r)
	}
}
