package anthropic_test

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentlightning/llm/anthropic"
	"agentlightning/llm/internal/llmtest"
	"agentlightning/llm/openai"
)

var update = flag.Bool("update", false, "rewrite the files in testdata/cases")

// Each case is a file of sections that begin "-- name --". What is given:
// request, and of the backend stream or answer. What comes of it: chat,
// refusal, events, message.
func TestCases(t *testing.T) {
	t.Parallel()
	for _, file := range llmtest.Files(t, "testdata/cases") {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			runCase(t, file)
		})
	}
}

func runCase(t *testing.T, file string) {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c := llmtest.ReadSections(raw)
	request := llmtest.Parse(t, c.Get("request"))
	chat, refusal := anthropic.ChatRequest(request)
	got := &llmtest.Sections{}
	got.Set("request", c.Get("request"))
	if refusal != nil {
		got.Set("refusal", string(anthropic.AppendError(nil, 400, refusal)))
	} else {
		got.Set("chat", llmtest.Indent(t, chat.Body()))
	}
	if stream := c.Get("stream"); stream != "" {
		got.Set("stream", stream)
		events := llmtest.Translate(t, anthropic.NewTranslator(request, "msg_0"), strings.NewReader(stream))
		got.Set("events", events)
		for i := range len(stream) {
			parts := io.MultiReader(strings.NewReader(stream[:i]), strings.NewReader(stream[i:]))
			if again := llmtest.Translate(t, anthropic.NewTranslator(request, "msg_0"), parts); again != events {
				t.Fatalf("split after byte %d, the events differ:\n%s", i, cmp.Diff(events, again))
			}
		}
		if err := sameAnswer(stream, events, anthropic.WantsThinking(request)); err != nil {
			t.Error(err)
		}
	}
	if answer := c.Get("answer"); answer != "" {
		got.Set("answer", answer)
		gathered, err := openai.ParseAnswer([]byte(answer))
		if err != nil {
			t.Fatal(err)
		}
		message, err := anthropic.NewTranslator(request, "msg_0").AppendAnswer(nil, gathered)
		if err != nil {
			message = []byte("error: " + err.Error())
		}
		got.Set("message", string(message))
	}
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(raw), string(got.Bytes())); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// sameAnswer returns an error unless a stream says the same before and after.
func sameAnswer(chat, events string, thoughts bool) error {
	var was openai.Accumulator
	if err := llmtest.Gather(chat, &was); err != nil {
		return nil //nolint:nilerr // what cannot be gathered need not be the same
	}
	var is anthropic.Accumulator
	if err := llmtest.Gather(events, &is); err != nil {
		return fmt.Errorf("the events cannot be gathered: %w", err)
	}
	want, got := was.Answer(), is.Answer()
	if len(want.Choices) == 0 || want.Choices[0].Index != 0 || !is.Finished() {
		return nil
	}
	a, b := want.Choices[0], got.Choices[0]
	said := func(c openai.Choice) string {
		if c.Content == nil {
			return c.Refusal
		}
		return *c.Content + c.Refusal
	}
	if said(a) != said(b) {
		return fmt.Errorf("the text was %q and is %q", said(a), said(b))
	}
	if thoughts && a.Reasoning != b.Reasoning {
		return fmt.Errorf("the thoughts were %q and are %q", a.Reasoning, b.Reasoning)
	}
	// A call whose index nothing was said of is no call.
	calls := slices.DeleteFunc(a.ToolCalls, func(c openai.ToolCall) bool { return c == openai.ToolCall{Type: "function"} })
	if len(calls) != len(b.ToolCalls) {
		return fmt.Errorf("%d tool calls became %d", len(calls), len(b.ToolCalls))
	}
	if u := want.Usage; u != nil && (got.Usage.Prompt != u.Prompt || got.Usage.Completion != u.Completion) {
		return fmt.Errorf("usage was %+v and is %+v", u, got.Usage)
	}
	return nil
}
