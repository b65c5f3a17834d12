package daemon_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/internal/daemon"
	"agentlightning/store/engine"
	"agentlightning/store/sqlite"
	"agentlightning/storehttp"
)

// read gets JSON.
func read[T any](t *testing.T, url string) T {
	t.Helper()
	status, _, body := request(t, http.MethodGet, url, "")
	var out T
	if err := json.Unmarshal([]byte(body), &out); err != nil || status != http.StatusOK {
		t.Fatalf("GET %s = %d %s, %v", url, status, body, err)
	}
	return out
}

func TestBackendsAndHistory(t *testing.T) {
	t.Parallel()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}`)
	}))
	t.Cleanup(backend.Close)
	m, err := daemon.NewMetrics()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "agl.db")
	b, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, OnCommit: m.OnCommit, Sync: sqlite.SyncNormal})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.WatchFile(path); err != nil {
		t.Fatal(err)
	}
	st := engine.New(b, engine.Config{})
	endpoint := backend.URL + "/v1"
	c := daemon.Look(daemon.Config{Store: st, Metrics: m}, 20*time.Millisecond)
	c.Proxy.Static = []agl.Model{{Name: "m", Endpoint: endpoint}}
	url, _ := start(t, c)
	api := url + "/v1/agl/"

	report := read[storehttp.BackendReport](t, api+"backends")
	if len(report.Backends) != 1 || report.Backends[0].Condition != "unseen" || report.Started == 0 {
		t.Fatalf("before a call: %+v", report)
	}
	_, _, body := ask(t, http.MethodPost, api+"rollouts", `{"input":1}`)
	var ro agl.AttemptedRollout
	if err := json.Unmarshal([]byte(body), &ro); err != nil {
		t.Fatal(err)
	}
	call := func() (int, string) {
		status, _, body := ask(t, http.MethodPost, fmt.Sprintf("%s/rollout/%s/attempt/%s/v1/chat/completions", url, ro.RolloutID, ro.Attempt.AttemptID),
			`{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
		return status, body
	}
	if status, body := call(); status != http.StatusOK {
		t.Fatalf("a call = %d %s", status, body)
	}

	name := fmt.Sprintf(`{"model":"m","endpoint":%q`, endpoint)
	status, _, body := ask(t, http.MethodPost, api+"backends/pause", name+`,"reason":"new card","drain_seconds":5}`)
	if status != http.StatusOK || !strings.Contains(body, `"condition":"paused"`) || !strings.Contains(body, `"open":0`) {
		t.Errorf("pause = %d %s", status, body)
	}
	if status, body := call(); status != http.StatusTooManyRequests || !strings.Contains(body, "new card") {
		t.Errorf("a call of a paused backend = %d %s, want a refusal with the reason", status, body)
	}
	if status, _, body := ask(t, http.MethodPost, api+"backends/resume", name+`}`); status != http.StatusOK || !strings.Contains(body, `"condition":"fine"`) {
		t.Errorf("resume = %d %s", status, body)
	}
	report = read[storehttp.BackendReport](t, api+"backends")
	if got := report.Backends[0]; got.Calls != 1 || got.PromptTokens != 3 || got.AnswerTokens != 4 || got.Failures != 0 {
		t.Errorf("after a call: %+v", got)
	}
	var events []string
	for _, e := range report.Changes {
		events = append(events, e.Event)
	}
	if got := strings.Join(events, " "); got != "resumed drained paused" {
		t.Errorf("events are %s", got)
	}

	for _, tt := range []struct {
		route, body string
		want        int
		text        string
	}{
		{"backends/pause", `{"model":"m"}`, 422, "endpoint"},
		{"backends/pause", `{"model":"m","endpoint":"http://none/v1"}`, 404, "not registered"},
		{"backends/resume", `{"model":"none","endpoint":"http://none/v1"}`, 404, "not registered"},
		{"backends/pause", name + `,"drain_seconds":1000}`, 400, "drain_seconds: must be from 0 to 60"},
	} {
		if status, _, body := ask(t, http.MethodPost, api+tt.route, tt.body); status != tt.want || !strings.Contains(body, tt.text) {
			t.Errorf("%s %s = %d %s, want %d with %q", tt.route, tt.body, status, body, tt.want, tt.text)
		}
	}
	for query, want := range map[string]int{"window=week": 422, "points=0": 400, "points=x": 422, "window=day&points=5": 200} {
		if status, _, body := request(t, http.MethodGet, api+"history?"+query, ""); status != want {
			t.Errorf("history?%s = %d %s, want %d", query, status, body, want)
		}
	}

	var h storehttp.History
	for t.Context().Err() == nil {
		if h = read[storehttp.History](t, api+"history"); len(h.Times) >= 3 && len(h.Backends) == 1 {
			break
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
	n := len(h.Times) - 1
	if n < 2 || h.Store.Bytes[n] == nil || *h.Store.Bytes[n] < 4096 || *h.Store.Rollouts[n] != 1 || *h.Store.Spans[n] != 2 {
		t.Errorf("history of the store: %+v", h.Store)
	}
	calls, tokens := 0.0, 0.0
	for i, c := range h.Backends[0].Calls {
		if c != nil {
			calls += *c
			tokens += *h.Backends[0].AnswerTokens[i]
		}
	}
	if calls <= 0 || tokens <= 0 {
		t.Errorf("history of the backend: %v calls, %v tokens a second in sum, want some", calls, tokens)
	}
}
