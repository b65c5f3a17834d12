package gateway

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/llmproxy"
	"agentlightning/semconv"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// recorded calls f with method, path and body of every recorded request.
func recorded(f *testing.F, add func(method, path, body string)) {
	f.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "recorded.json"))
	var r struct {
		Requests []struct{ Method, Path, Body string }
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		f.Fatal(err)
	}
	for _, q := range r.Requests {
		add(q.Method, q.Path, q.Body)
	}
}

// FuzzRequest: whatever is sent is answered, in JSON, and never with a fault of
// ours.
func FuzzRequest(f *testing.F) {
	recorded(f, func(method, path, body string) { f.Add(method, path, body) })
	kept := engine.New(memory.New(), engine.Config{})
	f.Cleanup(func() { _ = kept.Close() })
	proxy, err := llmproxy.New(llmproxy.Config{Sink: kept, Attempts: kept, Models: kept, ModelsGap: -1})
	if err != nil {
		f.Fatal(err)
	}
	h, err := NewHandler(Config{Store: kept, Proxy: proxy, Calls: DefaultCalls()})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, method, path, body string) {
		u, err := url.ParseRequestURI(path)
		if err != nil || strings.Contains(path, "wait=") || path == "/proxy/pause" {
			return
		}
		if err := kept.DeleteModels(t.Context(), ""); err != nil { // so that no call leaves this process
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
		r.Method, r.URL = method, u
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code >= 500 && w.Code != http.StatusServiceUnavailable {
			t.Errorf("%s %s %q = %d %s", method, path, body, w.Code, w.Body)
		}
		if w.Body.Len() > 0 && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s %q is answered %q, which is no JSON", method, path, body, w.Body)
		}
	})
}

// FuzzEvent: data comes back as it was posted, and its triplet is JSON.
func FuzzEvent(f *testing.F) {
	recorded(f, func(_, _, body string) {
		var e struct {
			Kind string `json:"event_type"`
			Data json.RawMessage
		}
		if json.Unmarshal([]byte(body), &e) == nil && e.Data != nil {
			f.Add(e.Kind, string(e.Data))
		}
	})
	f.Add("model_request", `{"response":[{"prompt_token_ids":[1]},{"choices":[{"token_ids":[2]}]}],"server":null}`)
	f.Fuzz(func(t *testing.T, kind, data string) {
		var form form
		body, ok := form.readBody([]byte(`{"event_type":` + string(jsonx.AppendString(nil, kind)) + `,"data":` + data + `}`))
		if !ok {
			return
		}
		posted, want := eventCreate(body)
		if len(form.problems) > 0 {
			return
		}
		span := spanOf(posted, want).Span("r", "0", 1, 1)
		text, err := span.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var kept agl.Span
		if err := kept.UnmarshalJSON(text); err != nil {
			t.Fatal(err)
		}
		got, ok := eventOf(&kept)
		if !ok || got.kind != posted || string(got.data) != string(want) {
			t.Errorf("%q %s comes back as %q %s", posted, want, got.kind, got.data)
		}
		for _, e := range triplets([]event{got}) {
			if !json.Valid(e.data) {
				t.Errorf("the triplet of %s is %s", want, e.data)
			}
		}
	})
}

// FuzzAnswer: the answer of a backend is refused, or becomes an object and an
// event whose parts can be read.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"id": "c", "prompt_token_ids": [1], "choices": [{"token_ids": [2], "routed_experts": "QQ=="}], "usage": {"total_tokens": 1}}`,
		`{"choices":[{"routed_experts":null},{"routed_experts":[1]}]}`, `{"choices":{}}`, `[]`, `null`, `{`, `{"a":NaN,"a":1}`,
	} {
		f.Add("application/json", seed)
	}
	f.Add("text/html", "<html>")
	f.Fuzz(func(t *testing.T, media, body string) {
		out, extra, err := answer(llmproxy.DirectedAnswer{
			Model: agl.Model{Name: "m", Endpoint: "http://a/v1"}, Request: []byte("{}"), Status: 200, Type: media, Body: []byte(body),
		})
		if err != nil {
			return
		}
		if jsonx.KindOf(out) != jsonx.Object || jsonx.Check(out) != nil || !json.Valid(out) {
			t.Errorf("%q becomes %q", body, out)
		}
		e, ok := eventOf(&agl.Span{Name: semconv.SpanModelCall, Attributes: extra})
		if !ok || !json.Valid(e.data) {
			t.Errorf("the event of %q is %s", body, e.data)
		}
	})
}

// FuzzPath: a path that is matched names what it says.
func FuzzPath(f *testing.F) {
	recorded(f, func(_, path, _ string) { f.Add(path) })
	f.Add("/api/rollouts/a%2Fb/attempt/%zz/events")
	f.Fuzz(func(t *testing.T, path string) {
		r, p := find(path)
		if r == nil {
			return
		}
		again := strings.NewReplacer(
			"{rollout_id}", url.PathEscape(p.rollout), "{attempt_id}", url.PathEscape(p.attempt),
			"{mode}", url.PathEscape(p.mode), "{upstream_path}", (&url.URL{Path: p.upstream}).EscapedPath(),
		).Replace(r.path)
		if other, q := find(again); other != r || q != p {
			t.Errorf("%q is %s %+v, but %q is %v %+v", path, r.path, p, again, other, q)
		}
	})
}
