package llmproxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/llmproxy"
	"agentlightning/store"
)

type recording struct {
	RolloutID string `json:"rollout_id"`
	AttemptID string `json:"attempt_id"`
	Exchanges []struct {
		Request struct {
			Method  string            `json:"method"`
			Path    string            `json:"path"`
			Headers map[string]string `json:"headers"`
			JSON    json.RawMessage   `json:"json"`
			Raw     *string           `json:"raw"`
		} `json:"request"`
		Response struct {
			Status int             `json:"status"`
			JSON   json.RawMessage `json:"json"`
		} `json:"response"`
		Upstream []struct {
			Body map[string]any `json:"body"`
		} `json:"upstream_requests"`
	} `json:"exchanges"`
	Spans []agl.Span `json:"spans"`
}

// attempts knows one attempt.
type attempts struct{ store.Attempted }

func (a attempts) QueryAttempts(_ context.Context, q store.AttemptQuery) (store.Page[agl.Attempt], error) {
	if q.RolloutID != a.RolloutID {
		return store.Page[agl.Attempt]{}, &store.Error{Kind: store.ErrNotFound, Message: "unknown rollout"}
	}
	return store.Page[agl.Attempt]{Items: []agl.Attempt{{RolloutID: a.RolloutID, AttemptID: a.AttemptID}}, Total: 1}, nil
}

// Recordings that are not replayed, with the reason.
var notReplayed = map[string]string{
	"default/health":                         "health is known from outcomes; nothing calls every model for it",
	"backend_down/health_down_error":         "as default/health",
	"default/prefix_only":                    "a page of documentation and a redirect to it",
	"default/missing_messages":               "the backend decides what it takes; the recorded proxy failed of itself",
	"default/stream_not_boolean":             "as default/missing_messages: a text where a boolean belongs",
	"more/anthropic_missing_max_tokens":      "as default/missing_messages",
	"default/anthropic_count_tokens":         "the recorded count is that of another tokenizer; counts have tests of their own",
	"more/anthropic_bad_tool_arguments":      "the recorded proxy lost an answer whose arguments are no JSON",
	"no_stream_conversion/chat_stream":       "what a client sees is the backend's stream; streams have tests of their own",
	"no_stream_conversion/chat_tools_stream": "as no_stream_conversion/chat_stream",
}

// Exchanges that are answered otherwise, on purpose, with the reason. Those that
// the recorded proxy did not send to a backend are sent, and the other way round.
var otherwise = map[string]struct {
	status []int // by exchange; 0 as recorded
	why    string
}{
	"default/unknown_model":                 {[]int{404}, "a model that does not exist is not found"},
	"default/unknown_model_anthropic":       {[]int{404}, "a model that does not exist is not found"},
	"default/unknown_rollout":               {[]int{404}, "refused before the backend is called, in place of losing the call"},
	"otlp/unknown_rollout":                  {[]int{404}, "refused before the backend is called, in place of losing the call"},
	"default/cooldown_error_401":            {[]int{0, 401}, "what a backend refuses does not rest it"},
	"backend_down/connection_refused_error": {[]int{502}, "it is the backend that failed, not the proxy"},
	"more/anthropic_tool_choice_none":       {[]int{200}, "a choice of no tool can be put to the backend"},
	"retries/fail_400":                      {[]int{0}, "a call that is wrong is wrong the next time too, so it is sent once"},
	"two_backends/spread":                   {nil, "all calls of a rollout go to one backend"},
}

// Members of a backend's request that are not compared: those that the
// recorded proxy took out, and what we ask for besides.
var extraMembers = []string{"stream", "stream_options", "user", "metadata", "logprobs", "parallel_tool_calls"}

func TestVectors(t *testing.T) {
	t.Parallel()
	const root = "../testdata/vectors/proxy/"
	files, err := filepath.Glob(root + "*/*.json")
	if err != nil || len(files) < 100 {
		t.Fatalf("%d vectors (%v)", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(file), root), ".json")
		if notReplayed[name] != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var rec recording
			if err := json.Unmarshal(raw, &rec); err != nil {
				t.Fatal(err)
			}
			replay(t, name, &rec)
		})
	}
	for name := range notReplayed {
		if _, err := os.Stat(root + name + ".json"); err != nil {
			t.Error(err)
		}
	}
}

// vectorBackend answers as the backend of a recording did and keeps what it
// received.
type vectorBackend struct {
	mu       sync.Mutex
	status   []int // of the answers in turn, the last for all that follow
	answer   []byte
	received []map[string]any
}

func (b *vectorBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	var body map[string]any
	_ = json.Unmarshal(raw, &body)
	b.mu.Lock()
	status := b.status[min(len(b.received), len(b.status)-1)]
	b.received = append(b.received, body)
	b.mu.Unlock()
	if status < 400 && body["stream"] == true {
		streams(head+finish+usageChunk+done, 64)(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b.answer)
}

func replay(t *testing.T, name string, rec *recording) {
	backend := &vectorBackend{}
	handlers := []http.HandlerFunc{backend.ServeHTTP}
	if strings.HasPrefix(name, "two_backends/") {
		handlers = append(handlers, backend.ServeHTTP)
	}
	f := setup(t, llmproxy.Config{}, handlers...)
	for i := range f.store.models {
		m := &f.store.models[i]
		m.Name, m.Target = "test-model", "backend-model"
		if strings.HasPrefix(name, "retries/") {
			m.Retries = 2
		}
		if strings.HasPrefix(name, "backend_down/") {
			m.Endpoint = "http://" + freeAddress(t) + "/v1"
		}
	}
	sink := f.store
	f.startWith(t, llmproxy.Config{Sink: sink, Models: sink, Attempts: attempts{store.Attempted{RolloutID: rec.RolloutID, AttemptID: rec.AttemptID}}})
	for i, e := range rec.Exchanges {
		other, differs := otherwise[name]
		want := e.Response.Status
		if differs && i < len(other.status) && other.status[i] != 0 {
			want = other.status[i]
		}
		backend.received, backend.status = nil, []int{want}
		if name == "retries/flaky_once" {
			backend.status = []int{http.StatusInternalServerError, want}
		}
		backend.answer = backendAnswer(t, e.Request.Path, e.Response.JSON, rec, i)
		if want < 400 && e.Response.Status >= 400 {
			backend.answer = []byte(wholeAnswer)
		}
		body := []byte(e.Request.JSON)
		if e.Request.Raw != nil {
			body = []byte(*e.Request.Raw)
		}
		before := len(sink.stored())
		status, answer := f.do(t, e.Request.Method, e.Request.Path, body, e.Request.Headers)
		if status != want {
			t.Errorf("%s %s is answered %d %s, want %d", e.Request.Method, e.Request.Path, status, answer, want)
		}
		if e.Request.Method == http.MethodGet {
			compareJSON(t, "answer", e.Response.JSON, answer)
			continue
		}
		streamed := len(backend.received) > 0 && backend.received[0]["stream"] == true
		if !differs || name == "two_backends/spread" {
			compareRequests(t, e.Upstream, backend.received)
		}
		// The recorded proxy lost calls that succeeded on a retry.
		onlyCount := streamed || status >= 400 || name == "retries/flaky_once"
		compareSpans(t, rec, sink.stored()[before:], e.Request.Path, i, onlyCount, e.Response.JSON)
		if status >= 400 || streamed || differs && want != e.Response.Status {
			continue
		}
		compareAnswer(t, e.Request.Path, e.Response.JSON, answer, backend.answer)
	}
}

// compareAnswer checks what the caller is told. Of a backend that speaks the
// caller's dialect that is what the backend says.
func compareAnswer(t *testing.T, path string, recorded, got, backend []byte) {
	t.Helper()
	if !strings.Contains(path, "/messages") && !strings.HasSuffix(path, "/responses") {
		if !bytes.Equal(got, backend) {
			t.Errorf("answer is %s, want that of the backend, %s", got, backend)
		}
		return
	}
	var w, g map[string]any
	if err := errors.Join(json.Unmarshal(recorded, &w), json.Unmarshal(got, &g)); err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	members := []string{"type", "role", "content", "stop_reason", "stop_sequence", "usage"}
	if strings.HasSuffix(path, "/responses") {
		members = []string{"status", "error", "output"}
	}
	for _, m := range members {
		if diff := cmp.Diff(common(w[m], g[m]), g[m]); diff != "" {
			t.Errorf("%s of the answer (-want +got):\n%s", m, diff)
		}
	}
}

// common returns of what was recorded only the members that a newer answer has
// too, with its ids: we leave out what the recorded proxy put in for itself.
func common(want, got any) any {
	switch g := got.(type) {
	case map[string]any:
		w, ok := want.(map[string]any)
		if !ok {
			return want
		}
		out := map[string]any{}
		for k, v := range w {
			if k != "provider_specific_fields" {
				out[k] = common(v, g[k])
			}
		}
		for k, v := range g {
			if _, ok := w[k]; !ok || k == "id" && w["type"] == "message" {
				out[k] = v // what the dialect's newer versions have besides
			}
		}
		return out
	case []any:
		w, ok := want.([]any)
		if !ok || len(w) != len(g) {
			return want
		}
		out := make([]any, len(w))
		for i := range w {
			out[i] = common(w[i], g[i])
		}
		return out
	}
	return want
}

var tokenIDs = regexp.MustCompile(`'token_ids': (\[[0-9, ]*\])`)

// backendAnswer turns a recorded answer back into vLLM's, with the token ids
// where that has them.
func backendAnswer(t *testing.T, path string, recorded json.RawMessage, rec *recording, exchange int) []byte {
	t.Helper()
	if len(recorded) == 0 {
		return []byte("{}")
	}
	var answer map[string]any
	dec := json.NewDecoder(bytes.NewReader(recorded))
	dec.UseNumber()
	if err := dec.Decode(&answer); err != nil {
		t.Fatal(err)
	}
	if answer["error"] != nil {
		return recorded
	}
	switch {
	case strings.Contains(path, "/messages"):
		answer = chatOfMessage(t, answer)
	case strings.HasSuffix(path, "/responses"):
		answer = chatOfResponse(answer)
	}
	choices, _ := answer["choices"].([]any)
	for _, c := range choices {
		choice := c.(map[string]any)
		if fields, ok := choice["provider_specific_fields"].(map[string]any); ok {
			choice["token_ids"] = fields["token_ids"]
			delete(choice, "provider_specific_fields")
		}
	}
	// What translated answers leave out is in the span of the backend's answer.
	var raw []agl.Span
	for _, s := range rec.Spans {
		if s.Name == "raw_gen_ai_request" {
			raw = append(raw, s)
		}
	}
	if len(choices) > 0 && exchange < len(raw) && answer["prompt_token_ids"] == nil {
		prompt, _ := raw[exchange].Attributes.String("llm.hosted_vllm.prompt_token_ids")
		said, _ := raw[exchange].Attributes.String("llm.hosted_vllm.choices")
		if ids := tokenIDs.FindStringSubmatch(said); ids != nil && prompt != "" {
			answer["prompt_token_ids"] = json.RawMessage(prompt)
			choices[0].(map[string]any)["token_ids"] = json.RawMessage(ids[1])
		}
	}
	out, _ := json.Marshal(answer)
	return out
}

// chatOfMessage returns the chat completion of which an Anthropic message was made.
func chatOfMessage(t *testing.T, m map[string]any) map[string]any {
	t.Helper()
	message := map[string]any{"role": "assistant", "content": nil}
	var calls []any
	blocks, _ := m["content"].([]any)
	for _, b := range blocks {
		switch block := b.(map[string]any); block["type"] {
		case "text":
			message["content"] = block["text"]
		case "tool_use":
			arguments, err := json.Marshal(block["input"])
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, map[string]any{
				"id": block["id"], "type": "function",
				"function": map[string]any{"name": block["name"], "arguments": string(arguments)},
			})
		}
	}
	if calls != nil {
		message["tool_calls"] = calls
	}
	reason := map[any]string{"end_turn": "stop", "max_tokens": "length", "tool_use": "tool_calls"}[m["stop_reason"]]
	return chatOf(m["id"], message, reason, m["usage"])
}

// chatOfResponse does the same for OpenAI's Responses.
func chatOfResponse(r map[string]any) map[string]any {
	output := r["output"].([]any)[0].(map[string]any)
	text := output["content"].([]any)[0].(map[string]any)["text"]
	return chatOf(output["id"], map[string]any{"role": "assistant", "content": text}, "stop", r["usage"])
}

func chatOf(id any, message map[string]any, reason string, usage any) map[string]any {
	u := usage.(map[string]any)
	count := func(key string) int64 { n, _ := u[key].(json.Number).Int64(); return n }
	return map[string]any{
		"id": id, "object": "chat.completion", "created": 1700000001, "model": "backend-model",
		"choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": reason}},
		"usage": map[string]any{
			"prompt_tokens": count("input_tokens"), "completion_tokens": count("output_tokens"), "total_tokens": count("input_tokens") + count("output_tokens"),
		},
	}
}

func compareRequests(t *testing.T, want []struct {
	Body map[string]any `json:"body"`
}, got []map[string]any,
) {
	t.Helper()
	if len(want) != len(got) {
		t.Errorf("the backend was called %d times, want %d", len(got), len(want))
		return
	}
	for i := range got {
		// Calls that are not recorded are passed on as they are.
		if _, asked := got[i]["return_token_ids"]; !asked {
			delete(want[i].Body, "return_token_ids")
		}
		if diff := cmp.Diff(alikeRequest(want[i].Body), alikeRequest(got[i])); diff != "" {
			t.Errorf("request to the backend (-want +got):\n%s", diff)
		}
	}
}

// alikeRequest brings a request to a backend into the form in which it means the
// same to it.
func alikeRequest(body map[string]any) map[string]any {
	body = maps.Clone(body)
	for _, member := range extraMembers {
		delete(body, member)
	}
	// The recorded proxy passes this on under a name that backends do not know.
	if stop := body["stop_sequences"]; stop != nil {
		body["stop"] = stop
		delete(body, "stop_sequences")
	}
	delete(body, "extra_body") // a wrapper of the flag for token ids
	// It also adds an empty list.
	if tools, ok := body["tools"].([]any); ok && len(tools) == 0 {
		delete(body, "tools")
	}
	messages, _ := body["messages"].([]any)
	for _, m := range messages {
		m := m.(map[string]any)
		// It takes a null out; ours sends what it was given.
		if m["content"] == nil {
			delete(m, "content")
		}
		calls, _ := m["tool_calls"].([]any)
		for _, c := range calls {
			// Arguments are JSON in a text, spaced in one way or another.
			function := c.(map[string]any)["function"].(map[string]any)
			var arguments any
			if text, ok := function["arguments"].(string); ok && json.Unmarshal([]byte(text), &arguments) == nil {
				function["arguments"] = arguments
			}
		}
	}
	return body
}

// compareSpans wants one span of a call where the recorded proxy stored some, and
// that of a good answer to say the same.
func compareSpans(t *testing.T, rec *recording, got []agl.Span, path string, exchange int, onlyCount bool, response json.RawMessage) {
	t.Helper()
	silent := strings.HasSuffix(path, "/embeddings") || strings.HasSuffix(path, "/nothing")
	attributed := strings.HasPrefix(path, "/rollout/"+rec.RolloutID+"/") || len(rec.Spans) > 0
	if want := attributed && !silent; want != (len(got) == 1) {
		t.Errorf("%d spans stored", len(got))
		return
	}
	if onlyCount || len(got) == 0 || !strings.HasSuffix(path, "/chat/completions") {
		return
	}
	compareSpan(t, rec, exchange, got[0], response)
}

// compareSpan checks that readers of LiteLLM's span find the same in ours.
func compareSpan(t *testing.T, rec *recording, exchange int, got agl.Span, response json.RawMessage) {
	t.Helper()
	var answer struct {
		ID     string  `json:"id"`
		Prompt []int64 `json:"prompt_token_ids"`
		Choice []struct {
			Fields struct {
				IDs []int64 `json:"token_ids"`
			} `json:"provider_specific_fields"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(response, &answer); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(answer.Prompt, ints(got, "prompt_token_ids")) || !slices.Equal(answer.Choice[0].Fields.IDs, ints(got, "response_token_ids")) {
		t.Errorf("token ids are %v and %v", ints(got, "prompt_token_ids"), ints(got, "response_token_ids"))
	}
	if problem(got) != "" {
		t.Errorf("problem is %q", problem(got))
	}
	for _, s := range rec.Spans {
		if id, _ := s.Attributes.String("gen_ai.response.id"); s.Name != "litellm_request" || id != answer.ID ||
			len(rec.Exchanges) > 1 && s.SequenceID != int64(exchange+1) {
			continue
		}
		for _, a := range s.Attributes {
			if !alike(a) {
				continue
			}
			v, _ := got.Attributes.Get(a.Key)
			if diff := cmp.Diff(a.Value, v); diff != "" {
				t.Errorf("attribute %s (-want +got):\n%s", a.Key, diff)
			}
		}
		return
	}
	t.Error("the recording has no span of the call")
}

// alike tells the attributes that both kinds of spans spell alike. Parts
// of a message are Python's text there and JSON here.
func alike(a agl.Attribute) bool {
	switch a.Key {
	case "gen_ai.request.max_tokens", "gen_ai.request.temperature", "gen_ai.request.top_p", "gen_ai.response.id",
		"gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens":
		return true
	}
	text, _ := a.Value.(string)
	return (strings.HasPrefix(a.Key, "gen_ai.prompt.") || strings.HasPrefix(a.Key, "gen_ai.completion.")) &&
		!strings.Contains(a.Key, "function_call") && !strings.HasPrefix(text, "[{'")
}

func compareJSON(t *testing.T, what string, want, got []byte) {
	t.Helper()
	var w, g any
	if err := json.Unmarshal(want, &w); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(got, &g); err != nil {
		t.Fatalf("%s: %s", err, got)
	}
	if diff := cmp.Diff(w, g); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestBaseURLVectors(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../testdata/vectors/proxy/_base_url.json")
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Cases []struct {
			Endpoint  string  `json:"endpoint"`
			RolloutID *string `json:"rollout_id"`
			AttemptID *string `json:"attempt_id"`
			Output    *string `json:"output"`
		} `json:"get_base_url"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, c := range v.Cases {
		if c.RolloutID == nil || c.AttemptID == nil || c.Output == nil {
			continue
		}
		ran++
		if got := (agl.ProxyLLM{Endpoint: c.Endpoint}).Route(*c.RolloutID, *c.AttemptID).Endpoint; got != *c.Output {
			t.Errorf("Route of %q = %q, want %q", c.Endpoint, got, *c.Output)
		}
	}
	if ran < 7 {
		t.Errorf("%d cases ran", ran)
	}
}
