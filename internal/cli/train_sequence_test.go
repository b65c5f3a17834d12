package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/dataset"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/sqlite"
)

// stagesPart improves prompts, then weights, then prompts again. The policy is
// the built-in model, which knows nothing, so half of the reward is for any
// letter and half for the prompt.
const stagesPart = `learner: {use: native, dim: 16, heads: 1, layers: 1, hidden: 16}
stages:
  - name: words
    algorithm: {use: gepa, model: writer, minibatch: 2, max_evaluations: 40}
  - name: weights
    algorithm: {use: grpo, steps: 3, tasks: 3, group_size: 4, learning_rate: 0.01, validate_every: 3}
  - name: more words
    algorithm: {use: gepa, model: writer, minibatch: 2, max_evaluations: 40}
`

// stagesRecipe is a recipe of three stages in which one model is trained.
func stagesRecipe(t *testing.T, models *wordModels) string {
	t.Helper()
	path := wordRecipe(t, models, stagesPart)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The policy is the learner's, not the backend's.
	var lines []string
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, "policy=") && !strings.HasPrefix(line, "llm:") {
			lines = append(lines, strings.Replace(line, ": agent", ": letters", 1))
		}
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// openRecipeStore opens the database of a recipe.
func openRecipeStore(t *testing.T, recipe string) *engine.Store {
	t.Helper()
	backend, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(filepath.Dir(recipe), "agl.db")})
	if err != nil {
		t.Fatal(err)
	}
	return engine.New(backend, engine.Config{})
}

// A sequence is killed in its second stage and resumed: the first stage is not
// done again, the weights are trained with the prompts of the first stage, and the
// third begins with both.
func TestTrainSequence(t *testing.T) {
	t.Parallel()
	models := newWordModels(t)
	path := stagesRecipe(t, models)
	cmd, out := process(t, "train", path, "--log-level", "error")
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for !strings.Contains(out.String(), "  1/3  reward") {
		select {
		case err := <-ended:
			t.Fatalf("ended too early: %v\n%s", err, out)
		case <-look.C:
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
	rewritten, _ := models.counts()

	cmd, out = process(t, "train", path, "--log-level", "error", "--resume", "last")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := out.String()
	for _, want := range []string{"stage 2 of 3: weights, run run-", "stage 3 of 3: more words, run run-", "result: weights of the last step in ", "result: prompts rules in resources run-"} {
		if !strings.Contains(text, want) {
			t.Errorf("output lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "stage 1 of 3") {
		t.Errorf("the first stage is done again:\n%s", text)
	}
	s := openRecipeStore(t, path)
	defer s.Close()
	runs, err := s.Runs(t.Context(), 10)
	if err != nil || len(runs) != 4 {
		t.Fatalf("%d runs, %v; want those of the sequence and its three stages", len(runs), err)
	}
	byName := map[string][]agl.Run{}
	for _, r := range runs {
		if r.Status != agl.RunSucceeded {
			t.Errorf("run %s of %s is %s: %s", r.RunID, r.Algorithm, r.Status, r.Error)
		}
		byName[r.Algorithm] = append(byName[r.Algorithm], r)
	}
	if len(byName["sequence"]) != 1 || len(byName["pg"]) != 1 || len(byName["gepa"]) != 2 {
		t.Fatalf("runs are of %v", byName)
	}
	kept, err := s.LatestCheckpoint(t.Context(), byName["sequence"][0].RunID)
	if err != nil {
		t.Fatal(err)
	}
	var state struct {
		Stages []struct {
			RunID   string             `json:"run_id"`
			Prompts agl.NamedResources `json:"prompts"`
			Weights string             `json:"weights"`
			Done    bool               `json:"done"`
		}
	}
	if err := json.Unmarshal(kept.State, &state); err != nil || len(state.Stages) != 3 {
		t.Fatalf("state %s, %v", kept.State, err)
	}
	first := state.Stages[0].Prompts.Get("rules")
	if prompts := promptsOf(t, s, state.Stages[1].RunID); len(prompts) != 1 || prompts[0] != first.(agl.PromptTemplate).Template {
		t.Errorf("weights were trained with prompts %q, want %q", prompts, first)
	}
	if prompts := promptsOf(t, s, state.Stages[2].RunID); len(prompts) == 0 || prompts[0] != first.(agl.PromptTemplate).Template {
		t.Errorf("the third stage began with %q, want %q", prompts, first)
	}
	if state.Stages[1].Weights == "" {
		t.Error("the second stage left no weights")
	}
	if total, _ := models.counts(); total <= rewritten {
		t.Error("the third stage asked for no rewrite")
	}
}

// promptsOf lists the different prompts that the rollouts of a run had, in their
// order.
func promptsOf(t *testing.T, s store.Store, runID string) []string {
	t.Helper()
	page, err := s.QueryRollouts(t.Context(), store.RolloutQuery{Paging: store.Paging{SortBy: "start_time"}})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range page.Items {
		if metadataRun(r.Metadata) != runID {
			continue
		}
		if r.ResourcesID == nil {
			t.Fatalf("rollout %s has no resources", r.RolloutID)
		}
		resources, err := s.Resources(t.Context(), *r.ResourcesID)
		if err != nil {
			t.Fatal(err)
		}
		text := resources.Resources.Get("rules").(agl.PromptTemplate).Template
		if len(out) == 0 || out[len(out)-1] != text {
			out = append(out, text)
		}
	}
	return out
}

func metadataRun(metadata json.RawMessage) string {
	var m map[string]any
	if json.Unmarshal(metadata, &m) != nil {
		return ""
	}
	return fmt.Sprint(m["agl.run_id"])
}

// Rollouts of one training are what another one learns from, without an agent.
func TestTrainOnRolloutsOfAnotherRun(t *testing.T) {
	t.Parallel()
	path := stagesRecipe(t, newWordModels(t))
	const one = "stages=[{name: weights, algorithm: {use: grpo, steps: 2, tasks: 3, group_size: 4, learning_rate: 0.01}}]"
	status, out, errs := run(t, "train", path, one, "--log-level", "error")
	if status != 0 {
		t.Fatalf("status %d: %s%s", status, out, errs)
	}
	_, weights, found := strings.Cut(out, "result: weights of the last step in ")
	if weights, _, _ = strings.Cut(weights, "\n"); !found {
		t.Fatalf("output names no weights:\n%s", out)
	}
	runID := filepath.Base(filepath.Dir(weights))
	stored := filepath.Join(filepath.Dir(path), "stored.yaml")
	for name, algorithm := range map[string]string{
		"sft":     "{use: sft, steps: 3, batch: 4, learning_rate: 0.01, stored: {run_id: %s}, select: {top: 0.5}}",
		"offline": "{use: offline, method: grpo, steps: 2, tasks: 2, learning_rate: 0.01, run: %s}",
	} {
		text := fmt.Sprintf("db: sqlite:agl.db\nlearner: {use: native, checkpoint: %q}\nalgorithm: "+algorithm+"\n", weights, runID)
		if err := os.WriteFile(stored, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		status, out, errs = run(t, "train", stored, "--log-level", "error")
		if status != 0 || !strings.Contains(out, " is complete after ") || !strings.Contains(out, " 0 rollouts\n") {
			t.Errorf("%s: status %d: %s%s", name, status, out, errs)
		}
	}
}

// A run that fails before its algorithm begins has failed, and stages that were
// not reached have no run.
func TestTrainSettlesRuns(t *testing.T) {
	t.Parallel()
	path := stagesRecipe(t, newWordModels(t))
	status, out, errs := run(t, "train", path, "stages.0.algorithm.max_evaluations=3", "--log-level", "error")
	if status != 1 || !strings.Contains(errs, "stage words: ") || !strings.Contains(out, "stage weights was not reached\nstage more words was not reached\n") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	s := openRecipeStore(t, path)
	defer s.Close()
	runs, err := s.Runs(t.Context(), 10)
	if err != nil || len(runs) != 2 {
		t.Fatalf("%d runs, %v; want that of the sequence and that of its first stage", len(runs), err)
	}
	for _, r := range runs {
		if r.Status != agl.RunFailed || !strings.Contains(r.Error, "MaxEvaluations: 3: must be at least") {
			t.Errorf("run %s of %s is %s: %q; want failed, and why", r.RunID, r.Algorithm, r.Status, r.Error)
		}
		log, err := s.RunLog(t.Context(), store.LogQuery{RunID: r.RunID, Newest: true, Limit: 1})
		if err != nil || len(log.Lines) != 1 || log.Lines[0].Level != agl.LogError || !strings.Contains(string(log.Lines[0].Attributes), "MaxEvaluations: 3: must be at least") {
			t.Errorf("log of run %s of %s ends with %+v, %v; want why it failed", r.RunID, r.Algorithm, log.Lines, err)
		}
	}
}

// What the trainer of a learner writes is in the log of the run, and why that failed
// is its last line, although nothing of it is shown.
func TestTrainKeepsTheLinesOfATrainer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var rows bytes.Buffer
	if err := dataset.WriteRows(&rows, []dataset.Row{{IDs: []int32{1, 2, 3}, Mask: []float32{0, 1, 1}, PromptLength: 1}}); err != nil {
		t.Fatal(err)
	}
	recipe := filepath.Join(dir, "recipe.yaml")
	for path, text := range map[string]string{
		filepath.Join(dir, "rows.jsonl"): rows.String(),
		recipe: `db: sqlite:agl.db
learner: {use: command, name: m, dir: work, honours: ["*"], command: [sh, -c, "echo loading; echo no memory >&2; exit 3"]}
algorithm: {use: sft, data: rows.jsonl, form: rows, steps: 1, batch: 1, learning_rate: 0.01}
`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	status, out, errs := run(t, "train", recipe, "--log-level", "error")
	if status != 1 || !strings.Contains(errs, "no memory") || strings.Contains(out+errs, "trainer wrote") {
		t.Fatalf("status %d: %s%s", status, out, errs)
	}
	s := openRecipeStore(t, recipe)
	runs, err := s.Runs(t.Context(), 1)
	if err := errors.Join(err, s.Close()); err != nil || len(runs) != 1 {
		t.Fatalf("runs: %v, %v", runs, err)
	}
	status, out, errs = run(t, "runs", "log", runs[0].RunID, "--db", "sqlite:"+filepath.Join(dir, "agl.db"))
	if status != 0 {
		t.Fatalf("status %d: %s", status, errs)
	}
	wantParts(t, out, "algorithm started", "trainer started", "run failed", "no memory")
	for _, want := range []string{"trainer wrote stream=stdout line=loading\n", `trainer wrote stream=stderr line="no memory"`} {
		if !strings.Contains(out, want) {
			t.Errorf("log lacks %q:\n%s", want, out)
		}
	}
	if lines := strings.Split(strings.TrimSpace(out), "\n"); !strings.Contains(lines[len(lines)-1], "ERROR run failed err=") {
		t.Errorf("last line: %s", lines[len(lines)-1])
	}
}
