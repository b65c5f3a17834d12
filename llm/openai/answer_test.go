package openai_test

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentlightning/llm/openai"
)

func TestParseAnswer(t *testing.T) {
	t.Parallel()
	const body = `{"id":"c","model":"m","choices":[
		{"index":1,"message":{"role":"assistant","content":"B\u00e9"},"finish_reason":"length","provider_specific_fields":{"token_ids":[3]}},
		{"index":0,"message":{"role":"assistant","content":null,"refusal":"no","reasoning_content":"hm","tool_calls":[
			{"id":"t","type":"function","function":{"name":"f","arguments":"{\"a\": 1"}}]},
		 "finish_reason":"tool_calls","token_ids":[ 1, 2 ],"stop_reason":null,
		 "logprobs":{"content":[{"token":"x","logprob":-0.5},{"token":"y","logprob":0}],"refusal":[]}}],
		"prompt_token_ids":[],"usage":{"prompt_tokens":0,"completion_tokens":3,"total_tokens":3,"details":null},"unknown":{}}`
	want := &openai.Answer{ID: "c", Model: "m", PromptTokenIDs: []int64{}, Usage: &openai.Usage{Prompt: 0, Completion: 3, Total: 3}, Choices: []openai.Choice{
		{
			Index: 0, Role: "assistant", Refusal: "no", Reasoning: "hm", FinishReason: "tool_calls", TokenIDs: []int64{1, 2}, Logprobs: []float64{-0.5, 0},
			LogprobsContent: []byte(`[{"token":"x","logprob":-0.5},{"token":"y","logprob":0}]`), LogprobsRefusal: []byte(`[]`),
			ToolCalls: []openai.ToolCall{{ID: "t", Type: "function", Name: "f", Arguments: `{"a": 1`}},
		},
		{Index: 1, Role: "assistant", Content: new("Bé"), FinishReason: "length", TokenIDs: []int64{3}},
	}}
	got, err := openai.ParseAnswer([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestParseAnswerRefuses(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		``, `null`, `[]`, `{"choices":[]}`, `{"choices":{}}`, `{"choices":[1]}`, `{"choices":[{"index":-1}]}`,
		`{"choices":[{"index":99999999}]}`, `{"choices":[{"message":[]}]}`, `{"choices":[{"message":{"tool_calls":[{"index":100000}]}}]}`, `{"choices":[{}]`,
	} {
		if a, err := openai.ParseAnswer([]byte(body)); err == nil {
			t.Errorf("ParseAnswer(%s) = %+v, want an error", body, a)
		}
	}
}

// Token ids and log-probabilities that cannot be read are left out, not guessed.
func TestOddTokenData(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, choice string
		ids          []int64
		logprobs     []float64
	}{
		{"null", `"token_ids":null,"logprobs":null`, nil, nil},
		{"text among ids", `"token_ids":[1,"2"]`, nil, nil},
		{"floats", `"token_ids":[1.0]`, nil, nil},
		{"nested", `"token_ids":[[1,2]]`, nil, nil},
		{"a logprob is null", `"token_ids":[1,2],"logprobs":{"content":[{"token":"a","logprob":-1},{"token":"b","logprob":null}]}`, []int64{1, 2}, nil},
		{"a logprob is infinite", `"logprobs":{"content":[{"token":"a","logprob":-Infinity}]}`, nil, nil},
		{"spelled", `"logprobs":{"content":[{"token":"token_id:5","logprob":-1},{"token":"token_id:6","logprob":-2}]}`, []int64{5, 6}, []float64{-1, -2}},
		{"some spelled", `"logprobs":{"content":[{"token":"token_id:5","logprob":-1},{"token":"x","logprob":-2}]}`, nil, []float64{-1, -2}},
		{"spelled and sent", `"token_ids":[7],"logprobs":{"content":[{"token":"token_id:5","logprob":-1}]}`, []int64{7}, []float64{-1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a, err := openai.ParseAnswer([]byte(`{"choices":[{"message":{},` + tt.choice + `}]}`))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.ids, a.Choices[0].TokenIDs); diff != "" {
				t.Errorf("ids (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.logprobs, a.Choices[0].Logprobs); diff != "" {
				t.Errorf("logprobs (-want +got):\n%s", diff)
			}
		})
	}
}

// chunksOf cuts a whole answer into the chunks of a stream.
func chunksOf(a *openai.Answer, size int) [][]byte {
	var out [][]byte
	add := func(v map[string]any) {
		raw, _ := json.Marshal(v)
		out = append(out, raw)
	}
	choice := func(index int, delta map[string]any, rest map[string]any) map[string]any {
		c := map[string]any{"index": index, "delta": delta, "finish_reason": nil}
		maps.Copy(c, rest)
		return map[string]any{"id": a.ID, "model": a.Model, "choices": []any{c}}
	}
	first := choice(0, map[string]any{"role": "assistant"}, nil)
	if a.PromptTokenIDs != nil {
		first["prompt_token_ids"] = a.PromptTokenIDs
	}
	add(first)
	for i := range a.Choices {
		c := &a.Choices[i]
		add(choice(c.Index, map[string]any{"role": c.Role}, nil))
		if c.Content != nil {
			text := []rune(*c.Content)
			add(choice(c.Index, map[string]any{"content": ""}, nil))
			for len(text) > 0 {
				n := min(size, len(text))
				add(choice(c.Index, map[string]any{"content": string(text[:n])}, nil))
				text = text[n:]
			}
		}
		for j, call := range c.ToolCalls {
			add(choice(c.Index, map[string]any{"tool_calls": []any{map[string]any{"index": j, "id": call.ID, "type": call.Type, "function": map[string]any{"name": call.Name}}}}, nil))
			for arguments := []rune(call.Arguments); len(arguments) > 0; {
				n := min(size, len(arguments))
				add(choice(c.Index, map[string]any{"tool_calls": []any{map[string]any{"index": j, "function": map[string]any{"arguments": string(arguments[:n])}}}}, nil))
				arguments = arguments[n:]
			}
		}
		for ids, at := c.TokenIDs, 0; at < len(ids); at += size {
			n := min(size, len(ids)-at)
			rest := map[string]any{"token_ids": ids[at : at+n]}
			if c.Logprobs != nil {
				var content []any
				for _, l := range c.Logprobs[at : at+n] {
					content = append(content, map[string]any{"token": "t", "logprob": l})
				}
				rest["logprobs"] = map[string]any{"content": content}
			}
			add(choice(c.Index, map[string]any{}, rest))
		}
		add(choice(c.Index, map[string]any{}, map[string]any{"finish_reason": c.FinishReason}))
	}
	if a.Usage != nil {
		add(map[string]any{"id": a.ID, "choices": []any{}, "usage": map[string]any{"prompt_tokens": a.Usage.Prompt, "completion_tokens": a.Usage.Completion, "total_tokens": a.Usage.Total}})
	}
	return out
}

// However an answer is cut into chunks, the same answer is gathered from them.
func TestAccumulator(t *testing.T) {
	t.Parallel()
	want := &openai.Answer{ID: "c", Model: "m", PromptTokenIDs: []int64{1, 2}, Usage: &openai.Usage{Prompt: 2, Completion: 5, Total: 7}, Choices: []openai.Choice{
		{Index: 0, Role: "assistant", Content: new("Grüße 👋"), FinishReason: "stop", TokenIDs: []int64{5, 6, 7}, Logprobs: []float64{-1, -2, -0.5}},
		{
			Index: 2, Role: "assistant", FinishReason: "tool_calls", TokenIDs: []int64{8, 9},
			ToolCalls: []openai.ToolCall{{ID: "a", Type: "function", Name: "f", Arguments: `{"x":[1,2]}`}, {ID: "b", Type: "function", Name: "g"}},
		},
	}}
	for size := 1; size < 6; size++ {
		var acc openai.Accumulator
		chunks := chunksOf(want, size)
		for i, chunk := range chunks {
			c, err := acc.Add(chunk)
			if err != nil {
				t.Fatal(err)
			}
			if c.UsageOnly != (i == len(chunks)-1) {
				t.Errorf("chunk %s: UsageOnly = %t", chunk, c.UsageOnly)
			}
			clear(chunk) // nothing of it may be kept
		}
		if !acc.Finished() || acc.Chunks() != len(chunks) {
			t.Errorf("Finished = %t after %d of %d chunks", acc.Finished(), acc.Chunks(), len(chunks))
		}
		got := acc.Answer()
		for i := range got.Choices {
			got.Choices[i].LogprobsContent = nil
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("size %d (-want +got):\n%s", size, diff)
		}
	}
}

func TestChunk(t *testing.T) {
	t.Parallel()
	tests := []struct {
		data string
		want openai.Chunk
	}{
		{`{"choices":[],"usage":{"total_tokens":1}}`, openai.Chunk{UsageOnly: true}},
		{`{"usage":{"total_tokens":1}}`, openai.Chunk{UsageOnly: true}},
		{`{"choices":[ ],"usage":null}`, openai.Chunk{}},
		{`{"choices":[{"delta":{}}],"usage":{"total_tokens":1}}`, openai.Chunk{}},
		{`{"choices":[]}`, openai.Chunk{}},
		{`{"error":{"message":"m","code":5}}`, openai.Chunk{Error: "m"}},
		{`{"error":null,"choices":[{"delta":{}}]}`, openai.Chunk{}},
	}
	for _, tt := range tests {
		var acc openai.Accumulator
		if got, err := acc.Add([]byte(tt.data)); err != nil || got != tt.want {
			t.Errorf("Add(%s) = %+v, %v, want %+v", tt.data, got, err, tt.want)
		}
	}
}

func TestErrorMessage(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"error":{"message":"a","type":"t"}}`:        "a",
		`{"error":"b"}`:                               "b",
		`{"object":"error","message":"c","code":400}`: "c",
		`{"detail":"d"}`:                              "d",
		`{"detail":[{"loc":["body"],"msg":"e"}]}`:     `[{"loc":["body"],"msg":"e"}]`,
		"<html>\n":               "<html>",
		"":                       "",
		`{"error":{"type":"t"}}`: `{"error":{"type":"t"}}`,
	} {
		if got := openai.ErrorMessage([]byte(body)); got != want {
			t.Errorf("ErrorMessage(%s) = %q, want %q", body, got, want)
		}
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add([]byte(`{"id":"c","choices":[{"index":0,"message":{"content":"x","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]},"token_ids":[1],"logprobs":{"content":[{"token":"token_id:1","logprob":-1}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":1},"prompt_token_ids":[1,2]}`))
	f.Add([]byte(`{"choices":[{"delta":{"content":"x"}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var acc openai.Accumulator
		_, _ = acc.Add(body)
		_, _ = acc.Add(body)
		for _, c := range acc.Answer().Choices {
			if c.LogprobsContent != nil && !json.Valid(c.LogprobsContent) && json.Valid(body) {
				t.Errorf("logprobs of %s are %s", body, c.LogprobsContent)
			}
		}
		if _, err := openai.ParseAnswer(body); err == nil && !json.Valid(body) {
			// Python's NaN and Infinity are taken, too.
			if !containsAny(body, "NaN", "Infinity") {
				t.Errorf("ParseAnswer(%q) accepts what is no JSON", body)
			}
		}
	})
}
