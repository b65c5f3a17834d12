package daemon_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	agl "agentlightning"
	"agentlightning/internal/daemon"
	"agentlightning/internal/logs"
	"agentlightning/store/engine"
	"agentlightning/store/sqlite"
)

// metric returns the value of a line of /metrics, -1 when there is none.
func metric(t *testing.T, text, name string) float64 {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (.*)$`).FindStringSubmatch(text)
	if m == nil {
		return -1
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	m, err := daemon.NewMetrics()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "agl.db")
	b, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, OnCommit: m.OnCommit})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.WatchFile(path); err != nil {
		t.Fatal(err)
	}
	st := engine.New(b, engine.Config{OnChange: m.OnChange})
	url, _ := start(t, daemon.Config{Store: st, Metrics: m})
	for range 3 {
		ask(t, "POST", url+"/v1/agl/queues/rollouts/enqueue", `{"rollouts":[{"input":1,"mode":"val"}]}`)
	}
	_, _, body := ask(t, "POST", url+"/v1/agl/queues/rollouts/dequeue", `{"limit":1}`)
	var claimed []agl.AttemptedRollout
	if err := json.Unmarshal([]byte(body), &claimed); err != nil || len(claimed) != 1 {
		t.Fatalf("dequeue = %s, %v", body, err)
	}
	id := claimed[0].RolloutID
	ask(t, "POST", url+"/v1/agl/rollouts/"+id+"/attempts/"+claimed[0].Attempt.AttemptID, `{"status":"failed"}`)
	ask(t, "GET", url+"/v1/agl/rollouts/"+id, "")
	ask(t, "GET", url+"/v1/agl/rollouts/ro-other", "")
	ask(t, "GET", url+"/v1/agl/rollouts/"+id+"/attempts/latest", "")
	ask(t, "GET", url+"/v1/agl/nothing/at/all", "")
	ask(t, "BREW", url+"/v1/agl/rollouts", "")
	ask(t, "GET", url+"/runs/of/mine", "")
	ask(t, "POST", url+"/rollout/ro-x/attempt/at-x/v1/chat/completions", "{}")
	_, _, text := request(t, "GET", url+"/metrics", "")
	for name, want := range map[string]float64{
		`agl_http_total{method="POST",path="/v1/agl/queues/rollouts/enqueue",status="201"}`:                                3,
		`agl_http_total{method="POST",path="/v1/agl/queues/rollouts/dequeue",status="200"}`:                                1,
		`agl_http_total{method="POST",path="/v1/agl/rollouts/{rollout_id}/attempts/{attempt_id}",status="200"}`:            1,
		`agl_http_total{method="GET",path="/v1/agl/rollouts/{rollout_id}",status="200"}`:                                   2,
		`agl_http_total{method="GET",path="/v1/agl/rollouts/{rollout_id}/attempts/latest",status="200"}`:                   1,
		`agl_http_total{method="GET",path="/v1/agl/{other}",status="404"}`:                                                 1,
		`agl_http_total{method="OTHER",path="/v1/agl/{other}",status="405"}`:                                               1,
		`agl_http_total{method="GET",path="/{page}",status="200"}`:                                                         1,
		`agl_http_total{method="POST",path="/rollout/{rollout_id}/attempt/{attempt_id}/v1/chat/completions",status="404"}`: 1,
		`agl_http_latency_bucket{method="GET",path="/v1/agl/rollouts/{rollout_id}",status="200",le="300"}`:                 2,
		`agl_store_total{method="enqueue_many_rollouts",status="OK",store_pubmeth="enqueue_many_rollouts"}`:                3,
		`agl_store_latency_count{method="dequeue_many_rollouts",status="OK",store_pubmeth="dequeue_many_rollouts"}`:        1,
		`agl_store_total{method="get_rollout_by_id",status="ValueError",store_pubmeth="get_rollout_by_id"}`:                1,
		`agl_rollouts_total{mode="val",status="failed"}`:                                                                   1,
		`agl_rollouts_duration_count{mode="val",status="failed"}`:                                                          1,
		`agl_queue_length`:            2,
		`agl_http_requests_in_flight`: 1,
	} {
		if got := metric(t, text, name); got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	for _, name := range []string{"agl_queue_age_seconds", "agl_db_commit_seconds_count", "agl_db_commit_calls_sum", `agl_db_file_bytes{file="database"}`, `agl_db_file_bytes{file="log"}`, "go_goroutines", "process_open_fds"} {
		if got := metric(t, text, name); got <= 0 {
			t.Errorf("%s = %v, want more than 0", name, got)
		}
	}
	if strings.Contains(text, "ro-other") || strings.Contains(text, id) {
		t.Error("an id is in a label")
	}
	for _, path := range []string{"/v1/prometheus", "/v1/prometheus/"} {
		if status, _, text := request(t, "GET", url+path, ""); status != 200 || metric(t, text, "agl_queue_length") != 2 {
			t.Errorf("GET %s = %d, want the metrics", path, status)
		}
	}
}

// TestLinesCarryTheIDOfTheAnswer finds the id that an answer has in the log.
// TestAnswersThatBreakOff has handlers give up in the middle of an answer: that
// is the caller's doing when it is gone, and a fault otherwise.
func TestAnswersThatBreakOff(t *testing.T) {
	t.Parallel()
	for want, gone := range map[string]bool{"499": true, "520": false} {
		m, err := daemon.NewMetrics()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		h := daemon.Observe(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			if gone {
				cancel()
			}
			panic(http.ErrAbortHandler)
		}), m)
		func() {
			defer func() { _ = recover() }()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/x", nil))
		}()
		cancel()
		out := httptest.NewRecorder()
		promhttp.HandlerFor(daemon.Registry(m), promhttp.HandlerOpts{}).ServeHTTP(out, httptest.NewRequest(http.MethodGet, "/", nil))
		if got := metric(t, out.Body.String(), `agl_http_total{method="GET",path="/x",status="`+want+`"}`); got != 1 {
			t.Errorf("the caller is gone: %t; %v requests count as %s, want 1", gone, got, want)
		}
	}
}

func TestLinesCarryTheIDOfTheAnswer(t *testing.T) {
	t.Parallel()
	var out lockedBuffer
	levels, err := logs.ParseLevels("error,http=debug,otlp=info")
	if err != nil {
		t.Fatal(err)
	}
	l, err := logs.New(&out, "json", levels)
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, daemon.Config{Log: l.Logger})
	_, header, _ := ask(t, "POST", s.url+"/v1/traces", `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"b7ad6b7169203331","name":"x"}]}]}]}`)
	id := header.Get("X-Request-Id")
	areas := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		var fields struct {
			Area      string
			RequestID string `json:"request_id"`
		}
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		if fields.RequestID == id {
			areas[fields.Area] = true
		}
	}
	if !areas["http"] || !areas["otlp"] {
		t.Errorf("lines of request %s are of areas %v, want http and otlp:\n%s", id, areas, out.String())
	}
}

func TestTheCallersRequestIDIsKept(t *testing.T) {
	t.Parallel()
	url, _ := start(t, daemon.Config{})
	for id, kept := range map[string]bool{"abc-1_2.Z": true, strings.Repeat("x", 64): true, strings.Repeat("x", 65): false, "a b": false, "a=\"b": false, "ä": false} {
		_, header, _ := ask(t, "GET", url+"/v1/agl/health", "", "X-Request-Id", id)
		if got := header.Get("X-Request-Id"); got == "" || (got == id) != kept {
			t.Errorf("the answer to request %q has the id %q, kept should be %v", id, got, kept)
		}
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
