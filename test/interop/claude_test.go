package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"agentlightning/adapter"
)

// coder is the model of a coding agent: it reads a file, mends it and says so.
func coder(c conversation) reply {
	results := 0
	for _, m := range c.Messages {
		if m.Role == "tool" {
			results++
		}
	}
	bash := func(id, command string) []toolCall {
		return []toolCall{called(id, "Bash", `{"command": "`+command+`", "description": "work on add.sh"}`)}
	}
	switch results {
	case 0:
		return reply{text: "Let me look.", calls: bash("call_1", "cat add.sh")}
	case 1:
		return reply{text: "It subtracts.", calls: bash("call_2", `printf 'echo $(($1 + $2))\\n' > add.sh`)}
	}
	return reply{text: "Mended."}
}

// TestClaudeCode has a coding agent mend a file: a program that knows nothing of
// this project and speaks Anthropic's Messages, before a model that speaks chat
// completions only.
func TestClaudeCode(t *testing.T) {
	t.Parallel()
	node := needFrameworks(t)["claude-code"]
	if node == "" {
		t.Fatal("AGL_TEST_FRAMEWORKS names no environment claude-code")
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the program is looked for where its package for linux/amd64 has it")
	}
	claude := filepath.Join(filepath.Dir(node), "../node_modules/@anthropic-ai/claude-code-linux-x64/claude")
	m := newVLLM(t, coder)
	s := serve(t, "sqlite:"+filepath.Join(t.TempDir(), "agl.db"), "--model", "agent="+m.url, "--auth-token", secret)
	at := s.admitted(t)
	repository := t.TempDir()
	script := filepath.Join(repository, "add.sh")
	if err := os.WriteFile(script, []byte("echo $(($1 - $2))\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), callLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, claude, "-p", "add.sh should add its arguments. Mend it.",
		"--tools", "Bash", "--allowedTools", "Bash", "--output-format", "json")
	cmd.Dir = repository
	cmd.Env = append(os.Environ(),
		"ANTHROPIC_BASE_URL="+at.url, "ANTHROPIC_API_KEY="+at.token, "ANTHROPIC_MODEL=agent", "ANTHROPIC_SMALL_FAST_MODEL=agent",
		// Nothing but the model is called.
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "IS_SANDBOX=1", "HOME="+t.TempDir())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("claude: %v\n%s\n%s", errors.Join(err, context.Cause(ctx)), stdout.String(), stderr.String())
	}
	var result struct {
		Result  string
		IsError bool `json:"is_error"`
	}
	if err := json.Unmarshal(stdout.Bytes(), &result); err != nil || result.IsError || result.Result != "Mended." {
		t.Errorf("claude ended with %s, %v", stdout.String(), err)
	}
	if sum, err := exec.CommandContext(ctx, "sh", script, "2", "3").Output(); err != nil || strings.TrimSpace(string(sum)) != "5" {
		t.Errorf("add.sh 2 3 is %q, %v", sum, err)
	}
	said := m.until(t, 3)
	if len(said) != 3 {
		t.Fatalf("the model was called %d times, want 3", len(said))
	}
	spans := s.spans(t, at.RolloutID)
	var want []triplet
	for _, g := range said {
		want = append(want, g.triplet())
	}
	got, err := adapter.TracerTriplets(spans, adapter.TracerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	compareTriplets(t, "our adapter", want, got)
	rows(t, spans, said, 0)
}
