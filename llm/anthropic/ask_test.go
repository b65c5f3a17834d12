package anthropic_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go"
	gocmp "github.com/google/go-cmp/cmp"

	"agentlightning/internal/jsonx"
	"agentlightning/llm/anthropic"
	"agentlightning/llm/internal/llmtest"
	"agentlightning/llm/openai"
)

// Each case is a file of sections that begin "-- name --". What is given: chat,
// and of the backend events or message. What comes of it: ask, refusal, chunks,
// answer.
func TestAsks(t *testing.T) {
	t.Parallel()
	for _, file := range llmtest.Files(t, "testdata/asks") {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			runAsk(t, file)
		})
	}
}

func runAsk(t *testing.T, file string) {
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c := llmtest.ReadSections(raw)
	chat := llmtest.Parse(t, c.Get("chat"))
	ask, refusal := anthropic.MessageRequest(chat)
	got := &llmtest.Sections{}
	got.Set("chat", c.Get("chat"))
	if refusal != nil {
		got.Set("refusal", string(refusal.AppendJSON(nil)))
	} else {
		got.Set("ask", llmtest.Indent(t, ask.Body()))
		if err := json.Unmarshal(ask.Body(), new(sdk.MessageNewParams)); err != nil {
			t.Errorf("the official client cannot read it: %v", err)
		}
	}
	if events := c.Get("events"); events != "" {
		got.Set("events", events)
		chunks := asChat(t, chat, strings.NewReader(events))
		got.Set("chunks", chunks)
		for i := range len(events) {
			parts := io.MultiReader(strings.NewReader(events[:i]), strings.NewReader(events[i:]))
			if again := asChat(t, chat, parts); again != chunks {
				t.Fatalf("split after byte %d, the chunks differ:\n%s", i, gocmp.Diff(chunks, again))
			}
		}
		if err := sameMessage(events, chunks); err != nil {
			t.Error(err)
		}
	}
	if message := c.Get("message"); message != "" {
		got.Set("message", message)
		var gathered anthropic.Accumulator
		if err := gathered.AddWhole([]byte(message)); err != nil {
			t.Fatal(err)
		}
		answer, err := anthropic.NewChatTranslator(chat, "chatcmpl-0", 5).AppendAnswer(nil, gathered.Answer())
		if err != nil {
			t.Fatal(err)
		}
		got.Set("answer", string(answer))
		back, err := openai.ParseAnswer(answer)
		if err != nil {
			t.Fatal(err)
		}
		if err := sameChoice(gathered.Answer(), back); err != nil {
			t.Error(err)
		}
	}
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := gocmp.Diff(string(raw), string(got.Bytes())); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// asChat returns the chunks that a message's stream becomes.
func asChat(t *testing.T, chat *openai.Request, stream io.Reader) string {
	t.Helper()
	to := anthropic.NewChatTranslator(chat, "chatcmpl-0", 5)
	events := openai.NewEventReader(stream)
	var out []byte
	for {
		event, err := events.Next()
		if err != nil {
			return string(out)
		}
		if len(event.Data) == 0 {
			continue
		}
		members, _ := jsonx.Members(event.Data)
		if kind, _ := jsonx.Text(jsonx.Get(members, "type")); kind == "message_stop" {
			return string(to.AppendEnd(out))
		}
		if out, err = to.AppendChunk(out, event.Data); err != nil {
			return string(to.AppendError(out, 502, &openai.Error{Message: err.Error(), Type: openai.TypeServer}))
		}
	}
}

// sameMessage returns an error unless a stream says the same before and after.
func sameMessage(events, chunks string) error {
	var was anthropic.Accumulator
	if err := llmtest.Gather(events, &was); err != nil || !was.Finished() || !beginsEmpty(events) {
		return nil //nolint:nilerr // what cannot be gathered need not be the same
	}
	var is openai.Accumulator
	if err := llmtest.Gather(chunks, &is); err != nil {
		return fmt.Errorf("the chunks cannot be gathered: %w", err)
	}
	return sameChoice(was.Answer(), is.Answer())
}

// beginsEmpty reports whether a stream begins once, and with a message that has
// nothing in it and has not ended, as all do.
func beginsEmpty(events string) bool {
	begun := 0
	reader := openai.NewEventReader(strings.NewReader(events))
	for {
		event, err := reader.Next()
		if err != nil {
			return begun < 2
		}
		members, _ := jsonx.Members(event.Data)
		if kind, _ := jsonx.Text(jsonx.Get(members, "type")); kind != "message_start" {
			continue
		}
		begun++
		var start anthropic.Accumulator
		if _, err := start.Add(event.Data); err != nil || start.Finished() || len(start.Answer().Choices[0].ToolCalls) > 0 ||
			start.Answer().Choices[0].Content != nil || start.Answer().Choices[0].Reasoning != "" {
			return false
		}
	}
}

func sameChoice(want, got *openai.Answer) error {
	if len(got.Choices) != 1 {
		return fmt.Errorf("%d choices", len(got.Choices))
	}
	a, b := want.Choices[0], got.Choices[0]
	for _, calls := range [...][]openai.ToolCall{a.ToolCalls, b.ToolCalls} {
		for i := range calls { // no arguments are an empty object
			calls[i].Arguments = cmp.Or(calls[i].Arguments, "{}")
		}
	}
	if a.Content == nil { // which a stream does not tell from none
		a.Content = new("")
	}
	if b.Content == nil {
		b.Content = new("")
	}
	a.StopSequence, a.Role, b.Role = "", "", ""
	if diff := gocmp.Diff(a, b); diff != "" {
		return fmt.Errorf("choice (-was +is):\n%s", diff)
	}
	return nil
}

// Whatever a caller sends: what comes of it is a request that can be put as a
// chat completion again, and one that is refused says of which member.
func FuzzMessageRequest(f *testing.F) {
	llmtest.Cases(f, "testdata/asks", func(c *llmtest.Sections) { f.Add([]byte(c.Get("chat"))) })
	f.Fuzz(func(t *testing.T, body []byte) {
		chat, err := openai.ParseRequest(body)
		if err != nil {
			return
		}
		ask, refusal := anthropic.MessageRequest(chat)
		if refusal != nil {
			if refusal.Param == "" || !strings.HasPrefix(refusal.Message, refusal.Param+": ") {
				t.Errorf("refusal is %+v", refusal)
			}
			return
		}
		if err := jsonx.Check(ask.Body()); err != nil {
			t.Errorf("the request is %s: %v", ask.Body(), err)
		}
	})
}

// Whatever a server of Messages sends: the chunks are JSON, and say the same as
// what they were made of.
func FuzzChatTranslator(f *testing.F) {
	llmtest.Cases(f, "testdata/asks", func(c *llmtest.Sections) {
		if events := c.Get("events"); events != "" {
			f.Add([]byte(c.Get("chat")), []byte(events))
		}
	})
	f.Fuzz(func(t *testing.T, body, stream []byte) {
		chat, err := openai.ParseRequest(body)
		if err != nil {
			return
		}
		chunks := asChat(t, chat, strings.NewReader(string(stream)))
		events := openai.NewEventReader(strings.NewReader(chunks))
		for {
			event, err := events.Next()
			if err != nil {
				break
			}
			if len(event.Data) > 0 && !event.Done() && jsonx.Check(event.Data) != nil {
				t.Errorf("chunk %s is not JSON", event.Data)
			}
		}
		if strings.Contains(chunks, `data: {"error":`) {
			return // the stream was broken, and says so
		}
		if err := sameMessage(string(stream), chunks); err != nil {
			t.Error(err)
		}
	})
}
