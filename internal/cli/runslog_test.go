package cli_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/store"
)

func TestRunsLog(t *testing.T) {
	t.Parallel()
	w, good, bad := runsWorld(t)
	ctx := t.Context()
	if err := w.client.AddLogLines(ctx, good, agl.LogLine{
		Time: 1.5, Level: agl.LogWarn, Message: "two\nlines", Attributes: []byte(`{"b":1.5,"a":"no disk","c":null,"d":"plain","e":true}`),
	}); err != nil {
		t.Fatal(err)
	}
	out, _ := w.agl(t, 0, "runs", "log", good)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 6 {
		t.Fatalf("log:\n%s\nwant six lines", out)
	}
	if want := `1970-01-01T00:00:01.500Z WARN  two\nlines b=1.5 a="no disk" c=null d=plain e=true`; lines[5] != want {
		t.Errorf("line = %s\nwant   %s", lines[5], want)
	}
	for i, want := range []string{"INFO  algorithm started run_id=" + good + " algorithm=pg seed=7", "INFO  step recorded run_id=" + good + " step=0 val/reward=0.25", "step=1", "step=2", "INFO  run succeeded"} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d = %s, want %q in it", i, lines[i], want)
		}
	}
	for want, args := range map[string][]string{
		"two":               {"--level", "warning"},
		"step recorded":     {"--grep", "VAL/reward", "-n", "1"},
		"run succeeded":     {"--grep", "Succeeded", "--level", "info"},
		"two\\nlines b=1.5": {"-n", "1"},
	} {
		if out, _ := w.agl(t, 0, append([]string{"runs", "log", good}, args...)...); strings.Count(out, "\n") != 1 || !strings.Contains(out, want) {
			t.Errorf("runs log %v:\n%s\nwant one line with %q", args, out, want)
		}
	}
	out, _ = w.agl(t, 0, "runs", "log", bad, "-n", "1", "--json")
	var last agl.LogLine
	if err := json.Unmarshal([]byte(out), &last); err != nil || last.Level != agl.LogError || string(last.Attributes) != `{"err":"the learner broke"}` {
		t.Errorf("last line of a run that failed = %s, %v", out, err)
	}
	for want, args := range map[string][]string{
		"give one run id": {}, "--level loud": {good, "--level", "loud"}, "--lines -1": {good, "-n", "-1"}, "--lines 10001": {good, "-n", "10001"},
	} {
		if _, stderr := w.agl(t, 2, append([]string{"runs", "log"}, args...)...); !strings.Contains(stderr, want) {
			t.Errorf("agl runs log %v: %s, want %q", args, stderr, want)
		}
	}
	if _, stderr := w.agl(t, 1, "runs", "log", "run-none"); !strings.Contains(stderr, "run-none") {
		t.Errorf("log of an unknown run: %s", stderr)
	}
}

// What is followed is all there, in order, and ends with the run.
func TestRunsLogFollows(t *testing.T) {
	t.Parallel()
	w, _, _ := runsWorld(t)
	followed, err := algorithm.Begin(t.Context(), algorithm.Env{Store: w.client}, "pg", struct{}{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	shown := make(chan string, 1)
	go func() {
		status, out, stderr := run(t, "runs", "log", followed.RunID, "--follow", "-n", "3", "--server", w.url)
		if status != 0 {
			t.Errorf("status %d: %s", status, stderr)
		}
		shown <- out
	}()
	const lines = 1200 // more than a batch
	for i := range lines {
		followed.Logger.Info("said", "i", i)
	}
	if err := followed.Finish(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	out := <-shown
	at, last := -1, ""
	for line := range strings.Lines(out) {
		last = line
		_, text, ok := strings.Cut(line, "said i=")
		if !ok {
			continue
		}
		var i int
		if _, err := fmt.Sscan(text, &i); err != nil || at >= 0 && i != at+1 {
			t.Fatalf("line %d after %d, %v", i, at, err)
		}
		at = i
	}
	if at != lines-1 || !strings.Contains(last, "run succeeded") {
		t.Errorf("what was followed ends with %d and %q, want %d and the end of the run", at, last, lines-1)
	}
}

func TestRunsLogSaysWhatIsGone(t *testing.T) {
	t.Parallel()
	w, good, _ := runsWorld(t)
	batch := make([]agl.LogLine, store.LogLines/2)
	for i := range batch {
		batch[i] = agl.LogLine{Level: agl.LogInfo, Message: "x"}
	}
	if err := errors.Join(w.client.AddLogLines(t.Context(), good, batch...), w.client.AddLogLines(t.Context(), good, batch...)); err != nil {
		t.Fatal(err)
	}
	out, stderr := w.agl(t, 0, "runs", "log", good)
	if n := strings.Count(out, "\n"); n != store.LogLines || !strings.Contains(stderr, "5 older lines have gone: a run keeps its newest 20000") {
		t.Errorf("%d lines, %q, want all that are kept and how many have gone", n, stderr)
	}
}

func TestRunsRemove(t *testing.T) {
	t.Parallel()
	w, good, bad := runsWorld(t)
	open, err := algorithm.Begin(t.Context(), algorithm.Env{Store: w.client}, "pg", struct{}{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	list := func() string {
		out, _ := w.agl(t, 0, "runs", "ls")
		return strings.Join(ids(out), " ")
	}
	all := list()
	out, _ := w.agl(t, 0, "runs", "rm", good, "--dry-run")
	wantParts(t, out, good, "pg", "succeeded", "3 steps, 3 checkpoints, 5 lines of log")
	if _, stderr := w.agl(t, 2, "runs", "rm", good); !strings.Contains(stderr, "give --yes") {
		t.Errorf("without anybody to ask: %s", stderr)
	}
	if _, stderr := w.agl(t, 1, "runs", "rm", good, open.RunID, "--yes"); !strings.Contains(stderr, open.RunID+" is running") || !strings.Contains(stderr, "nothing was deleted") {
		t.Errorf("a run that is running: %s", stderr)
	}
	if _, stderr := w.agl(t, 1, "runs", "rm", good, "run-none", "--yes"); !strings.Contains(stderr, "run-none") {
		t.Errorf("an unknown run: %s", stderr)
	}
	if _, stderr := w.agl(t, 2, "runs", "rm", good, good, "--yes"); !strings.Contains(stderr, "named twice") {
		t.Errorf("twice the same: %s", stderr)
	}
	if got := list(); got != all {
		t.Fatalf("runs after what was refused: %s, want %s", got, all)
	}
	out, _ = w.agl(t, 0, "runs", "rm", good, bad, "--yes")
	wantParts(t, out, good+"\tis deleted", bad+"\tis deleted")
	if got := list(); got != open.RunID {
		t.Errorf("runs that are left: %s, want %s", got, open.RunID)
	}
	if out, _ = w.agl(t, 0, "rollouts", "ls", "--run", good); len(ids(out)) != 2 {
		t.Errorf("rollouts of a run that was deleted:\n%s\nwant both", out)
	}
	w.agl(t, 0, "runs", "rm", open.RunID, "--yes", "--force")
	if got := list(); got != "" {
		t.Errorf("runs that are left: %s, want none", got)
	}
}
