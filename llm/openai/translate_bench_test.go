package openai_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"agentlightning/llm/internal/llmtest"
	"agentlightning/llm/openai"
)

// chunks returns the data of a stream: a text and two calls, a token each.
func chunks(n int) [][]byte {
	out := make([][]byte, 0, n)
	for i := range n {
		delta := `"content":"Grüße \"👋\"\n"`
		switch {
		case i == 0:
			delta = `"role":"assistant","content":""`
		case i > n/2:
			call := 0
			if i > 3*n/4 {
				call = 1
			}
			arguments := `x`
			switch i {
			case n/2 + 1, 3*n/4 + 1:
				arguments = `{\"a\":\"`
			case 3 * n / 4, n - 2:
				arguments = `\"}`
			}
			delta = fmt.Sprintf(`"tool_calls":[{"index":%d,"id":"call_%d","type":"function","function":{"name":"f","arguments":"%s"}}]`, call, call, arguments)
		}
		finish := "null"
		if i == n-1 {
			delta, finish = "", `"tool_calls"`
		}
		out = append(out, fmt.Appendf(nil, `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":5,"model":"served","choices":[{"index":0,"delta":{%s},"finish_reason":%s,"token_ids":[%d],`+
			`"logprobs":{"content":[{"token":"x","logprob":-0.5,"bytes":[120],"top_logprobs":[]}]}}]}`, delta, finish, i))
	}
	return out
}

// The time is that of one event.
func BenchmarkTranslate(b *testing.B) {
	data := chunks(4096)
	for _, d := range []struct{ name, request string }{
		{"responses", `{"model":"m","stream":true,"input":"Hi"}`},
		{"completions", `{"model":"m","stream":true,"prompt":"Hi"}`},
	} {
		if d.name == "completions" {
			data = data[:2000] // it calls no tools
		}
		b.Run(d.name, func(b *testing.B) {
			request := llmtest.Parse(b, d.request)
			translator := translations[d.name].translator(request)
			b.ReportAllocs()
			var buf []byte
			var err error
			for i := 0; b.Loop(); i++ {
				if i == len(data) {
					i, translator = 0, translations[d.name].translator(request)
				}
				if buf, err = translator.AppendChunk(buf[:0], data[i]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A stream of 10 MB takes eight times as long as an eighth of it. Were the time
// of an event to grow with what came before, it would take 64 times as long.
func TestLongStreams(t *testing.T) {
	text := strings.Repeat("0123456789", 64)
	chunk := func(delta string) []byte { return []byte(`{"id":"c","choices":[{"index":0,"delta":{` + delta + `}}]}`) }
	call := func(index int, arguments string) []byte {
		return chunk(fmt.Sprintf(`"tool_calls":[{"index":%d,"id":"c%d","function":{"name":"f","arguments":"%s"}}]`, index, index, arguments))
	}
	const response, completion = `{"model":"m","stream":true,"input":"Hi"}`, `{"model":"m","stream":true,"prompt":"Hi"}`
	tests := []struct {
		name, dialect, request string
		first                  [][]byte
		then                   [][]byte // in turn
	}{
		{"response", "responses", response, nil, [][]byte{chunk(`"content":"` + text + `"`)}},
		{"completion", "completions", completion, nil, [][]byte{chunk(`"content":"` + text + `"`)}},
		// The second call waits for the end of the first, which does not come.
		{"calls at once", "responses", response, [][]byte{call(0, `{\"x\":\"`)}, [][]byte{call(0, text), call(1, text)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run := func(events int) time.Duration {
				begun := time.Now()
				translator, gather := translations[tt.dialect].translator(llmtest.Parse(t, tt.request)), translations[tt.dialect].gatherer()
				size := 0
				take := func(stream []byte) {
					size += len(stream)
					reader := openai.NewEventReader(bytes.NewReader(stream))
					for {
						event, err := reader.Next()
						if err != nil {
							return
						}
						if _, err := gather.Add(event.Data); err != nil {
							t.Fatal(err)
						}
					}
				}
				var buf []byte
				add := func(data []byte) {
					var err error
					if buf, err = translator.AppendChunk(buf[:0], data); err != nil {
						t.Fatal(err)
					}
					take(buf)
				}
				for _, data := range tt.first {
					add(data)
				}
				for i := range events {
					add(tt.then[i%len(tt.then)])
				}
				add([]byte(`{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`))
				take(translator.AppendEnd(nil))
				if size < events*len(text) || !gather.Finished() {
					t.Errorf("%d bytes came of %d", size, events*len(text))
				}
				return time.Since(begun)
			}
			const events = 2_000
			run(events)
			var short, long time.Duration
			for range 5 { // what else runs here must not count
				if short, long = run(events), run(8*events); long < 30*short {
					return
				}
			}
			t.Errorf("%d events took %s, %d took %s", events, short, 8*events, long)
		})
	}
}
