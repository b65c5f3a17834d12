package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	agl "agentlightning"
	"agentlightning/rescore"
	"agentlightning/semconv"
	"agentlightning/store"
)

// A set is made, is read wherever rewards are, and the old rewards stay.
func TestRescoreAndReadTheSet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	out, _ := w.agl(t, 0, "rescore", "--set", "brief", "--expr", `{"primary": reward * 0.5, "calls": size(calls)}`)
	wantParts(t, out, "set brief: 1 of 6 rollouts scored", "mean reward 0.2500, of the set default 0.5000",
		"passed over: 1, did not succeed", "passed over: 3, has not ended", "failed: 1, expression: no such overload")
	out, _ = w.agl(t, 0, "rescore", "--set", "brief", "--expr", `{"primary": reward * 0.5, "calls": size(calls)}`, "--json")
	var summary rescore.Summary
	if err := json.Unmarshal([]byte(out), &summary); err != nil || summary.Already != 1 || summary.Scored != 0 {
		t.Errorf("again: %s, %v", out, err)
	}

	out, _ = w.agl(t, 0, "rollouts", "show", w.good)
	wantParts(t, out, "reward 0.25 of set brief", "reward    0.5\n", "reward of set brief  0.25\n")
	out, _ = w.agl(t, 0, "rollouts", "show", w.good, "--reward-set", "brief")
	if wantParts(t, out, "reward 0.25\n", "reward of set brief  0.25\n"); strings.Contains(out, "reward    0.5") {
		t.Errorf("show of one set shows the other: %s", out)
	}
	for set, want := range map[string]string{"brief": "0.25", "default": "0.5", "unknown": "-"} {
		out, _ = w.agl(t, 0, "rollouts", "ls", "--status", "succeeded", "--id", w.good, "--reward-set", set)
		if cells := strings.Split(out, "\t"); cells[7] != want {
			t.Errorf("ls --reward-set %s: %q, want reward %s", set, cells, want)
		}
	}
	out, _ = w.agl(t, 0, "rollouts", "ls", "--id", w.good, "--reward-set", "brief", "--json")
	var line struct {
		ID     string   `json:"rollout_id"`
		Set    string   `json:"reward_set"`
		Reward *float64 `json:"reward"`
	}
	if err := json.Unmarshal([]byte(out), &line); err != nil || line.ID != w.good || line.Set != "brief" || *line.Reward != 0.25 {
		t.Errorf("ls --json = %s, %v", out, err)
	}
	for set, want := range map[string]string{"brief": `"reward":0.25`, "default": `"reward":0.5`} {
		out, _ = w.agl(t, 0, "rollouts", "export", w.good, "--what", "rows", "--reward-set", set)
		wantParts(t, out, want)
		out, _ = w.agl(t, 0, "dataset", "export", w.good, "--form", "conversations", "--reward-set", set)
		wantParts(t, out, want)
		out, _ = w.agl(t, 0, "credit", "preview", w.good, "--reward-set", set, "--json")
		wantParts(t, out, want)
	}
	for _, args := range [][]string{
		{"rollouts", "export", "--what", "spans", "--reward-set", "brief"},
		{"rollouts", "show", w.good, "--json", "--reward-set", "brief"},
		{"rollouts", "ls", "--reward-set", "a b"},
		{"dataset", "export", "--reward-set", "a b"},
		{"credit", "preview", w.good, "--reward-set", "a b"},
	} {
		if _, stderr := w.agl(t, 2, args...); !strings.Contains(stderr, "--reward-set") && !strings.Contains(stderr, "reward set") {
			t.Errorf("agl %v: %s", args, stderr)
		}
	}
}

func TestRescoreRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for want, args := range map[string][]string{
		"--set": {"--expr", "reward"}, "what scores is missing": {"--set", "x"},
		"must be the name of a set of its own": {"--set", "default", "--expr", "1.0"},
		"--http: expr scores already":          {"--set", "x", "--expr", "1.0", "--http", "http://x"},
		"--rubric: only":                       {"--set", "x", "--expr", "1.0", "--rubric", "good"},
		"needs a rubric":                       {"--set", "x", "--judge", "m"},
		"--scale 5":                            {"--set", "x", "--judge", "m", "--rubric", "r", "--scale", "5"},
		"--scale: --rank":                      {"--set", "x", "--judge", "m", "--rubric", "r", "--scale", "0,5", "--rank"},
		"--orders: only":                       {"--set", "x", "--judge", "m", "--rubric", "r", "--orders", "2"},
		"must begin with http":                 {"--set", "x", "--http", "localhost"},
		"AGL_TEST_NOT_SET is not set":          {"--set", "x", "--http", "http://x", "--header", "A=env:AGL_TEST_NOT_SET"},
		`undeclared reference`:                 {"--set", "x", "--expr", "rewrd"},
		"--stop-after 0":                       {"--set", "x", "--expr", "1.0", "--stop-after", "0"},
		"is the set that is made":              {"--set", "x", "--base", "x", "--expr", "1.0"},
		"--status nothing":                     {"--set", "x", "--expr", "1.0", "--status", "nothing"},
	} {
		if _, stderr := w.agl(t, 2, append([]string{"rescore"}, args...)...); !strings.Contains(stderr, want) {
			t.Errorf("agl rescore %v: %s, want %q", args, stderr, want)
		}
	}
	w.agl(t, 0, "rescore", "--set", "x", "--expr", "1.0")
	if _, stderr := w.agl(t, 1, "rescore", "--set", "x", "--expr", "2.0"); !strings.Contains(stderr, "cel: 1.0") {
		t.Errorf("another expression in the same set: %s", stderr)
	}
}

// The judge is asked over HTTP as any model is; a dry run only counts.
func TestRescoreByJudge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var asked atomic.Int64
	model := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path != "/v1/chat/completions" {
			t.Errorf("asked at %s", r.URL.Path)
		}
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprint(rw, `{"choices":[{"finish_reason":"stop","message":{"content":"{\"reason\":\"fine\",\"score\":4}"}}],"usage":{"prompt_tokens":1000,"completion_tokens":10}}`)
	}))
	defer model.Close()
	args := []string{
		"rescore", "--set", "judged", "--judge", "m", "--judge-url", model.URL + "/v1", "--rubric", "Is it right?", "--scale", "1,5",
		"--input-price", "2", "--output-price", "10",
	}
	out, _ := w.agl(t, 0, append(args, "--dry-run")...)
	if wantParts(t, out, "2 requests to the service would be made", "tokens in", "a dry run asks no service"); asked.Load() != 0 {
		t.Errorf("a dry run asked %d times", asked.Load())
	}
	out, _ = w.agl(t, 0, args...)
	wantParts(t, out, "2 of 6 rollouts scored", "mean reward 0.7500", "2 requests to the service, 2000 tokens in, 20 out, cost 0.0042")
	out, _ = w.agl(t, 0, args...)
	if wantParts(t, out, "0 of 6 rollouts scored, 2 had a reward in it"); asked.Load() != 2 {
		t.Errorf("asked %d times in all, want 2", asked.Load())
	}
}

// Killed in the middle, the same command goes on: every rollout has one reward,
// and only what was in flight is scored again.
func TestRescoreGoesOnAfterSIGKILL(t *testing.T) {
	t.Parallel()
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no shell")
	}
	const rollouts, killedAt, atATime = 40, 15, 4
	w := &world{url: serve(t, "--db", "sqlite:"+filepath.Join(t.TempDir(), "agl.db"), "--sync", "normal")}
	w.client = connect(t, w.url)
	for i := range rollouts {
		w.rollout(t.Context(), t, store.EnqueueRequest{Input: fmt.Appendf(nil, "%d", i)}, agl.AttemptSucceeded, rewarded(1, 1))
	}
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`cat > /dev/null; echo x >> "$0"; if [ $(wc -l < "$0") -ge %d ] && mkdir "$0.killed" 2>/dev/null; then kill -9 $PPID; fi; echo 0.5`, killedAt)
	args := []string{
		"rescore", "--set", "s", "--server", w.url, "--concurrency", fmt.Sprint(atATime), "--json", "--", shell, "-c", script, log,
	}
	text, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	process := exec.CommandContext(t.Context(), os.Args[0])
	process.Env = append(os.Environ(), argsVariable+"="+string(text))
	if out, err := process.CombinedOutput(); err == nil || process.ProcessState.Exited() {
		t.Fatalf("the command was not killed: %v, %s", err, out)
	}
	before := scoredIn(t, w, "s")
	if before == 0 || before >= killedAt+atATime {
		t.Errorf("%d rewards when it was killed at the %dth", before, killedAt)
	}
	status, stdout, stderr := run(t, args...)
	var summary rescore.Summary
	if err := json.Unmarshal([]byte(stdout), &summary); err != nil || status != 0 || summary.Already != before || summary.Scored != rollouts-before {
		t.Errorf("the second time: %d, %s%s, %v; %d had been scored", status, stdout, stderr, err, before)
	}
	if n := scoredIn(t, w, "s"); n != rollouts {
		t.Errorf("%d rewards in the end, want one for each of %d rollouts", n, rollouts)
	}
	lines, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(lines), "x"); n < rollouts || n > rollouts+atATime {
		t.Errorf("the program ran %d times, want %d and at most %d that were in flight", n, rollouts, atATime)
	}
}

// scoredIn counts the rewards of a set, all spans of all attempts.
func scoredIn(t *testing.T, w *world, set string) int {
	t.Helper()
	page, err := w.client.QueryRollouts(t.Context(), store.RolloutQuery{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, r := range page.Items {
		spans, err := w.client.QuerySpans(t.Context(), store.SpanQuery{RolloutID: r.RolloutID, Name: new(semconv.SpanRescore)})
		if err != nil {
			t.Fatal(err)
		}
		for i := range spans.Items {
			if of, _ := agl.RewardSetOf(&spans.Items[i]); of == set {
				n++
			}
		}
	}
	return n
}

// agl train learns from stored rollouts with a reward set, and runs no agent.
func TestTrainFromStoredRollouts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := "sqlite:" + filepath.Join(dir, "agl.db")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out, errs syncBuffer
	done := startCommand(ctx, []string{"serve", "--port", "0", "--db", db}, &out, &errs)
	w := &world{url: awaitURL(t, done, &out, &errs)}
	w.client = connect(t, w.url)
	for i := range 8 {
		w.rollout(t.Context(), t, store.EnqueueRequest{Input: []byte(`"6*7"`), Mode: agl.ModeTrain, Metadata: fmt.Appendf(nil, `{"odd":%d}`, i%2)},
			agl.AttemptSucceeded, modelCall(1, []int64{1, 2}, []int64{3 + int64(i%2)}), rewarded(2, 1))
	}
	stop()
	if status := <-done; status != 0 {
		t.Fatalf("serve ended with %d: %s", status, errs.String())
	}
	ok := func(args ...string) string {
		t.Helper()
		status, stdout, stderr := run(t, args...)
		if status != 0 {
			t.Fatalf("agl %v = %d: %s%s", args, status, stdout, stderr)
		}
		return stdout
	}
	ok("rescore", "--db", db, "--set", "odd", "--expr", "metadata.odd")
	recipe := filepath.Join(dir, "recipe.yaml")
	if err := os.WriteFile(recipe, []byte(`seed: 3
db: sqlite:agl.db
learner: {use: native, dim: 32, layers: 1, heads: 2, context: 32}
algorithm: {use: offline, reward_set: odd, steps: 3, learning_rate: 0.01}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	ok("train", recipe)
	var r struct {
		Status  string            `json:"status"`
		Config  json.RawMessage   `json:"config"`
		Metrics []agl.StepMetrics `json:"metrics"`
	}
	list := ok("runs", "ls", "--db", db)
	if err := json.Unmarshal([]byte(ok("runs", "show", ids(list)[0], "--db", db, "--json")), &r); err != nil {
		t.Fatal(err)
	}
	last := r.Metrics[len(r.Metrics)-1]
	if r.Status != "succeeded" || last.Step != 3 || last.Values["training/reward"] != 0.5 || last.Values["training/n_sample"] != 8 || !strings.Contains(string(r.Config), `"reward_set":"odd"`) {
		t.Errorf("run %s, metrics %v, configuration %s", r.Status, last, r.Config)
	}
	for change, want := range map[string]string{"algorithm.method=grop": "method", "algorithm.mode=trian": "mode", "algorithm.reward_set=a b": "RewardSet", "algorithm.group_size=4": "group_size"} {
		if status, _, stderr := run(t, "train", recipe, change); status == 0 || !strings.Contains(stderr, want) {
			t.Errorf("train with %s = %d, %s", change, status, stderr)
		}
	}
}
