package llmproxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	agl "agentlightning"
	"agentlightning/llmproxy"
	"agentlightning/semconv"
	"agentlightning/store"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// fakeStore records what the proxy stores. It knows rollout "ro" with attempts
// "a1" and "a2", and rollouts "ro-0" to "ro-99" with attempt "a1".
type fakeStore struct {
	mu      sync.Mutex
	spans   []agl.Span
	seq     int64
	queries int
	models  []agl.Model
	listed  int

	onAdd func([]agl.Span) error // before spans are stored
	fails error                  // what every other call returns, when set
	added chan struct{}          // receives after each
}

func newFakeStore() *fakeStore { return &fakeStore{added: make(chan struct{}, 1024)} }

func (f *fakeStore) NextSequenceIDs(_ context.Context, attempts []store.Attempted) ([]int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails != nil {
		return nil, f.fails
	}
	out := make([]int64, len(attempts))
	for i := range out {
		f.seq++
		out[i] = f.seq
	}
	return out, nil
}

func (f *fakeStore) AddSpans(_ context.Context, spans []agl.Span) ([]store.AddedSpan, error) {
	if f.onAdd != nil {
		if err := f.onAdd(spans); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	f.spans = append(f.spans, spans...)
	f.mu.Unlock()
	out := make([]store.AddedSpan, len(spans))
	for i := range spans {
		out[i] = store.AddedSpan{Span: spans[i], Stored: true}
		f.added <- struct{}{}
	}
	return out, nil
}

func (f *fakeStore) QueryAttempts(_ context.Context, q store.AttemptQuery) (store.Page[agl.Attempt], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queries++
	if f.fails != nil {
		return store.Page[agl.Attempt]{}, f.fails
	}
	var page store.Page[agl.Attempt]
	var n int
	switch _, err := fmt.Sscanf(q.RolloutID, "ro-%d", &n); {
	case q.RolloutID == "ro":
		page.Items = []agl.Attempt{{RolloutID: "ro", AttemptID: "a1"}, {RolloutID: "ro", AttemptID: "a2"}}
	case err == nil && n < 100:
		page.Items = []agl.Attempt{{RolloutID: q.RolloutID, AttemptID: "a1"}}
	}
	page.Total = len(page.Items)
	return page, nil
}

func (f *fakeStore) Models(context.Context) ([]agl.Model, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed++
	if f.fails != nil {
		return nil, f.fails
	}
	return slices.Clone(f.models), nil
}

func (f *fakeStore) stored() []agl.Span {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.spans)
}

// span returns the only span stored, once it is.
func (f *fakeStore) span(t *testing.T) agl.Span {
	t.Helper()
	select {
	case <-f.added:
	case <-time.After(10 * time.Second):
		t.Fatal("no span was stored")
	}
	spans := f.stored()
	if len(spans) != 1 {
		t.Fatalf("%d spans stored, want 1", len(spans))
	}
	return spans[0]
}

// fixture is a proxy in front of backends.
type fixture struct {
	store *fakeStore
	proxy *llmproxy.Proxy
	url   string
}

const attempt = "/rollout/ro/attempt/a1"

// setup starts a proxy whose model "m" the handlers serve, one backend each.
func setup(t *testing.T, cfg llmproxy.Config, backends ...http.HandlerFunc) *fixture {
	t.Helper()
	f := &fixture{store: newFakeStore()}
	for _, h := range backends {
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		f.store.models = append(f.store.models, agl.Model{Name: "m", Endpoint: server.URL + "/v1", Version: 7})
	}
	f.start(t, cfg)
	return f
}

func (f *fixture) start(t *testing.T, cfg llmproxy.Config) {
	t.Helper()
	cfg.Sink, cfg.Attempts, cfg.Models = f.store, f.store, f.store
	f.startWith(t, cfg)
}

// startWith starts a proxy with the parts that cfg names.
func (f *fixture) startWith(t *testing.T, cfg llmproxy.Config) {
	t.Helper()
	proxy, err := llmproxy.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(func() {
		server.Close()
		_ = proxy.Close()
	})
	f.proxy, f.url = proxy, server.URL
}

// client is a client of its own, so that its connections end with the test.
func client(t *testing.T) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// post sends a request and returns the whole answer.
func (f *fixture) post(t *testing.T, path, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(got)
}

// do sends any request.
func (f *fixture) do(t *testing.T, method, path string, body []byte, header map[string]string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, f.url+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range header {
		req.Header.Set(key, value)
	}
	resp, err := client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, got
}

func (f *fixture) chat(t *testing.T, body string) (int, http.Header, string) {
	t.Helper()
	return f.post(t, attempt+"/v1/chat/completions", body)
}

// wholeAnswer is what an engine answers when it is asked for everything.
const wholeAnswer = `{"id":"chatcmpl-1","object":"chat.completion","created":5,"model":"served", "choices":[{"index":0,` +
	`"message":{"role":"assistant","content":"Grüße 👋","x_extra":[1, 2.0]},"finish_reason":"stop","token_ids":[7,8,9],` +
	`"logprobs":{"content":[{"token":"Gr","logprob":-0.5,"top_logprobs":[]},{"token":"üße","logprob":-0.25,"top_logprobs":[]},{"token":"👋","logprob":-1,"top_logprobs":[]}]}}],` +
	`"usage":{"prompt_tokens":2,"completion_tokens":3,"total_tokens":5},"prompt_token_ids":[1,2],"kv_transfer_params":{"a":null}}`

// answers serves one whole answer to everything.
func answers(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Backend", "yes")
		_, _ = io.WriteString(w, body)
	}
}

const ask = `{"model":"m","messages":[{"role":"user","content":"Hi"}]}`

// readBody returns the JSON of a request.
func readBody(t *testing.T, r *http.Request) map[string]any {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	var out map[string]any
	if err := json.Unmarshal(body, &out); err != nil {
		t.Errorf("backend received %q: %v", body, err)
	}
	return out
}

func problem(s agl.Span) string {
	p, _ := s.Attributes.String(semconv.CallProblem)
	return p
}

func ints(s agl.Span, key string) []int64 {
	ids, _ := s.Attributes.Ints(key)
	return ids
}

// errorOf returns the error that a body reports.
func errorOf(t *testing.T, body string) (message, code string) {
	t.Helper()
	var e struct {
		Error struct {
			Message string  `json:"message"`
			Type    string  `json:"type"`
			Code    *string `json:"code"`
		} `json:"error"`
	}
	if err := json.NewDecoder(bytes.NewReader([]byte(body))).Decode(&e); err != nil || e.Error.Message == "" || e.Error.Type == "" {
		t.Fatalf("answer %q is not an error in OpenAI's shape (%v)", body, err)
	}
	if e.Error.Code != nil {
		code = *e.Error.Code
	}
	return e.Error.Message, code
}

// answersInTurn serves one of the answers to each call, streams and whole ones.
func answersInTurn(t *testing.T, turns []string) http.HandlerFunc {
	next := make(chan string, len(turns))
	for _, turn := range turns {
		next <- turn
	}
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case turn := <-next:
			if strings.HasPrefix(turn, "data:") {
				streams(turn, 30)(w, r)
			} else {
				answers(turn)(w, r)
			}
		default:
			t.Error("the backend was called once too often")
		}
	}
}
