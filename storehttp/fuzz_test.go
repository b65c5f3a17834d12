package storehttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/storehttp"
)

// recorded hands the requests of the transcripts to f.
func recorded(f *testing.F, each func(path, query string, body []byte)) {
	f.Helper()
	files, err := filepath.Glob("../testdata/vectors/store/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		var t transcript
		if err := json.Unmarshal(raw, &t); err != nil {
			f.Fatalf("%s: %v", file, err)
		}
		for _, s := range t.Steps {
			body := []byte(s.Request.Body)
			if s.Request.BodyText != nil {
				body = []byte(*s.Request.BodyText)
			}
			each(s.Request.Path, s.Request.Query, body)
		}
	}
}

// answersWell checks what holds for every answer: it is JSON, and no request,
// however strange, is a fault of the server.
func answersWell(t *testing.T, h http.Handler, r *http.Request) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code >= http.StatusInternalServerError {
		t.Errorf("%s %s: %d %s", r.Method, r.URL, w.Code, w.Body)
	}
	if !json.Valid(w.Body.Bytes()) {
		t.Errorf("%s %s: not JSON: %s", r.Method, r.URL, w.Body)
	}
}

// fresh returns a handler over an empty store.
func fresh(t *testing.T) http.Handler {
	t.Helper()
	s := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() { _ = s.Close() })
	return storehttp.NewHandler(s, storehttp.Config{})
}

func FuzzBody(f *testing.F) {
	recorded(f, func(path, _ string, body []byte) { f.Add(path, body) })
	f.Add("/v1/agl/spans/batch", []byte(`{"spans":[{"rollout_id":NaN}]}`))
	f.Add("/v1/agl/runs", []byte(`{"run_id":"r","config":{"a":1}}`))
	f.Add("/v1/agl/runs/r/metrics", []byte(`[{"step":1,"values":{"loss":NaN}}]`))
	f.Add("/v1/agl/runs/r/checkpoints", []byte(`{"step":1}`))
	f.Add("/v1/agl/models", []byte(`[{"model":"m","endpoint":"http://x"}]`))
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		if strings.Contains(path, "waits") {
			return // which may wait for ever, as asked
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(body))
		r.URL.Path = path
		r.Header.Set("Content-Type", "application/json")
		answersWell(t, fresh(t), r)
	})
}

func FuzzQuery(f *testing.F) {
	recorded(f, func(path, query string, _ []byte) {
		if query != "" {
			f.Add(path, query)
		}
	})
	f.Fuzz(func(t *testing.T, path, query string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.URL.Path, r.URL.RawQuery = path, query
		answersWell(t, fresh(t), r)
	})
}

// FuzzHeaders sends header fields that the protocol reads.
func FuzzHeaders(f *testing.F) {
	for _, seed := range []string{"", "wait=0", "wait=0.001", "wait=-1", "wait=NaN", `respond-async, wait="0"`, "wait=1e-9;x", "wait", "=,=,"} {
		f.Add(seed, "key", "application/json")
		f.Add(seed, "", "application/vnd.x+json; charset=utf-8")
	}
	f.Fuzz(func(t *testing.T, prefer, key, kind string) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // some ask to wait
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/agl/queues/rollouts/dequeue", strings.NewReader(`{"limit":1}`))
		r.Header.Set("Prefer", prefer)
		r.Header.Set("Idempotency-Key", key)
		r.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		fresh(t).ServeHTTP(w, r)
		if w.Code >= http.StatusInternalServerError && ctx.Err() == nil || !json.Valid(w.Body.Bytes()) {
			t.Errorf("Prefer %q, key %q, content type %q: %d %s", prefer, key, kind, w.Code, w.Body)
		}
	})
}

// FuzzAnswer lets the server answer anything to every kind of call: the client
// returns a result or an error.
func FuzzAnswer(f *testing.F) {
	files, err := filepath.Glob("../testdata/vectors/store/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		var t transcript
		if err := json.Unmarshal(raw, &t); err != nil {
			f.Fatal(err)
		}
		for _, s := range t.Steps {
			if s.Response.BodyText != nil {
				f.Add(s.Response.Status, []byte(*s.Response.BodyText))
			}
		}
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if status < 200 || status > 599 {
			return
		}
		c, err := storehttp.NewClient("http://store.test", storehttp.WithRetryWindow(0), storehttp.WithHTTPClient(&http.Client{
			Transport: answering(func() *http.Response {
				return &http.Response{
					StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}},
					Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
				}
			}),
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ctx := t.Context()
		span := agl.SpanCore{Name: "x"}.Span("r", "a", 1, 0)
		for name, call := range map[string]func() (any, error){
			"enqueue": func() (any, error) { return c.EnqueueRollouts(ctx, make([]store.EnqueueRequest, 1)) },
			"dequeue": func() (any, error) { return c.DequeueRollouts(ctx, store.DequeueRequest{Limit: 1}) },
			"start":   func() (any, error) { return c.StartRollout(ctx, store.StartRequest{}) },
			"rollout": func() (any, error) { return c.Rollout(ctx, "r") },
			"page":    func() (any, error) { return c.QueryRollouts(ctx, store.RolloutQuery{}) },
			"attempt": func() (any, error) { return c.UpdateAttempt(ctx, "r", "a", store.AttemptUpdate{}) },
			"add":     func() (any, error) { return c.AddSpans(ctx, []agl.Span{span}) },
			"next":    func() (any, error) { return c.NextSequenceIDs(ctx, make([]store.Attempted, 2)) },
			"spans":   func() (any, error) { return c.QuerySpans(ctx, store.SpanQuery{RolloutID: "r"}) },
			"worker":  func() (any, error) { return c.Worker(ctx, "w") },
			"latest":  func() (any, error) { return c.LatestResources(ctx) },
			"counts":  func() (any, error) { return c.Statistics(ctx) },
			"waits":   func() (any, error) { return c.WaitForRollouts(ctx, []string{"r"}, 0) },
			"models":  func() (any, error) { return c.Models(ctx) },
			"runs":    func() (any, error) { return c.Runs(ctx, 0) },
		} {
			if _, err := call(); err == nil && status >= 300 {
				t.Errorf("%s takes a %d for success", name, status)
			}
		}
	})
}

// answering is a transport without a network.
type answering func() *http.Response

func (f answering) RoundTrip(r *http.Request) (*http.Response, error) {
	resp := f()
	resp.Request = r
	return resp, nil
}
