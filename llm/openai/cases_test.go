package openai_test

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
	"agentlightning/llm/openai"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

// translator is what all translators do.
type translator interface {
	AppendAnswer(dst []byte, a *openai.Answer) ([]byte, error)
	AppendChunk(dst, data []byte) ([]byte, error)
	AppendEnd(dst []byte) []byte
	AppendError(dst []byte, status int, e *openai.Error) []byte
}

type gatherer interface {
	Add(data []byte) (openai.Chunk, error)
	AddWhole(body []byte) error
	Answer() *openai.Answer
	Finished() bool
}

// translated is a dialect that is put as chat completions.
type translated struct {
	chat       func(*openai.Request) (*openai.Request, *openai.Error)
	translator func(*openai.Request) translator
	gatherer   func() gatherer
}

var translations = map[string]translated{
	"responses": {
		chat:       openai.ResponsesChat,
		translator: func(r *openai.Request) translator { return openai.NewResponsesTranslator(r, "0", 9) },
		gatherer:   func() gatherer { return &openai.ResponsesAccumulator{} },
	},
	"completions": {
		chat:       openai.CompletionsChat,
		translator: func(r *openai.Request) translator { return openai.NewCompletionsTranslator(r, "cmpl-0", 9) },
		gatherer:   func() gatherer { return &openai.Accumulator{} },
	},
}

// Each case is a file of sections that begin "-- name --". What is given:
// request, and of the backend stream or answer. What comes of it: chat,
// refusal, events, body.
func TestCases(t *testing.T) {
	t.Parallel()
	for name, d := range translations {
		files, err := filepath.Glob("testdata/" + name + "/*.txt")
		if err != nil || len(files) == 0 {
			t.Fatalf("%d cases of %s (%v)", len(files), name, err)
		}
		for _, file := range files {
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
	c := readSections(raw)
	request := parse(t, c.get("request"))
	chat, refusal := d.chat(request)
	got := &sections{}
	got.set("request", c.get("request"))
	if refusal != nil {
		got.set("refusal", string(refusal.AppendJSON(nil)))
	} else {
		got.set("chat", indent(t, chat.Body()))
	}
	if stream := c.get("stream"); stream != "" {
		got.set("stream", stream)
		events := d.stream(t, request, strings.NewReader(stream))
		got.set("events", events)
		for i := range len(stream) {
			parts := io.MultiReader(strings.NewReader(stream[:i]), strings.NewReader(stream[i:]))
			if again := d.stream(t, request, parts); again != events {
				t.Fatalf("split after byte %d, the events differ:\n%s", i, cmp.Diff(events, again))
			}
		}
		if err := d.sameAnswer(request, stream, events); err != nil {
			t.Error(err)
		}
	}
	if answer := c.get("answer"); answer != "" {
		got.set("answer", answer)
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
		got.set("body", string(body))
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

// stream returns the events that a chat completion's stream becomes.
func (d translated) stream(t testing.TB, request *openai.Request, stream io.Reader) string {
	t.Helper()
	translator := d.translator(request)
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
func (d translated) sameAnswer(request *openai.Request, chat, events string) error {
	var was openai.Accumulator
	if err := gatherStream(chat, &was); err != nil {
		return nil //nolint:nilerr // what cannot be gathered need not be the same
	}
	is := d.gatherer()
	if err := gatherStream(events, is); err != nil {
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
