package openai_test

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

	"agentlightning/internal/jsonx"
	"agentlightning/llm/internal/llmtest"
	"agentlightning/llm/openai"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

type gatherer interface {
	Add(data []byte) (openai.Chunk, error)
	AddWhole(body []byte) error
	Answer() *openai.Answer
	Finished() bool
}

// translated is a dialect that is put as chat completions.
type translated struct {
	chat       func(*openai.Request) (*openai.Request, *openai.Error)
	translator func(*openai.Request) llmtest.Translator
	gatherer   func() gatherer
}

var translations = map[string]translated{
	"responses": {
		chat:       openai.ResponsesChat,
		translator: func(r *openai.Request) llmtest.Translator { return openai.NewResponsesTranslator(r, "0", 9) },
		gatherer:   func() gatherer { return &openai.ResponsesAccumulator{} },
	},
	"completions": {
		chat:       openai.CompletionsChat,
		translator: func(r *openai.Request) llmtest.Translator { return openai.NewCompletionsTranslator(r, "cmpl-0", 9) },
		gatherer:   func() gatherer { return &openai.Accumulator{} },
	},
}

// Each case is a file of sections that begin "-- name --". What is given:
// request, and of the backend stream or answer. What comes of it: chat,
// refusal, events, body.
func TestCases(t *testing.T) {
	t.Parallel()
	for name, d := range translations {
		for _, file := range llmtest.Files(t, "testdata/"+name) {
			t.Run(name+" "+strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
				t.Parallel()
				d.run(t, file)
			})
		}
	}
}

func (d translated) run(t *testing.T, file string) {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c := llmtest.ReadSections(raw)
	request := llmtest.Parse(t, c.Get("request"))
	chat, refusal := d.chat(request)
	got := &llmtest.Sections{}
	got.Set("request", c.Get("request"))
	if refusal != nil {
		got.Set("refusal", string(refusal.AppendJSON(nil)))
	} else {
		got.Set("chat", llmtest.Indent(t, chat.Body()))
	}
	if stream := c.Get("stream"); stream != "" {
		got.Set("stream", stream)
		events := llmtest.Translate(t, d.translator(request), strings.NewReader(stream))
		got.Set("events", events)
		for i := range len(stream) {
			parts := io.MultiReader(strings.NewReader(stream[:i]), strings.NewReader(stream[i:]))
			if again := llmtest.Translate(t, d.translator(request), parts); again != events {
				t.Fatalf("split after byte %d, the events differ:\n%s", i, cmp.Diff(events, again))
			}
		}
		if err := d.sameAnswer(request, stream, events); err != nil {
			t.Error(err)
		}
	}
	if answer := c.Get("answer"); answer != "" {
		got.Set("answer", answer)
		gathered, err := openai.ParseAnswer([]byte(answer))
		if err != nil {
			t.Fatal(err)
		}
		body, err := d.translator(request).AppendAnswer(nil, gathered)
		if err != nil {
			body = []byte("error: " + err.Error())
		} else if err := d.gatherer().AddWhole(body); err != nil {
			t.Error(err)
		}
		got.Set("body", string(body))
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
func (d translated) sameAnswer(request *openai.Request, chat, events string) error {
	var was openai.Accumulator
	if err := llmtest.Gather(chat, &was); err != nil {
		return nil //nolint:nilerr // what cannot be gathered need not be the same
	}
	is := d.gatherer()
	if err := llmtest.Gather(events, is); err != nil {
		return fmt.Errorf("the events cannot be gathered: %w", err)
	}
	want, got := was.Answer(), is.Answer()
	if len(want.Choices) == 0 || want.Choices[0].Index != 0 || len(got.Choices) == 0 || !is.Finished() {
		return nil
	}
	a, b := want.Choices[0], got.Choices[0]
	echo := ""
	if string(request.Raw("echo")) == "true" {
		prompt := request.Raw("prompt")
		if one, err := jsonx.Elements(prompt); err == nil && len(one) == 1 {
			prompt = one[0]
		}
		echo, _ = jsonx.Text(prompt)
	}
	said := func(c openai.Choice) string {
		if c.Content == nil {
			return c.Refusal
		}
		return *c.Content + c.Refusal
	}
	if echo+said(a) != said(b) {
		return fmt.Errorf("the text was %q and is %q", said(a), said(b))
	}
	if request.Raw("input") != nil && a.Reasoning != b.Reasoning {
		return fmt.Errorf("the thoughts were %q and are %q", a.Reasoning, b.Reasoning)
	}
	// A call whose index nothing was said of is no call.
	calls := slices.DeleteFunc(a.ToolCalls, func(c openai.ToolCall) bool { return c == openai.ToolCall{Type: "function"} })
	if len(calls) != len(b.ToolCalls) {
		return fmt.Errorf("%d tool calls became %d", len(calls), len(b.ToolCalls))
	}
	return nil
}
