package llmproxy_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/llmproxy"
	"agentlightning/semconv"
)

func TestAgentName(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{}, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("X-Agl-Agent"); got != "" {
			t.Errorf("the backend is told of agent %q", got)
		}
		answers(wholeAnswer)(w, r)
	})
	for _, tt := range []struct {
		path   string
		header []string
		want   string
	}{
		{"", nil, ""},
		{"/agent/of%20the%20path", nil, "of the path"},
		{"/agent/path", []string{"Baggage", "a=b,agl.agent=the%20planner;p=1"}, "the planner"},
		{"/agent/path", []string{"Baggage", "gen_ai.agent.name=x", "X-Agl-Agent", "header"}, "header"},
		{"/agent/path", []string{"Baggage", "agl.agent=%zz", "X-Agl-Agent", " "}, "path"},
		{"", []string{"X-Agl-Agent", strings.Repeat("é", 300)}, strings.Repeat("é", 200)},
	} {
		f.post(t, attempt+tt.path+"/v1/chat/completions", ask, tt.header...)
		spans := f.store.stored()
		s := spans[len(spans)-1]
		for _, key := range []string{semconv.GenAIAgentName, "agent.name"} {
			if got, _ := s.Attributes.String(key); got != tt.want {
				t.Errorf("%s of a call with path %q and %q is %q, want %q", key, tt.path, tt.header, got, tt.want)
			}
		}
	}
}

func TestTraceparent(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{}, answers(wholeAnswer))
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for _, tt := range []struct {
		header string
		valid  bool
	}{
		{"00-" + trace + "-" + parent + "-01", true},
		{"01-" + trace + "-" + parent + "-01-more", true},
		{"", false},
		{"00-" + trace + "-" + parent + "-01-more", false},
		{"ff-" + trace + "-" + parent + "-01", false},
		{"00-" + strings.ToUpper(trace) + "-" + parent + "-01", false},
		{"00-" + strings.Repeat("0", 32) + "-" + parent + "-01", false},
		{"00-" + trace + "-" + strings.Repeat("0", 16) + "-01", false},
		{"00-" + trace[1:] + "-" + parent + "-01", false},
		{"00-" + trace + "-" + parent, false},
	} {
		f.post(t, attempt+"/v1/chat/completions", ask, "Traceparent", tt.header)
		spans := f.store.stored()
		s := spans[len(spans)-1]
		if tt.valid {
			if s.TraceID != trace || s.ParentID == nil || *s.ParentID != parent || s.Parent == nil || !s.Parent.IsRemote || s.Context.TraceID != trace {
				t.Errorf("traceparent %q: span is in trace %s below %v", tt.header, s.TraceID, s.ParentID)
			}
		} else if s.TraceID == trace || s.ParentID != nil || len(s.TraceID) != 32 {
			t.Errorf("traceparent %q: span is in trace %s below %v, want one of its own", tt.header, s.TraceID, s.ParentID)
		}
	}
}

// Every call of an attempt leaves a span, those that are no calls too.
func TestMalformedCallsAreRecorded(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{MaxRequestBytes: 100}, answers(wholeAnswer))
	for i, body := range []string{`{"model":`, `[]`, `{"model":7}`, `{"model":"` + strings.Repeat("x", 200) + `"}`} {
		status, _, answer := f.chat(t, body)
		if status != 400 && status != 413 {
			t.Errorf("%s is answered %d %s", body, status, answer)
		}
		spans := f.store.stored()
		if len(spans) != i+1 || problem(spans[i]) != semconv.ProblemUpstreamError || spans[i].Status.StatusCode != agl.StatusError {
			t.Errorf("%s is recorded as %+v", body, spans[i:])
		}
	}
}

const talkative = `{"model":"m","stop":["4111"],"messages":[{"role":"system","content":"card 4111-1111"},{"role":"user","content":[{"type":"text","text":"again 4111-1111"}]},` +
	`{"role":"assistant","content":null,"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\"card\":\"4111-1111\"}"}}]}],` +
	`"tools":[{"function":{"name":"pay","description":"like 4111-1111","parameters":{}}}]}`

const talkativeAnswer = `{"id":"c1","model":"served","choices":[{"index":0,"message":{"role":"assistant","content":"it's 4111-1111","tool_calls":[{"id":"t","type":"function","function":{"name":"f","arguments":"{\"a\":\"4111-1111\"}"}}]},` +
	`"finish_reason":"tool_calls","token_ids":[7,8],"logprobs":{"content":[{"token":"it's ","logprob":-0.5},{"token":"4111-1111","logprob":-0.25}]}}],` +
	`"usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4},"prompt_token_ids":[1,2]}`

func TestRedaction(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{Redact: []*regexp.Regexp{regexp.MustCompile(`\d{4}-\d{4}`), regexp.MustCompile(`4111`)}, LiteLLMSpans: true}, answers(talkativeAnswer))
	status, _, body := f.chat(t, talkative)
	if status != http.StatusOK || body != talkativeAnswer {
		t.Errorf("the caller is answered %d %s", status, body)
	}
	spans := f.store.stored()
	if text := fmt.Sprint(spans); strings.Contains(text, "4111") || !strings.Contains(text, "it's [redacted]") {
		t.Errorf("spans hold what was to be taken out: %s", text)
	}
	checkTokens(t, spans)
}

func TestNoBodies(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{NoBodies: true, LiteLLMSpans: true}, answers(talkativeAnswer))
	f.chat(t, talkative)
	spans := f.store.stored()
	if text := fmt.Sprint(spans); strings.Contains(text, "4111") || strings.Contains(text, "it's") || strings.Contains(text, "pay") {
		t.Errorf("spans hold bodies: %s", text)
	}
	checkTokens(t, spans)
	var keys []string
	for _, a := range spans[0].Attributes {
		if strings.HasPrefix(a.Key, "gen_ai.prompt") || strings.HasPrefix(a.Key, "gen_ai.completion") {
			keys = append(keys, a.Key)
		}
	}
	want := []string{"gen_ai.prompt.0.role", "gen_ai.prompt.1.role", "gen_ai.prompt.2.role", "gen_ai.completion.0.finish_reason", "gen_ai.completion.0.role"}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Errorf("attributes of messages (-want +got):\n%s", diff)
	}
}

// checkTokens wants the ids that the call had, from both spans.
func checkTokens(t *testing.T, spans []agl.Span) {
	t.Helper()
	if len(spans) != 2 {
		t.Fatalf("%d spans stored, want the call's and its companion", len(spans))
	}
	if !slices.Equal(ints(spans[0], semconv.PromptTokenIDs), []int64{1, 2}) || !slices.Equal(ints(spans[0], semconv.ResponseTokenIDs), []int64{7, 8}) {
		t.Errorf("token ids are %v and %v", ints(spans[0], semconv.PromptTokenIDs), ints(spans[0], semconv.ResponseTokenIDs))
	}
	if lp, _ := spans[0].Attributes.Get(semconv.ResponseLogprobs); !cmp.Equal(lp, []float64{-0.5, -0.25}) {
		t.Errorf("log-probabilities are %v", lp)
	}
	triplets, err := adapter.ProxyTriplets(spans[1:])
	if err != nil || len(triplets) != 1 || !strings.Contains(string(triplets[0].Prompt), "[1,2]") || !strings.Contains(string(triplets[0].Response), "[7,8]") {
		t.Errorf("triplets of the companion are %+v", triplets)
	}
}

func TestCompanion(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{LiteLLMSpans: true}, answersInTurn(t, []string{
		strings.ReplaceAll(talkativeAnswer, "it's 4111-1111", `a'b\"c\n\u0007é👋\u200b`),
		strings.TrimPrefix(head, ": welcome\r\n\r\n") + finish + usageChunk + done,
	}))
	f.chat(t, `{"model":"m","messages":[{"role":"user","content":"it's","n":null,"t":true,"f":1e20,"i":12345678901234567890123,"l":[1.50,{}]}]}`)
	spans := f.store.stored()
	own, raw := spans[0], spans[1]
	if raw.Name != "raw_gen_ai_request" || raw.TraceID != own.TraceID || *raw.ParentID != own.SpanID || raw.SequenceID != own.SequenceID || raw.SpanID == own.SpanID {
		t.Errorf("companion is %+v", raw)
	}
	for key, want := range map[string]string{
		"llm.hosted_vllm.messages": `[{'role': 'user', 'content': "it's", 'n': None, 't': True, 'f': 1e+20, 'i': 12345678901234567890123, 'l': [1.5, {}]}]`,
		"llm.hosted_vllm.choices": `[{'finish_reason': 'tool_calls', 'index': 0, 'message': {'content': 'a\'b"c\n\x07é👋\u200b', 'role': 'assistant', ` +
			`'tool_calls': [{'id': 't', 'function': {'arguments': '{"a":"4111-1111"}', 'name': 'f'}, 'type': 'function'}]}, 'token_ids': [7, 8]}]`,
		"llm.hosted_vllm.id":               "c1",
		"llm.hosted_vllm.prompt_token_ids": "[1, 2]",
		"llm.hosted_vllm.usage":            "{'completion_tokens': 2, 'prompt_tokens': 2, 'total_tokens': 4}",
	} {
		if got, _ := raw.Attributes.String(key); got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
	f.chat(t, `{"model":"m","stream":true}`)
	if n := len(f.store.stored()); n != 4 {
		t.Errorf("%d spans stored after a stream, want 4", n)
	}
	// What went wrong has none.
	f.chat(t, `{"model":"unknown"}`)
	if n := len(f.store.stored()); n != 5 {
		t.Errorf("%d spans stored after a failure, want 5", n)
	}
}

// Keys of callers and backends are in no span, even where a backend repeats them.
func TestKeysAreNotRecorded(t *testing.T) {
	t.Parallel()
	const callers, backends = "sk-of-the-caller-123456", "sk-of-the-backend-123456"
	f := setup(t, llmproxy.Config{}, func(w http.ResponseWriter, r *http.Request) {
		body := readBody(t, r)
		if body["fail"] == nil {
			answers(strings.ReplaceAll(wholeAnswer, "Grüße", callers+" "+backends))(w, r)
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"error":{"message":"wrong key %s, not %s"}}`, r.Header.Get("Authorization"), callers)
	})
	m := f.store.models[0]
	m.APIKey = backends
	f.setModels(t, m)
	for _, header := range [][]string{{"Authorization", "Bearer " + callers}, {"X-Api-Key", callers}, {"Api-Key", callers}, {"Cookie", callers}} {
		f.post(t, attempt+"/v1/chat/completions", ask, header...)
		if _, _, answer := f.post(t, attempt+"/v1/chat/completions", `{"model":"m","fail":1}`, header...); !strings.Contains(answer, backends) {
			t.Errorf("the backend's error is relayed as %s", answer)
		}
	}
	text := fmt.Sprint(f.store.stored())
	for _, s := range f.store.stored() {
		if s.Status.Description != nil {
			text += *s.Status.Description
		}
	}
	if strings.Contains(text, callers) || strings.Contains(text, backends) || !strings.Contains(text, "[key]") {
		t.Errorf("a key is recorded: %s", text)
	}
}
