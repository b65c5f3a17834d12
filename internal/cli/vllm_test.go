package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentlightning/learner/command"
	"agentlightning/learner/serving"
)

// TestEngine: an engine, here this program with the built-in model, is run,
// registered, given a newer model, and withdrawn.
func TestEngine(t *testing.T) {
	t.Parallel()
	programsRun(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	url := serve(t, "--db", "memory:")
	client := connect(t, url)
	folder, first := t.TempDir(), checkpoint(t)
	engine := fmt.Sprintf(`%s='["serve","--db","memory:","--port","{port}","--model","small=builtin:{model}"]' exec %s`, argsVariable, self)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out, errs syncBuffer
	done := startCommand(ctx, []string{
		"vllm", "--server", url, "--name", "policy", "--program", "sh", "--health", "/healthz", "--model", first, "--follow", folder,
		"--", "-c", engine,
	}, &out, &errs)

	waiting, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := serving.Await(waiting, client, "policy", 0); err != nil {
		t.Fatalf("%v: %s %s", err, out.String(), errs.String())
	}
	current, err := json.Marshal(command.Model{Version: 4, Path: checkpoint(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "current.json"), current, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := serving.Await(waiting, client, "policy", 4); err != nil {
		t.Fatalf("%v: %s %s", err, out.String(), errs.String())
	}
	stop()
	if status := <-done; status != 130 {
		t.Errorf("ended with %d: %s", status, errs.String())
	}
	if models, err := client.Models(t.Context()); err != nil || len(models) != 0 {
		t.Errorf("models %+v, %v, want that the engine is withdrawn", models, err)
	}
	if text := out.String(); !strings.Contains(text, "agl: policy, version 0, is small at http://127.0.0.1:") || !strings.Contains(text, "agl: policy, version 4, is small at ") {
		t.Errorf("printed %q", text)
	}
}

func TestEngineRefuses(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"there is nothing to run": {"vllm"},
		"names no model":          {"vllm", "--", "serve"},
		"--follow":                {"vllm", "--follow", "/no/such/folder", "--", "serve", "m"},
	} {
		if status, _, stderr := run(t, args...); status != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%q: %d, %q, want a mistake of %q", args, status, stderr, want)
		}
	}
}
