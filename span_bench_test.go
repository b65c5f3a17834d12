package agl_test

import (
	"strings"
	"testing"

	agl "agentlightning"
)

func benchSpan() agl.Span {
	s := agl.SpanCore{Name: "openai.chat.completion", Status: agl.TraceStatus{StatusCode: agl.StatusOK}, Attributes: agl.Attributes{
		{Key: "gen_ai.request.model", Value: "test"},
		{Key: "gen_ai.prompt.0.role", Value: "user"},
		{Key: "gen_ai.prompt.0.content", Value: strings.Repeat("x", 1000)},
	}}.Span("ro-0123456789ab", "at-01234567", 7, 1764439200.25)
	s.EndTime = s.StartTime
	return s
}

func BenchmarkSpanUnmarshal(b *testing.B) {
	s := benchSpan()
	body := s.AppendJSON(nil)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := s.UnmarshalJSON(body); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSpanTokens reads a span that carries token ids and log probabilities.
func BenchmarkSpanTokens(b *testing.B) {
	s := benchSpan()
	ids, logs := make([]int64, 2000), make([]float64, 2000)
	for i := range ids {
		ids[i], logs[i] = int64(i*37%50000), -float64(i%100)/7
	}
	s.Attributes.Set("prompt_token_ids", ids)
	s.Attributes.Set("logprobs", logs)
	body := s.AppendJSON(nil)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := s.UnmarshalJSON(body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSpanAppend(b *testing.B) {
	s := benchSpan()
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = s.AppendJSON(dst[:0])
	}
}
