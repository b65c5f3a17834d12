package llmproxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// Where the proxy answers otherwise than the recorded one, on purpose.
var otherStatus = map[string]int{
	"unknown_model":   http.StatusNotFound, // a model that does not exist is not found
	"unknown_rollout": http.StatusNotFound, // refused before the backend is called, in place of losing the call
}

// Members of a backend's request that are not compared: those that the
// recorded proxy took out, and what we ask for besides.
var extraMembers = []string{"stream", "stream_options", "user", "metadata", "logprobs"}

func TestVectors(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../testdata/vectors/proxy/default/*.json")
	if err != nil || len(files) < 25 {
		t.Fatalf("%d vectors (%v)", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
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
}

// vectorBackend answers as the backend of a recording did and keeps what it
// received.
type vectorBackend struct {
	status   int
	answer   []byte
	received []map[string]any
}

func (b *vectorBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	var body map[string]any
	_ = json.Unmarshal(raw, &body)
	b.received = append(b.received, body)
	if b.status < 400 && body["stream"] == true {
		streams(head+finish+usageChunk+done, 64)(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(b.status)
	_, _ = w.Write(b.answer)
}

func replay(t *testing.T, name string, rec *recording) {
	backend := &vectorBackend{}
	f := setup(t, llmproxy.Config{}, backend.ServeHTTP)
	f.store.models[0].Name, f.store.models[0].Target = "test-model", "backend-model"
	sink := f.store
	f.startWith(t, llmproxy.Config{Sink: sink, Models: sink, Attempts: attempts{store.Attempted{RolloutID: rec.RolloutID, AttemptID: rec.AttemptID}}})
	for _, e := range rec.Exchanges {
		backend.status, backend.received = e.Response.Status, nil
		backend.answer = backendAnswer(t, e.Response.JSON)
		body := []byte(e.Request.JSON)
		if e.Request.Raw != nil {
			body = []byte(*e.Request.Raw)
		}
		before := len(sink.stored())
		status, answer := f.do(t, e.Request.Method, e.Request.Path, body, e.Request.Headers)
		want := e.Response.Status
		if other, ok := otherStatus[name]; ok {
			want = other
		}
		if status != want {
			t.Errorf("%s %s is answered %d %s, want %d", e.Request.Method, e.Request.Path, status, answer, want)
		}
		if e.Request.Method == http.MethodGet {
			compareJSON(t, "answer", e.Response.JSON, answer)
			continue
		}
		streamed := len(backend.received) > 0 && backend.received[0]["stream"] == true
		if _, ok := otherStatus[name]; !ok {
			compareRequests(t, e.Upstream, backend.received)
		}
		if status >= 400 || streamed {
			continue
		}
		if !bytes.Equal(answer, backend.answer) {
			t.Errorf("answer is %s, want that of the backend, %s", answer, backend.answer)
		}
		spans := sink.stored()[before:]
		if recorded := len(rec.Spans) > 0; recorded != (len(spans) == 1) {
			t.Errorf("%d spans stored", len(spans))
		} else if recorded {
			compareSpan(t, rec, spans[0], e.Response.JSON)
		}
	}
}

// backendAnswer turns a recorded answer back into vLLM's, with the token ids
// where that has them.
func backendAnswer(t *testing.T, recorded json.RawMessage) []byte {
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
	choices, _ := answer["choices"].([]any)
	for _, c := range choices {
		choice := c.(map[string]any)
		if fields, ok := choice["provider_specific_fields"].(map[string]any); ok {
			choice["token_ids"] = fields["token_ids"]
			delete(choice, "provider_specific_fields")
		}
	}
	out, _ := json.Marshal(answer)
	return out
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
		for _, member := range extraMembers {
			delete(got[i], member)
			delete(want[i].Body, member)
		}
		for _, body := range []map[string]any{got[i], want[i].Body} {
			messages, _ := body["messages"].([]any)
			for _, m := range messages {
				// The recorded proxy takes a null out; ours sends what it was given.
				if m := m.(map[string]any); m["content"] == nil {
					delete(m, "content")
				}
			}
		}
		// Calls that are not recorded are passed on as they are.
		if _, asked := got[i]["return_token_ids"]; !asked {
			delete(want[i].Body, "return_token_ids")
		}
		if diff := cmp.Diff(want[i].Body, got[i]); diff != "" {
			t.Errorf("request to the backend (-want +got):\n%s", diff)
		}
	}
}

// compareSpan checks that readers of LiteLLM's span find the same in ours.
func compareSpan(t *testing.T, rec *recording, got agl.Span, response json.RawMessage) {
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
		if id, _ := s.Attributes.String("gen_ai.response.id"); s.Name != "litellm_request" || id != answer.ID {
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
