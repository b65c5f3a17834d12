package anthropic_test

import (
	"bytes"
	"errors"
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
	"agentlightning/llm/anthropic"
	"agentlightning/llm/openai"
)

var update = flag.Bool("update", false, "rewrite the files in testdata/cases")

// Each case is a file of sections that begin "-- name --". What is given:
// request, and of the backend stream or answer. What comes of it: chat,
// refusal, events, message.
func TestCases(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/cases/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d cases (%v)", len(files), err)
	}
	for _, file := range files {
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
	c := readSections(raw)
	request := parse(t, c.get("request"))
	chat, refusal := anthropic.ChatRequest(request)
	got := &sections{}
	got.set("request", c.get("request"))
	if refusal != nil {
		got.set("refusal", string(anthropic.AppendError(nil, 400, refusal)))
	} else {
		got.set("chat", indent(t, chat.Body()))
	}
	if stream := c.get("stream"); stream != "" {
		got.set("stream", stream)
		events := translate(t, request, strings.NewReader(stream))
		got.set("events", events)
		for i := range len(stream) {
			parts := io.MultiReader(strings.NewReader(stream[:i]), strings.NewReader(stream[i:]))
			if again := translate(t, request, parts); again != events {
				t.Fatalf("split after byte %d, the events differ:\n%s", i, cmp.Diff(events, again))
			}
		}
		if err := sameAnswer(stream, events, anthropic.WantsThinking(request)); err != nil {
			t.Error(err)
		}
	}
	if answer := c.get("answer"); answer != "" {
		got.set("answer", answer)
		gathered, err := openai.ParseAnswer([]byte(answer))
		if err != nil {
			t.Fatal(err)
		}
		message, err := anthropic.NewTranslator(request, "msg_0").AppendAnswer(nil, gathered)
		if err != nil {
			message = []byte("error: " + err.Error())
		}
		got.set("message", string(message))
	}
	if *update {
		if err := os.WriteFile(file, got.bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(raw), string(got.bytes())); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// translate returns the events that a chat completion's stream becomes.
func translate(t testing.TB, request *openai.Request, stream io.Reader) string {
	t.Helper()
	translator := anthropic.NewTranslator(request, "msg_0")
	events := openai.NewEventReader(stream)
	var out []byte
	for {
		event, err := events.Next()
		if errors.Is(err, io.EOF) {
			return string(out)
		}
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case len(event.Data) == 0:
		case event.Done():
			return string(translator.AppendEnd(out))
		default:
			if out, err = translator.AppendChunk(out, event.Data); err != nil {
				return string(translator.AppendError(out, 502, &openai.Error{Message: err.Error(), Type: openai.TypeServer}))
			}
		}
	}
}

// sameAnswer returns an error unless a stream says the same before and after.
func sameAnswer(chat, events string, thoughts bool) error {
	var was openai.Accumulator
	if err := gatherStream(chat, &was); err != nil {
		return nil //nolint:nilerr // what cannot be gathered need not be the same
	}
	var is anthropic.Accumulator
	if err := gatherStream(events, &is); err != nil {
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

func gatherStream(stream string, to interface {
	Add(data []byte) (openai.Chunk, error)
},
) error {
	events := openai.NewEventReader(strings.NewReader(stream))
	for {
		event, err := events.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(event.Data) == 0 {
			continue
		}
		chunk, err := to.Add(event.Data)
		if err != nil || chunk.Last {
			return err
		}
	}
}

func parse(t testing.TB, body string) *openai.Request {
	t.Helper()
	r, err := openai.ParseRequest([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// indent breaks a request into a line for each member and message.
func indent(t testing.TB, body []byte) string {
	t.Helper()
	members, err := jsonx.Members(body)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	var lines []string
	for _, m := range members {
		if m.Key != "messages" {
			lines = append(lines, m.Key+": "+string(m.Value))
			continue
		}
		messages, err := jsonx.Elements(m.Value)
		if err != nil {
			t.Fatal(err)
		}
		for _, message := range messages {
			lines = append(lines, "message: "+string(message))
		}
	}
	return strings.Join(lines, "\n")
}

// sections are the parts of a case, in order.
type sections struct{ names, texts []string }

func readSections(raw []byte) *sections {
	s := &sections{}
	for line := range bytes.Lines(raw) {
		text := strings.TrimSuffix(string(line), "\n")
		if name, ok := strings.CutPrefix(text, "-- "); ok && strings.HasSuffix(name, " --") {
			s.names = append(s.names, strings.TrimSuffix(name, " --"))
			s.texts = append(s.texts, "")
		} else if len(s.texts) > 0 {
			s.texts[len(s.texts)-1] += string(line)
		}
	}
	return s
}

func (s *sections) get(name string) string {
	for i := range s.names {
		if s.names[i] == name {
			return s.texts[i]
		}
	}
	return ""
}

func (s *sections) set(name, text string) {
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	s.names, s.texts = append(s.names, name), append(s.texts, text)
}

func (s *sections) bytes() []byte {
	var b bytes.Buffer
	for i := range s.names {
		b.WriteString("-- " + s.names[i] + " --\n" + s.texts[i])
	}
	return b.Bytes()
}
