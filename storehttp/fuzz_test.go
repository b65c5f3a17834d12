package storehttp_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
