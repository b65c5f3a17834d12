//go:build unix

package agents

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/internal/cli"
	"agentlightning/learner/native"
	"agentlightning/store"
	"agentlightning/storehttp"
)

// asAgl makes this test binary agl.
const asAgl = "AGL_TEST_AGENTS_AGL"

func TestMain(m *testing.M) {
	if os.Getenv(asAgl) != "" {
		os.Exit(cli.Main())
	}
	os.Exit(m.Run())
}

// commands are the blocks of a page that are for a shell.
func commands(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	inside := false
	for line := range strings.Lines(string(text)) {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = !inside && strings.TrimSpace(line) == "```sh"
		case inside:
			out.WriteString(line)
		}
	}
	return out.String()
}

// model is the entry of --model for a small built-in model.
func model(t *testing.T) string {
	t.Helper()
	m, err := native.New(native.Config{Seed: 1, Dim: 32, Layers: 1, Heads: 1, Context: 64}, native.NewTokenizer([]string{"one", "two"}))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "checkpoint")
	if err := errors.Join(m.Save(t.Context(), dir), m.Close()); err != nil {
		t.Fatal(err)
	}
	return "agent=builtin:" + dir
}

// TestPage pastes the commands of the page into a shell, one after another, and
// looks at what they left on the server.
func TestPage(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl: not installed")
	}
	dir := t.TempDir()
	wrapper := "#!/bin/sh\n" + asAgl + "=1 exec '" + os.Args[0] + "' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "agl"), []byte(wrapper), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	port := strconv.Itoa(10000 + rand.IntN(20000)) // below those that systems give to connections
	// The shell stays until its input ends, so that the server does.
	script := "set -eu\n" + commands(t, "../../docs/agents.md") + "echo all done\nread -r end || true\n"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "sh", "-c", script)
	shell.Dir = dir
	shell.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "PORT="+port, "MODEL="+model(t), "NO_PROXY=127.0.0.1", "HOME="+dir, "XDG_CACHE_HOME="+dir)
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	shell.WaitDelay = 5 * time.Second // what it started holds its output
	out := &lines{done: make(chan struct{})}
	shell.Stdout, shell.Stderr = out, out
	input, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- shell.Wait() }()
	t.Cleanup(func() {
		_ = syscall.Kill(-shell.Process.Pid, syscall.SIGTERM)
		_ = input.Close()
		if ended != nil {
			<-ended
		}
	})
	select {
	case <-out.done:
	case err := <-ended:
		ended = nil
		t.Fatalf("the commands ended with %v:\n%s", err, out)
	}

	client, err := storehttp.NewClient("http://127.0.0.1:" + port)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	page, err := client.QueryRollouts(t.Context(), store.RolloutQuery{Paging: store.Paging{SortBy: "start_time"}})
	if err != nil {
		t.Fatal(err)
	}
	rewards := map[string]float64{}
	for _, r := range page.Items {
		if r.Status != agl.RolloutSucceeded {
			t.Errorf("rollout %s of task %s is %s:\n%s", r.RolloutID, r.Input, r.Status, out)
		}
		spans, err := client.QuerySpans(t.Context(), store.SpanQuery{RolloutID: r.RolloutID})
		if err != nil {
			t.Fatal(err)
		}
		for i := range spans.Items {
			if v, err := agl.RewardValue(&spans.Items[i]); err == nil && v != nil {
				rewards[r.RolloutID] = *v
			}
		}
		if strings.Contains(string(r.Input), "question") {
			if calls, err := adapter.Calls(spans.Items); err != nil || len(calls) != 1 || !calls[0].Usable() || len(calls[0].ResponseIDs) == 0 {
				t.Errorf("rollout %s has the calls %+v, %v, want one with token ids", r.RolloutID, calls, err)
			}
		}
	}
	const gives = 8 // and one of the controller
	if len(page.Items) != gives+1 || len(rewards) != gives+1 {
		t.Errorf("%d rollouts, rewards %v, want %d with a reward each:\n%s", len(page.Items), rewards, gives+1, out)
	}
}

// lines is output that tells when the last command is done.
type lines struct {
	lockedBuffer

	done chan struct{}
	told bool
}

func (l *lines) Write(p []byte) (int, error) {
	n, err := l.lockedBuffer.Write(p)
	if !l.told && strings.Contains(l.String(), "all done\n") {
		l.told = true
		close(l.done)
	}
	return n, err
}
