package cli_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/store"
)

// await waits until a process has written a text.
func await(t *testing.T, cmd *exec.Cmd, out *syncBuffer, text string) {
	t.Helper()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for !strings.Contains(out.String(), text) {
		select {
		case <-look.C:
		case <-limit.C:
			_ = cmd.Process.Kill()
			t.Fatalf("%q was not written:\n%s", text, out)
		}
	}
}

// Ctrl-C once stops where the search can go on, and says how.
func TestOptimizeStopsAndGoesOn(t *testing.T) {
	t.Parallel()
	models := newWordModels(t)
	quiet := wordRecipe(t, models, gepaPart)
	if status, out, errs := run(t, "optimize", quiet, "--log-level", "error"); status != 0 {
		t.Fatalf("status %d: %s%s", status, out, errs)
	}
	want := searched(t, quiet)

	path := wordRecipe(t, models, gepaPart)
	cmd, out := process(t, "optimize", path, "seed=3", "--log-level", "error")
	await(t, cmd, out, "iteration 3,")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); status != 130 {
		t.Errorf("status %d, want 130", status)
	}
	_, command, found := strings.Cut(out.String(), "\ngo on with: agl optimize "+path+" seed=3 --resume ")
	if !found || !strings.Contains(out.String(), "stopping; what is done is kept") || !strings.Contains(out.String(), "(gepa) was interrupted after") {
		t.Fatalf("the end does not say how to go on:\n%s", out)
	}
	status, text, errs := run(t, "optimize", path, "seed=3", "--log-level", "error", "--resume", strings.TrimSpace(command))
	if status != 0 {
		t.Fatalf("resumed: status %d: %s%s", status, text, errs)
	}
	if d := cmp.Diff(want, searched(t, path)); d != "" {
		t.Errorf("the search differs (-uninterrupted +resumed):\n%s", d)
	}
	status, _, errs = run(t, "optimize", path, "--resume", strings.TrimSpace(command))
	if status != 1 || !strings.Contains(errs, "is complete; start another without --resume") {
		t.Errorf("resumed once more: status %d, %s", status, errs)
	}
}

// Ctrl-C twice does not wait.
func TestTrainStopsAtOnce(t *testing.T) {
	t.Parallel()
	path := wordRecipe(t, newWordModels(t), "algorithm: baseline\n")
	cmd, out := process(t, "train", path, "agent.command=[sh, -c, 'trap : TERM; echo started >> started; sleep 60 & wait; wait']", "agent.grace=1m30s")
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for {
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), "started")); err == nil {
			break
		}
		<-look.C
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	await(t, cmd, out, "Press Ctrl-C again to stop at once")
	began := time.Now()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	ended, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ended.Signaled() || ended.Signal() != syscall.SIGINT || time.Since(began) > 10*time.Second {
		t.Errorf("ended with %v after %v, want by the signal\n%s", cmd.ProcessState, time.Since(began), out)
	}
}

// What an interrupted run left is neither done by a new one nor lost.
func TestTrainRefusesUnfinishedWork(t *testing.T) {
	t.Parallel()
	path := wordRecipe(t, newWordModels(t), "algorithm: baseline\n")
	s := openRecipeStore(t, path)
	made, err := s.EnqueueRollouts(t.Context(), []store.EnqueueRequest{{Input: json.RawMessage(`{"word":"one"}`), Metadata: json.RawMessage(`{"agl.run_id":"run-old"}`)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	status, _, errs := run(t, "train", path)
	if status != 2 || !strings.Contains(errs, "the database holds unfinished work: 1 rollout of run run-old; go on with --resume RUN, or cancel it with --abandon") {
		t.Errorf("status %d, %s", status, errs)
	}
	status, out, errs := run(t, "train", path, "--abandon", "--log-level", "error")
	if status != 0 || !strings.Contains(out, "1 rollout of interrupted runs are cancelled") || !strings.Contains(out, "12 rollouts") {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
	s = openRecipeStore(t, path)
	defer s.Close()
	if old, err := s.Rollout(t.Context(), made[0].RolloutID); err != nil || old.Status != agl.RolloutCancelled {
		t.Errorf("the old rollout is %s, %v; want cancelled", old.Status, err)
	}
}

// Failures are counted by their reasons.
func TestTrainSaysWhyNothingWasLearned(t *testing.T) {
	t.Parallel()
	path := wordRecipe(t, newWordModels(t), "algorithm: baseline\n")
	status, out, errs := run(t, "train", path, "agent.command=[sh, -c, 'echo the tool is gone >&2; exit 4']", "--log-level", "error")
	if status != 0 {
		t.Fatalf("status %d: %s%s", status, out, errs)
	}
	for _, want := range []string{"did it learn: unknown, nothing was measured", "failures: 12 of 12 rollouts", `  12 × `, "the tool is gone"} {
		if !strings.Contains(out, want) {
			t.Errorf("output lacks %q:\n%s", want, out)
		}
	}
}

func TestTrainDryRun(t *testing.T) {
	t.Parallel()
	models := newWordModels(t)
	path := wordRecipe(t, models, gepaPart)
	status, out, errs := run(t, "optimize", path, "--dry-run")
	if status != 0 || !strings.Contains(out, "6 training tasks, 6 validation tasks") || !strings.Contains(out, "budget 100 rollouts") ||
		!strings.Contains(out, "model writer") || !strings.Contains(out, "nothing is wrong; nothing was run") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	if total, _ := models.counts(); total != 0 {
		t.Errorf("%d model calls were made", total)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(path), "agl.db")); err == nil {
		t.Error("a database was made")
	}
	models.Close()
	if status, out, _ = run(t, "optimize", path, "--dry-run"); status != 1 || !strings.Contains(out, "cannot be reached") {
		t.Errorf("without the backend: status %d: %s", status, out)
	}
}

func TestTrainCommandLine(t *testing.T) {
	t.Parallel()
	models := newWordModels(t)
	path := wordRecipe(t, models, gepaPart)
	for name, tt := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"no file":               {[]string{"train"}, 2, "give a file, as in 'agl train train.yaml'"},
		"missing file":          {[]string{"train", "none.yaml"}, 2, "none.yaml"},
		"unknown key":           {[]string{"train", path, "algorithm.minibach=3"}, 2, "command line: algorithm.minibach: there is no such key; did you mean minibatch?"},
		"weights":               {[]string{"optimize", path, "algorithm={use: grpo, steps: 1, learning_rate: 0.1}", "learner=native"}, 2, "grpo improves no prompt; use 'agl train'"},
		"print config":          {[]string{"train", path, "--print-config", "seed=9"}, 0, "command line"},
		"nothing to go on with": {[]string{"train", path, "--resume", "last"}, 2, "there is no run of such a file that is not complete"},
		"no such run":           {[]string{"train", path, "--resume", "run-none"}, 1, "run-none"},
	} {
		status, out, errs := run(t, tt.args...)
		if status != tt.status || !strings.Contains(out+errs, tt.want) {
			t.Errorf("%s: status %d, want %d; %s%s; want %q", name, status, tt.status, out, errs, tt.want)
		}
	}
}

// A search whose agent hangs says in which stage, and ends at the limit with that.
func TestOptimizeNamesSilence(t *testing.T) {
	t.Parallel()
	path := wordRecipe(t, newWordModels(t), gepaPart)
	status, out, errs := run(t, "optimize", path, "agent.command=[sh, -c, sleep 60]", "watch={warn: 200ms, limit: 1s}", "--log-level", "error")
	if status != 1 || !strings.Contains(out, "  stage validate makes no progress: nothing moved for ") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	if !strings.Contains(errs, "stage validate makes no progress: nothing moved for 1s") || !strings.Contains(errs, "the limit is reached") {
		t.Errorf("the error does not name the stage: %s", errs)
	}
}

// Rollouts on a server that runs elsewhere, with the agent here.
func TestTrainOnAServer(t *testing.T) {
	t.Parallel()
	models := newWordModels(t)
	url := serve(t, "--db", "memory:", "--model", "policy="+models.URL+"/v1", "--model", "writer="+models.URL+"/v1")
	path := wordRecipe(t, models, gepaPart)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The server has its own database and models.
	elsewhere := "server: " + url + "\n"
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "db:") && !strings.HasPrefix(line, "models:") && !strings.HasPrefix(line, "  - ") {
			elsewhere += line
		}
	}
	if err := os.WriteFile(path, []byte(elsewhere), 0o600); err != nil {
		t.Fatal(err)
	}
	status, out, errs := run(t, "optimize", path, "--log-level", "error")
	if status != 0 || !strings.Contains(out, "on the server "+url) || !strings.Contains(out, "did it learn: yes") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	if status, out, errs = run(t, "optimize", path, "--dry-run"); status != 0 || !strings.Contains(out, "nothing is wrong") {
		t.Errorf("dry run: status %d: %s%s", status, out, errs)
	}
}

// Rollouts that runners elsewhere do, for a training that only asks for them.
func TestTrainWithRemoteAgent(t *testing.T) {
	t.Parallel()
	models := newWordModels(t)
	url := serve(t, "--db", "memory:", "--model", "policy="+models.URL+"/v1", "--model", "writer="+models.URL+"/v1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var out, errs syncBuffer
	done := startCommand(ctx, []string{
		"runner", "--server", url, "--reward", "stdout", "--env", roleVariable + "=agent", "--", self,
	}, &out, &errs)
	defer func() {
		stop()
		if status := <-done; status != 0 && status != 130 {
			t.Errorf("runner ended with %d: %s%s", status, &out, &errs)
		}
	}()
	path := filepath.Join(t.TempDir(), "remote.yaml")
	for name, text := range map[string]string{
		"remote.yaml": "server: " + url + "\ndata: {train: tasks.jsonl, val: tasks.jsonl}\nagent: remote\nllm: policy\nprompts: {rules: Say yes to these words}\n" +
			"algorithm: {use: apo, gradient_model: writer, edit_model: writer, rounds: 2, beam_width: 1, branch_factor: 1, gradient_batch: 2}\n",
		"tasks.jsonl": "{\"word\":\"one\"}\n{\"word\":\"two\"}\n",
	} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	status, text, failed := run(t, "optimize", path, "--log-level", "error")
	if status != 0 || !strings.Contains(text, "(apo) is complete after") || !strings.Contains(text, "  2/2  best v") {
		t.Errorf("status %d: %s%s", status, text, failed)
	}
}
