package interop

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
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
	repository := t.TempDir()
	if err := os.WriteFile(filepath.Join(repository, "add.sh"), []byte("echo $(($1 - $2))\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	id := s.agent(t, "add.sh should add its arguments. Mend it.", []string{
		"--dir", repository, "--grader", `[ "$(sh add.sh 2 3)" = 5 ] && echo 1 || echo 0`,
		"--env", "ANTHROPIC_MODEL=agent", "--env", "ANTHROPIC_SMALL_FAST_MODEL=agent",
		// Nothing but the model is called.
		"--env", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "--env", "IS_SANDBOX=1",
	}, "sh", "-c", `exec "$0" -p "$AGL_TASK" --tools Bash --allowedTools Bash`, claude)
	s.rewarded(t, m, id, 0)
}
