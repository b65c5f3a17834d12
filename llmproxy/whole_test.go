package llmproxy_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/llmproxy"
	"agentlightning/semconv"
	"agentlightning/store"
)

func TestWholeAnswer(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{}, answers(wholeAnswer))
	status, header, body := f.chat(t, `{"model":"m","temperature":0.5,"max_tokens":9,"stop":["a","b"],"messages":[`+
		`{"role":"system","content":"S"},{"role":"user","content":[{"type":"text","text":"Hi"}]},`+
		`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"add","arguments":"{\"a\":1}"}}]},`+
		`{"role":"tool","tool_call_id":"c1","content":"2"}],`+
		`"tools":[{"type":"function","function":{"name":"add","description":"D","parameters":{"type":"object"}}}]}`)
	if status != http.StatusOK || body != wholeAnswer {
		t.Fatalf("answer is %d %s, want the backend's own bytes", status, body)
	}
	if header.Get("X-Backend") != "yes" {
		t.Errorf("the backend's headers are lost: %v", header)
	}
	s := f.store.span(t)
	if s.Name != "openai.chat.completion" || s.RolloutID != "ro" || s.AttemptID != "a1" || s.SequenceID != 1 || s.Status.StatusCode != agl.StatusOK {
		t.Errorf("span is %s of %s/%s, sequence id %d, status %s", s.Name, s.RolloutID, s.AttemptID, s.SequenceID, s.Status.StatusCode)
	}
	endpoint := f.store.models[0].Endpoint
	want := agl.Attributes{
		{Key: "gen_ai.operation.name", Value: "chat"},
		{Key: "gen_ai.request.type", Value: "chat"},
		{Key: "gen_ai.system", Value: "OpenAI"},
		{Key: "gen_ai.request.model", Value: "m"},
		{Key: "gen_ai.request.streaming", Value: false},
		{Key: "gen_ai.request.max_tokens", Value: int64(9)},
		{Key: "gen_ai.request.temperature", Value: 0.5},
		{Key: "gen_ai.request.stop", Value: []string{"a", "b"}},
		{Key: "gen_ai.prompt.0.role", Value: "system"},
		{Key: "gen_ai.prompt.0.content", Value: "S"},
		{Key: "gen_ai.prompt.1.role", Value: "user"},
		{Key: "gen_ai.prompt.1.content", Value: `[{"type":"text","text":"Hi"}]`},
		{Key: "gen_ai.prompt.2.role", Value: "assistant"},
		{Key: "gen_ai.prompt.2.tool_calls.0.id", Value: "c1"},
		{Key: "gen_ai.prompt.2.tool_calls.0.name", Value: "add"},
		{Key: "gen_ai.prompt.2.tool_calls.0.arguments", Value: `{"a":1}`},
		{Key: "gen_ai.prompt.3.role", Value: "tool"},
		{Key: "gen_ai.prompt.3.tool_call_id", Value: "c1"},
		{Key: "gen_ai.prompt.3.content", Value: "2"},
		{Key: "gen_ai.request.functions.0.name", Value: "add"},
		{Key: "gen_ai.request.functions.0.description", Value: "D"},
		{Key: "gen_ai.request.functions.0.parameters", Value: `{"type":"object"}`},
		{Key: "gen_ai.response.id", Value: "chatcmpl-1"},
		{Key: "gen_ai.response.model", Value: "served"},
		{Key: "gen_ai.completion.0.finish_reason", Value: "stop"},
		{Key: "gen_ai.completion.0.role", Value: "assistant"},
		{Key: "gen_ai.completion.0.content", Value: "Grüße 👋"},
		{Key: "gen_ai.response.finish_reasons", Value: []string{"stop"}},
		{Key: "gen_ai.usage.input_tokens", Value: int64(2)},
		{Key: "gen_ai.usage.output_tokens", Value: int64(3)},
		{Key: "gen_ai.usage.prompt_tokens", Value: int64(2)},
		{Key: "gen_ai.usage.completion_tokens", Value: int64(3)},
		{Key: "gen_ai.usage.total_tokens", Value: int64(5)},
		{Key: "prompt_token_ids", Value: []int64{1, 2}},
		{Key: "response_token_ids", Value: []int64{7, 8, 9}},
		{Key: "response_logprobs", Value: []float64{-0.5, -0.25, -1}},
		{Key: "logprobs.content", Value: `[{"token":"Gr","logprob":-0.5},{"token":"üße","logprob":-0.25},{"token":"👋","logprob":-1}]`},
		{Key: "agentlightning.call.backend", Value: endpoint},
		{Key: "agentlightning.call.version", Value: int64(7)},
		{Key: "agentlightning.call.status", Value: int64(200)},
	}
	if diff := cmp.Diff(want, s.Attributes); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
}

func TestRequestSentToTheBackend(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, path, body, want string
	}{
		{
			"recorded", attempt + "/v1/chat/completions", `{"model":"m", "messages":[ {"role":"user"} ],"x":{"y": 1.0}}`,
			`{"model":"t","messages":[ {"role":"user"} ],"x":{"y": 1.0},"return_token_ids":true,"logprobs":true}`,
		},
		{"without v1", attempt + "/chat/completions", `{"model":"m"}`, `{"model":"t","return_token_ids":true,"logprobs":true}`},
		{
			"overrides", attempt + "/v1/chat/completions", `{"logprobs":false,"top_logprobs":4,"model":"m","return_token_ids":false}`,
			`{"logprobs":true,"top_logprobs":4,"model":"t","return_token_ids":true}`,
		},
		{
			"stream", attempt + "/v1/chat/completions", `{"model":"m","stream":true}`,
			`{"model":"t","stream":true,"return_token_ids":true,"logprobs":true,"stream_options":{"include_usage":true}}`,
		},
		{
			"stream options", attempt + "/v1/chat/completions", `{"model":"m","stream":true,"stream_options":{"include_usage":false,"z":0}}`,
			`{"model":"t","stream":true,"stream_options":{"include_usage":true,"z":0},"return_token_ids":true,"logprobs":true}`,
		},
		{"not attributed", "/v1/chat/completions", `{"model":"m","stream":true, "seed":7}`, `{"model":"t","stream":true,"seed":7}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := make(chan string, 1)
			f := setup(t, llmproxy.Config{}, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				got <- string(body)
				if r.URL.Path != "/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer backend-key" {
					t.Errorf("backend was called at %s with %v", r.URL.Path, r.Header)
				}
				for _, secret := range []string{"X-Api-Key", "Cookie", "X-Rollout-Id"} {
					if r.Header.Get(secret) != "" {
						t.Errorf("header %s reached the backend", secret)
					}
				}
				if r.Header.Get("X-Stainless-Lang") != "go" {
					t.Errorf("header X-Stainless-Lang is lost: %v", r.Header)
				}
				answers(wholeAnswer)(w, r)
			})
			f.store.models[0].Target, f.store.models[0].APIKey = "t", "backend-key"
			f.post(t, tt.path, tt.body, "Authorization", "Bearer client-key", "X-Api-Key", "k", "Cookie", "c=1",
				"X-Rollout-Id", "other", "X-Stainless-Lang", "go")
			if body := <-got; body != tt.want {
				t.Errorf("backend received\n%s, want\n%s", body, tt.want)
			}
			for _, s := range f.store.stored() {
				text, _ := s.MarshalJSON()
				for _, secret := range []string{"client-key", "backend-key"} {
					if strings.Contains(string(text), secret) {
						t.Errorf("the span holds %q", secret)
					}
				}
			}
			if recorded := tt.path != "/v1/chat/completions"; recorded != (len(f.store.stored()) == 1) {
				t.Errorf("%d spans stored", len(f.store.stored()))
			}
		})
	}
}

func TestTokenIDsAreChecked(t *testing.T) {
	t.Parallel()
	answer := func(choices, rest string) string {
		return `{"id":"c","choices":[` + choices + `]` + rest + `}`
	}
	const done = `"message":{"role":"assistant","content":"x"},"finish_reason":"stop"`
	const usage = `,"usage":{"prompt_tokens":2,"completion_tokens":3}`
	tests := []struct {
		name, answer, problem string
		prompt, response      []int64
	}{
		{"none", answer(`{`+done+`}`, usage), semconv.ProblemTokenIDsMissing, nil, nil},
		{"only the prompt's", answer(`{`+done+`}`, usage+`,"prompt_token_ids":[1,2]`), semconv.ProblemTokenIDsIncomplete, []int64{1, 2}, nil},
		{"only the answer's", answer(`{"token_ids":[1,2,3],`+done+`}`, usage), semconv.ProblemTokenIDsIncomplete, nil, []int64{1, 2, 3}},
		{"prompt too short", answer(`{"token_ids":[1,2,3],`+done+`}`, usage+`,"prompt_token_ids":[1]`), semconv.ProblemTokenIDsIncomplete, []int64{1}, []int64{1, 2, 3}},
		{"answer too long", answer(`{"token_ids":[1,2,3,4],`+done+`}`, usage+`,"prompt_token_ids":[1,2]`), semconv.ProblemTokenIDsIncomplete, []int64{1, 2}, []int64{1, 2, 3, 4}},
		{"no usage", answer(`{"token_ids":[1,2,3,4],`+done+`}`, `,"prompt_token_ids":[1]`), "", []int64{1}, []int64{1, 2, 3, 4}},
		{"provider fields", answer(`{"provider_specific_fields":{"token_ids":[1,2,3]},`+done+`}`, usage+`,"prompt_token_ids":[1,2]`), "", []int64{1, 2}, []int64{1, 2, 3}},
		{"two choices", answer(`{"index":0,"token_ids":[1,2],`+done+`},{"index":1,"token_ids":[3],`+done+`}`, usage+`,"prompt_token_ids":[1,2]`), "", []int64{1, 2}, []int64{1, 2}},
		{"spelled", answer(`{"logprobs":{"content":[{"token":"token_id:5","logprob":-1.0},{"token":"token_id:6","logprob":-1.0},{"token":"token_id:7","logprob":-1.0}]},`+done+`}`,
			usage+`,"prompt_token_ids":[1,2]`), "", []int64{1, 2}, []int64{5, 6, 7}},
		{"no finish reason", answer(`{"token_ids":[1,2,3],"message":{"content":"x"},"finish_reason":null}`, usage+`,"prompt_token_ids":[1,2]`), semconv.ProblemTruncated, []int64{1, 2}, []int64{1, 2, 3}},
		{"no choices", answer(``, usage), semconv.ProblemUpstreamError, nil, nil},
		{"not JSON", "<html>", semconv.ProblemUpstreamError, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, llmproxy.Config{}, answers(tt.answer))
			if _, _, body := f.chat(t, ask); body != tt.answer {
				t.Errorf("answer is %s, want the backend's own bytes", body)
			}
			s := f.store.span(t)
			if got := problem(s); got != tt.problem {
				t.Errorf("problem is %q, want %q", got, tt.problem)
			}
			if diff := cmp.Diff(tt.prompt, ints(s, semconv.PromptTokenIDs)); diff != "" {
				t.Errorf("prompt token ids (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.response, ints(s, semconv.ResponseTokenIDs)); diff != "" {
				t.Errorf("response token ids (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStoredBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{}, answers(wholeAnswer))
	storing, goOn := make(chan struct{}), make(chan struct{})
	f.store.onAdd = func([]agl.Span) error {
		close(storing)
		<-goOn
		return nil
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		resp, err := client(t).Post(f.url+attempt+"/v1/chat/completions", "application/json", strings.NewReader(ask))
		if err != nil {
			t.Error(err)
			return
		}
		_ = resp.Body.Close()
		if len(f.store.stored()) != 1 {
			t.Error("answered before the span was stored")
		}
	}()
	<-storing
	select {
	case <-answered:
		t.Error("answered while the span was being stored")
	default:
	}
	close(goOn)
	<-answered
}

func TestCallThatCannotBeStoredFails(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{}, answers(wholeAnswer))
	f.store.onAdd = func([]agl.Span) error { return errors.New("disk on fire at /secret/path") }
	status, _, body := f.chat(t, ask)
	message, code := errorOf(t, body)
	if status != http.StatusInternalServerError || code != "not_recorded" || strings.Contains(message, "secret") {
		t.Errorf("answer is %d %s", status, body)
	}
}

// A claim that is undone takes its attempt away while the agent calls.
func TestAttemptThatIsGone(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{}, answers(wholeAnswer))
	f.chat(t, ask)
	f.store.onAdd = func([]agl.Span) error { return &store.Error{Kind: store.ErrNotFound, Message: "no such attempt"} }
	status, _, body := f.chat(t, ask)
	if message, code := errorOf(t, body); status != http.StatusNotFound || code != "attempt_not_found" || !strings.Contains(message, "is gone") {
		t.Errorf("answer is %d %s", status, body)
	}
	before := f.store.queries
	f.chat(t, ask)
	if f.store.queries != before+1 {
		t.Error("the attempt was not looked up again")
	}
}

func TestStoreThatFails(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{}, answers(wholeAnswer))
	fail := func(err error) {
		f.store.mu.Lock()
		defer f.store.mu.Unlock()
		f.store.fails = err
	}
	secret := errors.New("secret")
	expect := func(path string, status int) {
		t.Helper()
		got, _, body := f.post(t, path, ask)
		if got != status {
			t.Errorf("answer is %d %s, want %d", got, body, status)
		}
		if status >= 400 {
			if message, _ := errorOf(t, body); strings.Contains(message, "secret") {
				t.Errorf("message is %q", message)
			}
		}
	}
	fail(secret)
	expect(attempt+"/v1/chat/completions", http.StatusServiceUnavailable) // attempts cannot be looked up
	expect("/v1/chat/completions", http.StatusServiceUnavailable)         // nor models
	fail(nil)
	expect(attempt+"/v1/chat/completions", http.StatusOK)
	fail(secret)
	expect(attempt+"/v1/chat/completions", http.StatusInternalServerError) // no sequence id
	expect("/v1/chat/completions", http.StatusOK)                          // what is not recorded needs no store
	if n := len(f.store.stored()); n != 1 {
		t.Errorf("%d spans stored, want 1", n)
	}
}
