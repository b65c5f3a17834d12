package openai_test

import (
	"fmt"
	"strings"
	"testing"

	"agentlightning/llm/openai"
)

func tokens(n int) (ids, logprobs string) {
	var a, b []string
	for i := range n {
		a = append(a, fmt.Sprint(1000+i))
		b = append(b, fmt.Sprintf(`{"token":"w%d ","logprob":-0.%d,"bytes":[119,49,32],"top_logprobs":[]}`, i, 1+i%7))
	}
	return strings.Join(a, ","), strings.Join(b, ",")
}

func BenchmarkParseAnswer(b *testing.B) {
	for _, n := range []int{64, 1024} {
		ids, logprobs := tokens(n)
		body := []byte(fmt.Sprintf(`{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":%q},`+
			`"finish_reason":"stop","token_ids":[%s],"logprobs":{"content":[%s]}}],"usage":{"prompt_tokens":4,"completion_tokens":%d,"total_tokens":%d},"prompt_token_ids":[1,2,3,4]}`,
			strings.Repeat("word ", n), ids, logprobs, n, n+4))
		b.Run(fmt.Sprintf("tokens=%d", n), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := openai.ParseAnswer(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStream reads a stream of 64 chunks and gathers the answer.
func BenchmarkStream(b *testing.B) {
	var stream strings.Builder
	for i := range 64 {
		_, logprob := tokens(1)
		fmt.Fprintf(&stream, `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"w%d "},"token_ids":[%d],"logprobs":{"content":[%s]},"finish_reason":null}]}`+"\n\n", i, 1000+i, logprob)
	}
	text := stream.String()
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		var gather openai.Accumulator
		events := openai.NewEventReader(strings.NewReader(text))
		for {
			e, err := events.Next()
			if err != nil {
				break
			}
			if _, err := gather.Add(e.Data); err != nil {
				b.Fatal(err)
			}
		}
		if n := len(gather.Answer().Choices[0].TokenIDs); n != 64 {
			b.Fatalf("%d token ids", n)
		}
	}
}
