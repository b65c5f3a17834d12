package adapter_test

import (
	"encoding/json"
	"strings"
	"testing"

	agl "agentlightning"
	"agentlightning/adapter"
)

func TestMessagesOfOneSpan(t *testing.T) {
	t.Parallel()
	user := []any{"gen_ai.prompt.0.role", "user"}
	tests := []struct {
		name  string
		attrs []any
		child []any // attributes of a span below; nil for none
		want  string
		err   string
	}{
		{"index with a zero in front", []any{"gen_ai.prompt.01.role", "user", "gen_ai.prompt.1.content", "hi"}, nil, `[{"content":"hi","role":"user"}]`, ""},
		{"ten messages are in order", []any{"gen_ai.prompt.10.role", "user", "gen_ai.prompt.10.content", "b", "gen_ai.prompt.9.role", "user", "gen_ai.prompt.9.content", "a"}, nil, `[{"content":"a","role":"user"},{"content":"b","role":"user"}]`, ""},
		{"a sign is no digit", append(user, "gen_ai.prompt.+1.role", "user"), nil, `[{"content":"","role":"user"}]`, ""},
		{"a number for a content", append(user, "gen_ai.prompt.0.content", int64(7)), nil, "", "the content is 7"},
		{"an object for a content", append(user, "gen_ai.prompt.0.content.a", "x"), nil, "", "neither a text nor a list"},
		{"a number for a tool call", []any{"gen_ai.prompt.0.role", "tool", "gen_ai.prompt.0.tool_call_id", int64(1)}, nil, "", "tool_call_id"},
		{"half a tool call below an answer", []any{"gen_ai.completion.0.role", "assistant"}, []any{"tool.name", "add"}, "", "lacks id"},
		{"half a tool call that nobody answered with", user, []any{"tool.name", "add"}, `[{"content":"","role":"user"}]`, ""},
		{
			"tool calls that the proxy recorded", []any{
				"gen_ai.completion.0.role", "assistant", "gen_ai.completion.0.tool_calls.0.id", "c",
				"gen_ai.completion.0.tool_calls.0.name", "add", "gen_ai.completion.0.tool_calls.0.arguments", "{}",
			}, nil, `[{"content":null,"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"add","arguments":"{}"}}]}]`, "",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			spans := []agl.Span{{SpanID: "a", Attributes: attrs(tt.attrs...)}}
			if tt.child != nil {
				spans = append(spans, agl.Span{SpanID: "b", ParentID: new("a"), Attributes: attrs(tt.child...)})
			}
			got, err := adapter.Messages(spans)
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("Messages = %v, want an error with %q", err, tt.err)
			}
			if err != nil {
				return
			}
			text, err := json.Marshal(got[0].Messages)
			if err != nil || string(text) != tt.want {
				t.Errorf("Messages = %s, want %s", text, tt.want)
			}
		})
	}
}

func TestProxyTripletsKeepWhatPythonKeeps(t *testing.T) {
	t.Parallel()
	raw := func(kv ...any) agl.Span {
		s := agl.Span{SpanID: "s", Name: "raw_gen_ai_request", Attributes: attrs(kv...)}
		start := 1.0
		s.StartTime = &start
		return s
	}
	const prompt, answer = "llm.hosted_vllm.prompt_token_ids", "llm.hosted_vllm.response_token_ids"
	timeless := raw(prompt, "[1]", answer, "[[2]]")
	timeless.StartTime = nil
	tests := []struct {
		name  string
		spans []agl.Span
		want  string // prompts and metadata; "-" for none
		fails bool
	}{
		{"a tuple is no list", []agl.Span{raw(prompt, "(1, 2)", answer, "[[3]]")}, "-", false},
		{"True stays what it is", []agl.Span{raw(prompt, "[True, 2]", answer, "[[3]]")}, `{"token_ids":[true,2]}{"response_id":null}`, false},
		{"integers of any size", []agl.Span{raw(prompt, "[123456789012345678901]", answer, "[[3]]")}, `{"token_ids":[123456789012345678901]}{"response_id":null}`, false},
		{"bytes beside the ids", []agl.Span{raw(prompt, "[1]", "llm.hosted_vllm.choices", `[{'token_ids': [3], 'raw': b'\x00'}]`)}, `{"token_ids":[1]}{"response_id":null}`, false},
		{"an id that is no text hides the next", []agl.Span{raw(prompt, "[1]", answer, "[[2]]", "gen_ai.response.id", int64(3), "llm.hosted_vllm.id", "x")}, `{"token_ids":[1]}{"response_id":null}`, false},
		{"an empty id does not", []agl.Span{raw(prompt, "[1]", answer, "[[2]]", "gen_ai.response.id", "", "llm.hosted_vllm.id", "x")}, `{"token_ids":[1]}{"response_id":"x"}`, false},
		{"two spans without a time", []agl.Span{timeless, timeless}, `{"token_ids":[1]}{"response_id":null}{"token_ids":[1]}{"response_id":null}`, false},
		{"one of two without a time", []agl.Span{timeless, raw()}, "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := adapter.ProxyTriplets(tt.spans)
			if (err != nil) != tt.fails {
				t.Fatalf("ProxyTriplets: %v, want an error: %v", err, tt.fails)
			}
			text := ""
			for _, triplet := range got {
				text += string(triplet.Prompt) + string(triplet.Metadata)
			}
			if err == nil && text != strings.TrimPrefix(tt.want, "-") {
				t.Errorf("ProxyTriplets = %s, want %s", text, tt.want)
			}
		})
	}
}

// A span that encloses the one above it must not be lost with it.
func TestRepairKeepsWhatEnclosesItsParent(t *testing.T) {
	t.Parallel()
	at := func(id, parent string, start, end float64) agl.Span {
		s := call(1, ids...)
		s.SpanID, s.StartTime, s.EndTime = id, &start, &end
		if parent != "" {
			s.ParentID = &parent
		}
		return s
	}
	spans := []agl.Span{at("root", "", 0, 9), at("a", "root", 2, 3), at("wide", "a", 1, 4), at("b", "root", 6, 7)}
	triplets, err := adapter.TracerTriplets(spans, adapter.TracerOptions{CallMatch: "completion"})
	// Without response ids only the outermost calls count: the root alone.
	if err != nil || len(triplets) != 1 {
		t.Fatalf("TracerTriplets = %d, %v", len(triplets), err)
	}
	for i := range spans {
		spans[i].Attributes.Set("gen_ai.response.id", spans[i].SpanID)
	}
	if triplets, err = adapter.TracerTriplets(spans, adapter.TracerOptions{}); err != nil || len(triplets) != 4 {
		t.Errorf("TracerTriplets = %d triplets, %v, want all four calls", len(triplets), err)
	}
}
