package apo

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/algorithm/prompt"
)

var update = flag.Bool("update", false, "write testdata/instructions.golden")

// TestInstructionsAsTold shows each chat that comes with the package, filled in.
func TestInstructionsAsTold(t *testing.T) {
	t.Parallel()
	half := 0.5
	experiments := []experiment{
		{status: "succeeded", reward: &half, messages: []adapter.Conversation{}, feedback: []string{"too short", "no {unit}"}, spans: []agl.Span{
			{RolloutID: "ro-1", AttemptID: "at-1", SequenceID: 1, Name: "one"}, {RolloutID: "ro-1", AttemptID: "at-1", SequenceID: 2, Name: "two <b>"},
		}},
		{status: "failed", messages: []adapter.Conversation{}},
	}
	var got strings.Builder
	show := func(chat []prompt.Message, err error) {
		if err != nil {
			t.Error(err)
		}
		for _, m := range chat {
			got.WriteString("=== " + m.Role + "\n" + m.Content + "\n")
		}
	}
	c := Config{Completer: prompt.CompleterFunc(nil)}.withDefaults()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	for _, in := range c.GradientPrompts {
		show(in.gradient("Q: {question}", experiments))
	}
	for _, in := range c.EditPrompts {
		show(in.edit("Q: {question}", "Say {unit}."))
	}
	const file = "testdata/instructions.golden"
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("the chats are not those of %s (-want +got):\n%s", file, diff)
	}
}

func TestOwnInstruction(t *testing.T) {
	t.Parallel()
	in := Instruction{User: `Answer as {"critique": "…"}. {prompt}: {experiments}`, Experiment: "{{{number}}} {status}"}
	got, err := in.gradient("a {b}", []experiment{{status: "failed"}, {status: "succeeded"}})
	want := []prompt.Message{{Role: prompt.RoleUser, Content: "Answer as {\"critique\": \"…\"}. a {b}: {0} failed\n\n{1} succeeded"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("gradient: %v (-want +got):\n%s", err, diff)
	}
	// Without a way of its own it tells of experiments as the package does.
	got, err = Instruction{User: "{prompt}: {experiments}"}.gradient("a", []experiment{{status: "failed"}})
	want[0].Content = "a: ## Task 0: failed, reward none\n\nnull"
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("gradient: %v (-want +got):\n%s", err, diff)
	}
}
