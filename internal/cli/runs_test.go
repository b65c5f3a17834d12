package cli_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/store"
	"agentlightning/tracking"
)

// runsWorld is a server with a run that succeeded, with two rollouts, and one
// that failed.
func runsWorld(t *testing.T) (w *world, good, bad string) {
	t.Helper()
	w = &world{url: serve(t, "--db", "sqlite:"+filepath.Join(t.TempDir(), "agl.db"))}
	w.client = connect(t, w.url)
	ctx := t.Context()
	begin := func(seed int64, peak float64) *algorithm.Run {
		run, err := algorithm.Begin(ctx, algorithm.Env{Store: w.client}, "pg", map[string]any{"steps": 2, "learning_rate": map[string]any{"peak": peak}}, seed)
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	record := func(run *algorithm.Run, step int, values map[string]float64) {
		if err := errors.Join(run.Record(ctx, step, values), run.Checkpoint(ctx, step, fmt.Sprintf("/kept/%d", step), new(values["accuracy"]), struct{}{})); err != nil {
			t.Fatal(err)
		}
	}
	run := begin(7, 0.05)
	record(run, 0, map[string]float64{"accuracy": 0.25})
	for member, reward := range []float64{1, 0} {
		w.rollout(ctx, t, store.EnqueueRequest{
			Input: []byte(`"6*7"`), Metadata: fmt.Appendf(nil, `{"agl.run_id":%q,"agl.step":1,"agl.group":"0","agl.member":%d}`, run.RunID, member),
		}, agl.AttemptSucceeded, rewarded(1, reward))
	}
	record(run, 1, map[string]float64{"accuracy": 0.75, "reward": 0.5})
	record(run, 2, map[string]float64{"accuracy": 0.5, "reward": 0.25})
	other := begin(8, 0.1)
	record(other, 0, map[string]float64{"accuracy": 0.125})
	if err := run.Finish(ctx, nil); err != nil {
		t.Fatal(err)
	}
	_ = other.Finish(ctx, errors.New("the learner broke")) // it gives the error back
	return w, run.RunID, other.RunID
}

func TestRunsListShowCompare(t *testing.T) {
	t.Parallel()
	w, good, bad := runsWorld(t)
	out, _ := w.agl(t, 0, "runs", "ls", "--table")
	wantParts(t, out, "BEST SCORE", bad, "pg", "failed", "8", "0.125 val/reward", "the learner broke", good, "succeeded", "7", "2", "0.75 val/reward")
	if out, _ = w.agl(t, 0, "runs", "ls", "--status", "failed"); len(ids(out)) != 1 || ids(out)[0] != bad {
		t.Errorf("failed runs: %s", out)
	}
	if out, _ = w.agl(t, 0, "runs", "ls", "--algorithm", "sft", "--table"); out != "no runs\n" {
		t.Errorf("runs of sft: %s", out)
	}
	out, _ = w.agl(t, 0, "runs", "ls", "--limit", "1", "--json")
	var line struct {
		ID    string  `json:"run_id"`
		Error string  `json:"error"`
		Best  float64 `json:"best_score"`
		Code  string  `json:"code_version"`
	}
	if err := json.Unmarshal([]byte(out), &line); err != nil || line.ID != bad || line.Error != "the learner broke" || line.Best != 0.125 || line.Code == "" {
		t.Errorf("ls --json = %s, %v", out, err)
	}

	out, _ = w.agl(t, 0, "runs", "show", good, "--table")
	wantParts(t, out, good, "succeeded", "seed       7", "code       ", "best       0.75 val/reward at step 1",
		"learning_rate.peak  0.05", "metrics of 3 steps", "training/reward", "0.25", "val/reward", "0.5",
		"3 checkpoints recorded", "/kept/2", "samples of step 1", "succeeded  1 ", "succeeded  0 ", `"6*7"`)
	out, _ = w.agl(t, 0, "runs", "show", bad, "--table")
	wantParts(t, out, "failed", "error      the learner broke")
	out, _ = w.agl(t, 0, "runs", "show", good, "--json", "--samples", "1")
	var shown struct {
		Metrics     []agl.StepMetrics  `json:"metrics"`
		Checkpoints []agl.Checkpoint   `json:"checkpoints"`
		Samples     []*tracking.Sample `json:"samples"`
	}
	if err := json.Unmarshal([]byte(out), &shown); err != nil || len(shown.Metrics) != 3 || len(shown.Checkpoints) != 3 || len(shown.Samples) != 1 || *shown.Samples[0].Reward != 1 {
		t.Errorf("show --json = %s, %v", out, err)
	}

	out, _ = w.agl(t, 0, "runs", "compare", good, bad, "--table")
	wantParts(t, out, "status", "succeeded", "failed", "best score", "0.75 val/reward at 1", "0.125 val/reward at 0",
		"seed", "7", "8", "learning_rate.peak", "0.05", "0.1", "training/reward", "0.25 (best 0.5 at 1)", "-", "val/reward", "0.5 (best 0.75 at 1)", "0.125",
		"of the configuration are the same")
	if strings.Contains(out, "code_version") {
		t.Errorf("what is the same is shown: %s", out)
	}
	out, _ = w.agl(t, 0, "runs", "compare", good, bad, "--json", "--metrics", "^val/reward$")
	var c tracking.Comparison
	if err := json.Unmarshal([]byte(out), &c); err != nil || len(c.Metrics) != 1 || c.Metrics[0].Figures[0].MaxStep != 1 {
		t.Errorf("compare --json = %s, %v", out, err)
	}
	for want, args := range map[string][]string{
		"give 2 run ids": {"compare", good}, "give one run id": {"show"}, "--limit -1": {"ls", "--limit", "-1"},
		"--status done": {"ls", "--status", "done"}, "--metrics": {"compare", good, bad, "--metrics", "("}, "--samples -1": {"show", good, "--samples", "-1"},
	} {
		if _, stderr := w.agl(t, 2, append([]string{"runs"}, args...)...); !strings.Contains(stderr, want) {
			t.Errorf("agl runs %v: %s, want %q", args, stderr, want)
		}
	}
	if _, stderr := w.agl(t, 1, "runs", "show", "run-none"); !strings.Contains(stderr, "run-none") {
		t.Errorf("show of an unknown run: %s", stderr)
	}
}

func TestRunsExport(t *testing.T) {
	t.Parallel()
	w, good, bad := runsWorld(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "runs.jsonl")
	out, _ := w.agl(t, 0, "runs", "export", good, bad, "--to", file)
	wantParts(t, out, "holds 12 lines of 2 runs")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var l tracking.Line
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		kinds[l.Kind]++
		if l.Kind == "sample" && (l.Sample.Reward == nil || l.RunID != good) {
			t.Errorf("sample: %s", line)
		}
	}
	if got := fmt.Sprint(kinds); got != "map[checkpoint:4 metrics:4 run:2 sample:2]" {
		t.Errorf("lines: %s", got)
	}
	w.agl(t, 2, "runs", "export", good, "--to", file) // it exists
	if out, _ = w.agl(t, 0, "runs", "export", good, "--no-samples"); strings.Count(out, "\n") != 7 || strings.Contains(out, `"sample"`) {
		t.Errorf("without samples: %s", out)
	}

	for range 2 { // the second time replaces the first
		w.agl(t, 0, "runs", "export", good, bad, "--form", "tensorboard", "--to", dir)
	}
	for id, steps := range map[string]int{good: 3, bad: 1} {
		files, err := filepath.Glob(filepath.Join(dir, id, "events.out.tfevents.*"))
		if err != nil || len(files) != 1 {
			t.Fatalf("event files of %s: %v, %v", id, files, err)
		}
		f, err := os.Open(files[0])
		if err != nil {
			t.Fatal(err)
		}
		events, err := tracking.ReadEvents(f)
		if err := errors.Join(err, f.Close()); err != nil || len(events) != 2+steps {
			t.Errorf("events of %s: %d, %v, want %d", id, len(events), err, 2+steps)
		}
	}
	for want, args := range map[string][]string{
		"--form csv": {"--form", "csv"}, "--to: the folder": {"--form", "tensorboard"}, "--mlflow": {"--form", "mlflow", "--mlflow", "localhost"},
		"--experiment: --form jsonl": {"--experiment", "x"}, "--no-samples: --form": {"--no-samples", "--form", "tensorboard", "--to", dir},
	} {
		if _, stderr := w.agl(t, 2, append([]string{"runs", "export", good}, args...)...); !strings.Contains(stderr, want) {
			t.Errorf("agl runs export %v: %s, want %q", args, stderr, want)
		}
	}
	if _, stderr := w.agl(t, 1, "runs", "export", good, "--form", "mlflow", "--mlflow", "http://127.0.0.1:1"); !strings.Contains(stderr, "MLflow at http://127.0.0.1:1") {
		t.Errorf("nobody there: %s", stderr)
	}
}
