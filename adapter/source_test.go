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
		said       bool   // messages are there
		at         [2]int // where the calls are among the spans
		agent      string
	}{
		{"openinference", "OpenInference", true, "tool_calls", true, [2]int{0, 1}, ""},
		{"otel-v2", "OpenTelemetry", false, "tool_calls", false, [2]int{0, 1}, ""},
		{"openllmetry", "OpenLLMetry", false, "tool_call", true, [2]int{0, 1}, ""},
		{"logfire", "Logfire", false, "tool_calls", true, [2]int{0, 1}, ""},
		{"agentops", "tracer", false, "tool_calls", true, [2]int{1, 3}, "calculator"},
		{"weave", "Weave", true, "tool_calls", true, [2]int{1, 3}, ""},
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
					SpanID: spans[tt.at[i]].SpanID, SequenceID: int64(tt.at[i] + 1), Agent: tt.agent, ResponseID: []string{"chatcmpl-2", "chatcmpl-4"}[i],
					Source: tt.by, Model: "policy", FinishReason: []string{tt.finish, "stop"}[i],
					Reason: semconv.ProblemTokenIDsMissing, Detail: "recorded by " + tt.by + ", without token ids",
				}
				if tt.by == "tracer" {
					want.Detail = "the span has no token ids"
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

// What the tracer's adapter of release 0.3 makes of the same: a triplet for each call,
// with the messages as they were recorded and the agent that made it.
func TestTracerTripletsOfOtherTracers(t *testing.T) {
	t.Parallel()
	for source, tt := range map[string]struct {
		prompt, response [2]string // ids
		agent            string
		asked, answered  string // messages of the second call
	}{
		"agentops": {
			[2]string{"[]", "[]"},
			[2]string{"[]", "[]"},
			"calculator",
			`[{"role":"system","content":"Use the tool."},{"role":"user","content":"6*7?"},` +
				`{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","name":"multiply","arguments":"{\"a\": 6, \"b\": 7}"}]},` +
				`{"role":"tool","content":"42","tool_call_id":"call_1"}]`,
			`[{"finish_reason":"stop","role":"assistant","content":"It is 42."}]`,
		},
		"weave": {
			[2]string{"[0,1,2,3,4,5]", "[0,1,2,3,4,5,6,7,8,9,10,11]"},
			[2]string{"[102,103]", "[104,105]"},
			"*",
			`[{"role":"system","content":"Use the tool."},{"role":"user","content":"6*7?"},` +
				`{"role":"assistant","content":"null","tool_calls":[{"id":"call_1","function":{"arguments":"{\"a\": 6, \"b\": 7}","name":"multiply"},"type":"function"}]},` +
				`{"role":"tool","tool_call_id":"call_1","content":"42"}]`,
			`[{"finish_reason":"stop","index":0,"message":{"content":"It is 42.","role":"assistant"},"token_ids":[104,105]}]`,
		},
	} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			triplets, err := adapter.TracerTriplets(recordedBy(t, source), adapter.TracerOptions{})
			if err != nil || len(triplets) != 2 {
				t.Fatalf("TracerTriplets: %d, %v, want 2", len(triplets), err)
			}
			for i, got := range triplets {
				var prompt, response struct {
					IDs json.RawMessage `json:"token_ids"`
					Raw any             `json:"raw_content"`
				}
				var metadata struct {
					ResponseID string `json:"response_id"`
					Agent      string `json:"agent_name"`
				}
				for raw, into := range map[*json.RawMessage]any{&got.Prompt: &prompt, &got.Response: &response, &got.Metadata: &metadata} {
					if err := json.Unmarshal(*raw, into); err != nil {
						t.Fatal(err)
					}
				}
				if string(prompt.IDs) != tt.prompt[i] || string(response.IDs) != tt.response[i] {
					t.Errorf("triplet %d has ids %s and %s", i, prompt.IDs, response.IDs)
				}
				if metadata.Agent != tt.agent || metadata.ResponseID != []string{"chatcmpl-2", "chatcmpl-4"}[i] {
					t.Errorf("triplet %d is of %+v", i, metadata)
				}
				if i == 0 {
					continue
				}
				for want, got := range map[string]any{tt.asked: prompt.Raw, tt.answered: response.Raw} {
					var value any
					if err := json.Unmarshal([]byte(want), &value); err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(value, got); diff != "" {
						t.Errorf("triplet %d (-want +got):\n%s", i, diff)
					}
				}
			}
		})
	}
}

// Messages, which reads what release 0.3 reads, has the conversation of AgentOps.
func TestMessagesOfAgentOps(t *testing.T) {
	t.Parallel()
	got, err := adapter.Messages(recordedBy(t, "agentops"))
	if err != nil || len(got) != 2 {
		t.Fatalf("Messages: %d, %v, want 2", len(got), err)
	}
	text, err := json.Marshal(got[1].Messages)
	if err != nil {
		t.Fatal(err)
	}
	want := "[" + question + "," + strings.ReplaceAll(calling, `\"a\":6,\"b\":7`, `\"a\": 6, \"b\": 7`) + "," + answered + "]"
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// Weave spells out whole answers, log-probabilities too, and requests with pictures.
func TestWholeAnswersOfWeave(t *testing.T) {
	t.Parallel()
	const in, out = semconv.OperationInput, semconv.OperationOutput
	s := agl.Span{SpanID: "o", Name: "openai.chat.completions.create", Attributes: attrs(
		in+".model", "m", in+".messages.0.role", "user",
		in+".messages.0.content.0.type", "text", in+".messages.0.content.0.text", "null",
		in+".messages.0.content.1.type", "image_url", in+".messages.0.content.1.image_url.url", "x.png",
		out+".id", "r", out+".prompt_token_ids", []int64{1}, out+".choices.0.token_ids", []int64{2, 3}, out+".choices.0.finish_reason", "length",
		out+".choices.0.message.role", "assistant", out+".choices.0.message.content", "null", out+".choices.0.message.reasoning_content", "hm",
		out+".choices.0.logprobs.content.0.logprob", -0.5, out+".choices.0.logprobs.content.1.logprob", int64(-1),
	)}
	calls, err := adapter.Calls([]agl.Span{s})
	if err != nil || len(calls) != 1 {
		t.Fatalf("Calls = %v, %v", calls, err)
	}
	c := calls[0]
	if !cmp.Equal(c.Logprobs, []float32{-0.5, -1}) || c.Model != "m" || c.FinishReason != "length" || c.ResponseID != "r" || !c.Usable() {
		t.Errorf("call is %+v", c)
	}
	conversations, err := adapter.Conversations([]agl.Span{s})
	if err != nil || len(conversations) != 1 {
		t.Fatalf("Conversations = %v, %v", conversations, err)
	}
	text, err := json.Marshal(conversations[0].Messages)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"content":[{"type":"text","text":"null"},{"type":"image_url","image_url":{"url":"x.png"}}],"role":"user"},` +
		`{"content":"null","role":"assistant","reasoning_content":"hm"}]`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	for name, attributes := range map[string]agl.Attributes{
		"no list": attrs(in+".messages.role", "user"),
		"no role": attrs(in+".messages.0.content", "x"),
	} {
		s.Attributes = attributes
		if got, err := adapter.Conversations([]agl.Span{s}); err == nil || !strings.Contains(err.Error(), "span o: ") {
			t.Errorf("%s: %v, %v", name, got, err)
		}
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
