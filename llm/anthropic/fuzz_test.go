package anthropic_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentlightning/internal/jsonx"
	"agentlightning/llm/anthropic"
	"agentlightning/llm/internal/llmtest"
	"agentlightning/llm/openai"
)

// recorded calls f with the requests that were recorded of the reference proxy.
func recorded(t testing.TB, f func(request []byte)) {
	t.Helper()
	files, err := filepath.Glob("../../testdata/vectors/proxy/*/anthropic_*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d recordings (%v)", len(files), err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var recording struct {
			Exchanges []struct {
				Request struct {
					JSON json.RawMessage `json:"json"`
				} `json:"request"`
			} `json:"exchanges"`
		}
		if err := json.Unmarshal(raw, &recording); err != nil {
			t.Fatal(err)
		}
		for _, e := range recording.Exchanges {
			f(e.Request.JSON)
		}
	}
}

// Whatever a caller sends: what comes of it is a request, and one that is
// refused says of which member.
func FuzzChatRequest(f *testing.F) {
	llmtest.Cases(f, "testdata/cases", func(c *llmtest.Sections) { f.Add([]byte(c.Get("request"))) })
	recorded(f, func(request []byte) { f.Add(request) })
	f.Fuzz(func(t *testing.T, body []byte) {
		request, err := openai.ParseRequest(body)
		if err != nil {
			return
		}
		chat, refusal := anthropic.ChatRequest(request)
		if refusal != nil {
			if refusal.Param == "" || !strings.HasPrefix(refusal.Message, refusal.Param+": ") {
				t.Errorf("refusal is %+v", refusal)
			}
		} else if err := jsonx.Check(chat.Body()); err != nil {
			t.Errorf("the chat completion request is %s: %v", chat.Body(), err)
		}
		if n := anthropic.EstimateTokens(chat); n < 3 {
			t.Errorf("estimate is %d", n)
		}
	})
}

// Whatever a backend sends: the events are JSON, in an order that can be read,
// and say the same as what they were made of.
func FuzzTranslator(f *testing.F) {
	llmtest.Cases(f, "testdata/cases", func(c *llmtest.Sections) {
		if stream := c.Get("stream"); stream != "" {
			f.Add([]byte(c.Get("request")), []byte(stream))
		}
	})
	f.Fuzz(func(t *testing.T, body, stream []byte) {
		request, err := openai.ParseRequest(body)
		if err != nil {
			return
		}
		events := llmtest.Translate(t, anthropic.NewTranslator(request, "msg_0"), strings.NewReader(string(stream)))
		checkOrder(t, events)
		if strings.Contains(events, "event: error\n") {
			return // the stream was broken, and says so
		}
		if err := sameAnswer(string(stream), events, anthropic.WantsThinking(request)); err != nil {
			t.Error(err)
		}
	})
}

// checkOrder checks that blocks begin, go on and end one after the other.
func checkOrder(t *testing.T, events string) {
	t.Helper()
	reader := openai.NewEventReader(strings.NewReader(events))
	open, next, state := false, "0", "message_start"
	for {
		event, err := reader.Next()
		if err != nil {
			return
		}
		members, err := jsonx.Members(event.Data)
		if err != nil {
			t.Fatalf("event %s: %v", event.Data, err)
		}
		kind, _ := jsonx.Text(jsonx.Get(members, "type"))
		if kind != event.Name {
			t.Fatalf("event %s is called %s", event.Data, event.Name)
		}
		index := string(jsonx.Get(members, "index"))
		ok := true
		switch kind {
		case "message_start":
			ok, state = state == "message_start", "content"
		case "ping", "error":
		case "content_block_start":
			ok = state == "content" && !open && index == next
			open = true
		case "content_block_delta":
			ok = open && index == next
		case "content_block_stop":
			ok = open && index == next
			open = false
			next = after(index)
		case "message_delta":
			ok, state = state == "content" && !open, "end"
		case "message_stop":
			ok, state = state == "end", "over"
		default:
			ok = false
		}
		if !ok {
			t.Fatalf("event %s is out of order in\n%s", event.Data, events)
		}
	}
}

// after returns the number that follows one.
func after(n string) string {
	var b jsonx.Builder
	at := int64(0)
	for _, c := range n {
		at = at*10 + int64(c-'0')
	}
	return string(b.Int(at + 1).Bytes)
}

// Whatever a server of Messages sends, whole or as a stream.
func FuzzAccumulator(f *testing.F) {
	llmtest.Cases(f, "testdata/cases", func(c *llmtest.Sections) {
		f.Add([]byte(c.Get("events")))
		f.Add([]byte(c.Get("message")))
	})
	f.Fuzz(func(t *testing.T, data []byte) {
		var whole, parts anthropic.Accumulator
		_ = whole.AddWhole(data)
		_ = llmtest.Gather(string(data), &parts)
		for _, a := range []*openai.Answer{whole.Answer(), parts.Answer()} {
			if len(a.Choices) != 1 {
				t.Errorf("%d choices", len(a.Choices))
			}
		}
	})
}
