package openai_test

import (
	"strings"
	"testing"

	"agentlightning/internal/jsonx"
	"agentlightning/llm/internal/llmtest"
	"agentlightning/llm/openai"
)

// Whatever a caller sends: what comes of it is a request, and one that is
// refused says of which member.
func fuzzChat(f *testing.F, dialect string) {
	f.Helper()
	llmtest.Cases(f, "testdata/"+dialect, func(c *llmtest.Sections) { f.Add([]byte(c.Get("request"))) })
	d := translations[dialect]
	f.Fuzz(func(t *testing.T, body []byte) {
		request, err := openai.ParseRequest(body)
		if err != nil {
			return
		}
		chat, refusal := d.chat(request)
		if refusal != nil {
			if refusal.Param == "" || !strings.HasPrefix(refusal.Message, refusal.Param+": ") {
				t.Errorf("refusal is %+v", refusal)
			}
			return
		}
		if err := jsonx.Check(chat.Body()); err != nil {
			t.Errorf("the chat completion request is %s: %v", chat.Body(), err)
		}
		if chat.Model != request.Model || chat.Stream != request.Stream {
			t.Errorf("%+v became %+v", request, chat)
		}
		d.translator(request)
	})
}

func FuzzResponsesChat(f *testing.F)   { fuzzChat(f, "responses") }
func FuzzCompletionsChat(f *testing.F) { fuzzChat(f, "completions") }

// Whatever a backend sends: the events are JSON, in an order that can be read,
// and say the same as what they were made of.
func fuzzStream(f *testing.F, dialect string) {
	f.Helper()
	llmtest.Cases(f, "testdata/"+dialect, func(c *llmtest.Sections) {
		if stream := c.Get("stream"); stream != "" {
			f.Add([]byte(c.Get("request")), []byte(stream))
		}
	})
	d := translations[dialect]
	f.Fuzz(func(t *testing.T, body, stream []byte) {
		request, err := openai.ParseRequest(body)
		if err != nil {
			return
		}
		events := llmtest.Translate(t, d.translator(request), strings.NewReader(string(stream)))
		reader := openai.NewEventReader(strings.NewReader(events))
		for {
			event, err := reader.Next()
			if err != nil {
				break
			}
			if event.Done() {
				continue
			}
			if err := jsonx.Check(event.Data); err != nil {
				t.Fatalf("event %s: %v", event.Data, err)
			}
		}
		if strings.Contains(events, `"error":{`) {
			return // the stream was broken, and says so
		}
		if err := d.sameAnswer(request, string(stream), events); err != nil {
			t.Error(err)
		}
	})
}

func FuzzResponsesStream(f *testing.F)   { fuzzStream(f, "responses") }
func FuzzCompletionsStream(f *testing.F) { fuzzStream(f, "completions") }

// Whatever a server of Responses sends, whole or as a stream.
func FuzzResponsesAccumulator(f *testing.F) {
	llmtest.Cases(f, "testdata/responses", func(c *llmtest.Sections) {
		f.Add([]byte(c.Get("events")))
		f.Add([]byte(c.Get("body")))
	})
	f.Fuzz(func(t *testing.T, data []byte) {
		var whole, parts openai.ResponsesAccumulator
		if err := whole.AddWhole(data); err == nil && !whole.Finished() {
			t.Error("a whole response is not finished")
		}
		_ = llmtest.Gather(string(data), &parts)
		for _, a := range []*openai.Answer{whole.Answer(), parts.Answer()} {
			if len(a.Choices) != 1 {
				t.Errorf("%d choices", len(a.Choices))
			}
		}
	})
}
