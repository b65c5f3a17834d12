// Package llmtest holds what the tests of translations between dialects share:
// cases in files of sections, and streams put through a translator.
package llmtest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentlightning/internal/jsonx"
	"agentlightning/llm/openai"
)

// Sections are the parts of a case, in order. Each begins with a line
// "-- name --".
type Sections struct{ names, texts []string }

// ReadSections reads the content of a file.
func ReadSections(raw []byte) *Sections {
	s := &Sections{}
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

// Get returns the text of a section, empty when there is none.
func (s *Sections) Get(name string) string {
	for i := range s.names {
		if s.names[i] == name {
			return s.texts[i]
		}
	}
	return ""
}

// Set adds a section.
func (s *Sections) Set(name, text string) {
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	s.names, s.texts = append(s.names, name), append(s.texts, text)
}

// Bytes returns the content of a file.
func (s *Sections) Bytes() []byte {
	var b bytes.Buffer
	for i := range s.names {
		b.WriteString("-- " + s.names[i] + " --\n" + s.texts[i])
	}
	return b.Bytes()
}

// Files returns the files of the cases in a folder, of which there must be some.
func Files(t testing.TB, folder string) []string {
	t.Helper()
	files, err := filepath.Glob(folder + "/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d cases in %s (%v)", len(files), folder, err)
	}
	return files
}

// Cases calls f with every case in a folder.
func Cases(t testing.TB, folder string, f func(*Sections)) {
	t.Helper()
	for _, file := range Files(t, folder) {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f(ReadSections(raw))
	}
}

// Parse reads a request.
func Parse(t testing.TB, body string) *openai.Request {
	t.Helper()
	r, err := openai.ParseRequest([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Indent breaks a request into a line for each member and message.
func Indent(t testing.TB, body []byte) string {
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

// Translator turns a chat completion into an answer of another dialect.
type Translator interface {
	AppendAnswer(dst []byte, a *openai.Answer) ([]byte, error)
	AppendChunk(dst, data []byte) ([]byte, error)
	AppendEnd(dst []byte) []byte
	AppendError(dst []byte, status int, e *openai.Error) []byte
}

// Translate returns the events that a chat completion's stream becomes.
func Translate(t testing.TB, to Translator, stream io.Reader) string {
	t.Helper()
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
			return string(to.AppendEnd(out))
		default:
			if out, err = to.AppendChunk(out, event.Data); err != nil {
				return string(to.AppendError(out, 502, &openai.Error{Message: err.Error(), Type: openai.TypeServer}))
			}
		}
	}
}

// Gather gives the events of a stream to what takes an answer out of them.
func Gather(stream string, to interface {
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
