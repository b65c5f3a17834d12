package adapter_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/semconv"
)

// recordedBy reads what an instrumentation of somebody else recorded.
func recordedBy(t *testing.T, source string) []agl.Span {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "sources", source+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var f struct{ Spans []agl.Span }
	if err := json.Unmarshal(raw, &f); err != nil {
		t.Fatal(err)
	}
	if len(f.Spans) == 0 {
		t.Fatalf("%s has no spans", source)
	}
	return f.Spans
}

const (
	multiply = `{"type":"function","function":{"name":"multiply","description":"Multiply two numbers.","parameters":{"type":"object","properties":{"a":{"type":"number"},"b":{"type":"number"}}}}}`
	question = `{"content":"Use the tool.","role":"system"},{"content":"6*7?","role":"user"}`
	calling  = `{"content":null,"role":"assistant","tool_calls":[{"id":"call_1","type":"function","function":{"name":"multiply","arguments":"{\"a\":6,\"b\":7}"}}]}`
	answered = `{"content":"42","role":"tool","tool_call_id":"call_1"},{"content":"It is 42.","role":"assistant"}`
)

func TestCallsOfOtherTracers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		source, by string
		ids        bool // are there
		finish     string
		said       bool // messages are there
	}{
		{"openinference", "OpenInference", true, "tool_calls", true},
		{"otel-v2", "OpenTelemetry", false, "tool_calls", false},
		{"openllmetry", "OpenLLMetry", false, "tool_call", true},
		{"logfire", "Logfire", false, "tool_calls", true},
	}
	for _, tt := range tests {
		t.Run(tt.source, func(t *testing.T) {
			t.Parallel()
			spans := recordedBy(t, tt.source)
			var r adapter.Recording
			r.Add(spans...)
			e := r.Explain(adapter.Circumstances{Status: agl.AttemptSucceeded, Rollout: agl.RolloutSucceeded}, adapter.ExplainConfig{LogprobsOptional: true})
			if len(e.Calls) != 2 {
				t.Fatalf("%d calls, want 2", len(e.Calls))
			}
			for i, c := range e.Calls {
				want := adapter.ExplainedCall{
					SpanID: spans[i].SpanID, SequenceID: int64(i + 1), ResponseID: []string{"chatcmpl-2", "chatcmpl-4"}[i],
					Source: tt.by, Model: "policy", FinishReason: []string{tt.finish, "stop"}[i],
					Reason: semconv.ProblemTokenIDsMissing, Detail: "recorded by " + tt.by + ", without token ids",
				}
				if tt.ids {
					want.PromptTokens, want.ResponseTokens = 6*(i+1), 2
					want.Reason, want.Detail, want.Row = "no_reward", "no span carries a reward", new(i)
				}
				c.Mismatch = nil
				if diff := cmp.Diff(want, c); diff != "" {
					t.Errorf("call %d (-want +got):\n%s", i, diff)
				}
			}
			conversations, err := adapter.Conversations(spans)
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"[" + question + "," + calling + "]", "[" + question + "," + calling + "," + answered + "]"}
			if !tt.said {
				want = nil
			}
			var got []string
			for _, c := range conversations {
				text, err := json.Marshal(c.Messages)
				if err != nil {
					t.Fatal(err)
				}
				// Some write arguments with spaces, as Python does.
				got = append(got, strings.ReplaceAll(string(text), `{\"a\": 6, \"b\": 7}`, `{\"a\":6,\"b\":7}`))
				tools, err := json.Marshal(c.Tools)
				if err != nil {
					t.Fatal(err)
				}
				var have, offered any
				if json.Unmarshal(tools, &have) != nil || json.Unmarshal([]byte("["+multiply+"]"), &offered) != nil || !cmp.Equal(have, offered) {
					t.Errorf("tools are %s, want %s", tools, multiply)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("conversations (-want +got):\n%s", diff)
			}
		})
	}
}

// What the recorded tracer of AgentOps and the proxy say is read too, and a call
// that several recorded is read once.
func TestConversationsOfOneCall(t *testing.T) {
	t.Parallel()
	own := proxied(1, []int64{1}, []int64{2}, semconv.GenAIResponseID, "r",
		"gen_ai.prompt.0.role", "user", "gen_ai.prompt.0.content", "hi", "gen_ai.completion.0.role", "assistant", "gen_ai.completion.0.content", "ho")
	own.SpanID = "own"
	other := agl.Span{SpanID: "other", SequenceID: 2, Name: "chat m", Attributes: attrs(
		"gen_ai.operation.name", "chat", semconv.GenAIResponseID, "r",
		"gen_ai.input.messages", `[{"role":"user","parts":[{"type":"text","content":"hi"}]}]`)}
	tests := []struct {
		name  string
		spans []agl.Span
		want  string
		err   string
	}{
		{"both", []agl.Span{own, other}, `[{"content":"hi","role":"user"},{"content":"ho","role":"assistant"}]`, ""},
		{"the other alone", []agl.Span{other}, `[{"content":"hi","role":"user"}]`, ""},
		{
			"parts of every kind",
			[]agl.Span{spoken(`[{"role":"user","parts":[{"type":"text","content":"a"},{"type":"uri","modality":"image","uri":"x.png"}]},` +
				`{"role":"assistant","parts":[{"type":"reasoning","content":"hm"},{"type":"tool_call","id":"c","name":"f","arguments":"{}"}]},` +
				`{"role":"tool","parts":[{"type":"tool_call_response","id":"c","result":{"n":1}},{"type":"tool_call_response","id":"d","response":"<2>"}]}]`)},
			`[{"content":[{"text":"a","type":"text"},{"type":"uri","modality":"image","uri":"x.png"}],"role":"user"},` +
				`{"content":null,"role":"assistant","reasoning_content":"hm","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},` +
				`{"content":"{\"n\":1}","role":"tool","tool_call_id":"c"},{"content":"<2>","role":"tool","tool_call_id":"d"}]`, "",
		},
		{
			"a picture, and words beside a tool call",
			[]agl.Span{call(1, "gen_ai.prompt.0.role", "user",
				"gen_ai.prompt.0.content", ` [{"type":"text","text":"What?"},{"image_url":{"url":"data:image/png;base64,AA=="},"type":"image_url"}]`,
				"gen_ai.prompt.1.role", "assistant", "gen_ai.prompt.1.content", "Let me see.", "gen_ai.prompt.1.tool_calls.0.id", "c",
				"gen_ai.prompt.1.tool_calls.0.name", "f", "gen_ai.prompt.1.tool_calls.0.arguments", "{}",
				"gen_ai.prompt.2.role", "assistant", "gen_ai.prompt.2.content", "", "gen_ai.prompt.2.tool_calls.0.id", "d",
				"gen_ai.prompt.2.tool_calls.0.name", "f", "gen_ai.prompt.2.tool_calls.0.arguments", "{}",
				"gen_ai.completion.0.role", "assistant", "gen_ai.completion.0.content", "", "gen_ai.completion.0.tool_calls.0.id", "e",
				"gen_ai.completion.0.tool_calls.0.name", "f", "gen_ai.completion.0.tool_calls.0.arguments", "{}")},
			`[{"content":[{"type":"text","text":"What?"},{"image_url":{"url":"data:image/png;base64,AA=="},"type":"image_url"}],"role":"user"},` +
				`{"content":"Let me see.","role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},` +
				`{"content":null,"role":"assistant","tool_calls":[{"id":"d","type":"function","function":{"name":"f","arguments":"{}"}}]},` +
				`{"content":null,"role":"assistant","tool_calls":[{"id":"e","type":"function","function":{"name":"f","arguments":"{}"}}]}]`, "",
		},
		{
			"texts that only begin like parts",
			[]agl.Span{call(1, "gen_ai.prompt.0.role", "user", "gen_ai.prompt.0.content", `[{"type":"text"}]`,
				"gen_ai.prompt.1.role", "user", "gen_ai.prompt.1.content", `[{"type":"row","row":1}]`,
				"gen_ai.prompt.2.role", "user", "gen_ai.prompt.2.content", `[]`,
				"gen_ai.prompt.3.role", "user", "gen_ai.prompt.3.content", `[{"text":"a"`)},
			`[{"content":"[{\"type\":\"text\"}]","role":"user"},{"content":"[{\"type\":\"row\",\"row\":1}]","role":"user"},` +
				`{"content":"[]","role":"user"},{"content":"[{\"text\":\"a\"","role":"user"}]`, "",
		},
		{"no JSON", []agl.Span{spoken(`[`)}, "", "span o: messages"},
		{"no role", []agl.Span{spoken(`[{"parts":[]}]`)}, "", "message 0 has no role"},
		{"images of OpenInference", []agl.Span{{SpanID: "o", Name: "x", Attributes: attrs(
			"openinference.span.kind", "LLM", "llm.input_messages.0.message.role", "user",
			"llm.input_messages.0.message.contents.0.message_content.type", "text", "llm.input_messages.0.message.contents.0.message_content.text", "what?",
			"llm.input_messages.0.message.contents.1.message_content.type", "image", "llm.input_messages.0.message.contents.1.message_content.image.image.url", "x.png",
		)}}, `[{"content":[{"text":"what?","type":"text"},{"image_url":{"url":"x.png"},"type":"image_url"}],"role":"user"}]`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := adapter.Conversations(tt.spans)
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("Conversations: %v, want an error with %q", err, tt.err)
			}
			if err != nil {
				return
			}
			if len(got) != 1 {
				t.Fatalf("%d conversations, want one", len(got))
			}
			var text []string
			for _, m := range got[0].Messages {
				text = append(text, string(m))
			}
			if diff := cmp.Diff(tt.want, "["+strings.Join(text, ",")+"]"); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
		})
	}
}

func spoken(messages string) agl.Span {
	return agl.Span{SpanID: "o", Name: "chat", Attributes: attrs("gen_ai.operation.name", "chat", "gen_ai.input.messages", messages)}
}

// OpenInference keeps whole answers, and with them the engine's own ids.
func TestIDsInWholeAnswers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer           string
		prompt, response []int32
		logprobs         []float32
		problem          string
	}{
		"newer vLLM":  {`{"id":"x","prompt_token_ids":[1],"choices":[{"token_ids":[2],"logprobs":{"content":[{"logprob":-0.5}]}}]}`, []int32{1}, []int32{2}, []float32{-0.5}, ""},
		"older vLLM":  {`{"prompt_token_ids":[1],"response_token_ids":[[2,3]],"choices":[{}]}`, []int32{1}, []int32{2, 3}, nil, ""},
		"LiteLLM":     {`{"prompt_token_ids":[1],"choices":[{"provider_specific_fields":{"token_ids":[2]}}]}`, []int32{1}, []int32{2}, nil, ""},
		"completions": {`{"choices":[{"prompt_token_ids":[1],"token_ids":[2]}]}`, []int32{1}, []int32{2}, nil, ""},
		"half":        {`{"prompt_token_ids":[1],"choices":[{}]}`, []int32{1}, []int32{}, nil, "token_ids_incomplete"},
		"a text":      {`It is 42.`, []int32{}, []int32{}, nil, "token_ids_missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := agl.Span{Name: "ChatCompletion", Attributes: attrs("openinference.span.kind", "LLM", "output.value", tt.answer)}
			calls, err := adapter.Calls([]agl.Span{s})
			if err != nil || len(calls) != 1 {
				t.Fatalf("Calls = %v, %v", calls, err)
			}
			c := calls[0]
			if !cmp.Equal(c.PromptIDs, tt.prompt) || !cmp.Equal(c.ResponseIDs, tt.response) || !cmp.Equal(c.Logprobs, tt.logprobs) || c.Problem != tt.problem {
				t.Errorf("call is %+v, want %+v", c, tt)
			}
		})
	}
}
