package anthropic_test

import (
	"fmt"
	"testing"

	"agentlightning/llm/anthropic"
	"agentlightning/llm/internal/llmtest"
)

// The time is that of one event.
func BenchmarkTranslator(b *testing.B) {
	request := llmtest.Parse(b, `{"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"Hi"}]}`)
	for _, d := range []struct{ name, delta string }{
		{"text", `"content":"Grüße \"👋\"\n"`},
		{"arguments", `"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"city\":"}}]`},
	} {
		data := fmt.Appendf(nil, `{"id":"chatcmpl-1","object":"chat.completion.chunk","created":5,"model":"served","choices":[{"index":0,"delta":{%s},"finish_reason":null,"token_ids":[7],`+
			`"logprobs":{"content":[{"token":"x","logprob":-0.5,"bytes":[120],"top_logprobs":[]}]}}]}`, d.delta)
		b.Run(d.name, func(b *testing.B) {
			translator := anthropic.NewTranslator(request, "msg_1")
			b.ReportAllocs()
			var buf []byte
			var err error
			for b.Loop() {
				if buf, err = translator.AppendChunk(buf[:0], data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
