package daemon_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	agl "agentlightning"
	"agentlightning/internal/daemon"
	"agentlightning/llmproxy"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a server on a free port until the test ends.
func start(t *testing.T, c daemon.Config) (url string, st store.Store) {
	t.Helper()
	if c.Store == nil {
		c.Store = engine.New(memory.New(), engine.Config{})
	}
	st = c.Store
	server, err := daemon.Listen(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
		if err := st.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	return server.URL(), st
}

func request(t *testing.T, method, url, token string) (status int, header http.Header, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	res, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.Header.Get("Content-Type") == "text/event-stream" { // which has no end
		return res.StatusCode, res.Header, ""
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(text)
}

func TestEveryProtocolOnOnePort(t *testing.T) {
	t.Parallel()
	url, _ := start(t, daemon.Config{Proxy: llmproxy.Config{Static: []agl.Model{{Name: "policy", Endpoint: "http://127.0.0.1:1/v1"}}}})
	tests := []struct {
		method, path string
		status       int
		contains     string
	}{
		{"GET", "/v1/agl/health", 200, `{"status":"ok"}`},
		{"GET", "/v1/agl/statistics", 200, `"total_rollouts":0`},
		{"GET", "/healthz", 200, `{"status":"ok"}`},
		{"GET", "/api/models", 200, `[]`},
		{"GET", "/v1/models", 200, `"policy"`},
		{"POST", "/v1/metrics", 501, ``},
		{"POST", "/v1/traces", 400, ``},
		{"GET", "/metrics", 200, `go_goroutines`},
		{"GET", "/v1/prometheus/", 200, `go_goroutines`},
		{"GET", "/rollouts/ro-1", 200, `<title>Agent Lightning</title>`},
		{"GET", "/v1/agl/nothing", 404, `Not Found`},
		{"POST", "/rollout/ro-x/attempt/at-x/v1/chat/completions", 404, `ro-x`},
		{"GET", "/v1/agl/rollouts?rollout_id_contains=" + strings.Repeat("x", 1<<20), 200, `"total":0`},
	}
	for _, tt := range tests {
		status, header, body := request(t, tt.method, url+tt.path, "")
		if status != tt.status || !strings.Contains(body, tt.contains) {
			t.Errorf("%s %.60s = %d %.200s, want %d with %q", tt.method, tt.path, status, body, tt.status, tt.contains)
		}
		if header.Get("X-Request-Id") == "" {
			t.Errorf("%s %.60s: the answer has no X-Request-Id", tt.method, tt.path)
		}
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	url, _ := start(t, daemon.Config{AuthToken: "secret"})
	tests := []struct {
		path, token string
		status      int
	}{
		{"/healthz", "", 200},
		{"/v1/agl/health", "", 200},
		{"/", "", 200},
		{"/v1/agl/statistics", "", 401},
		{"/v1/agl/statistics", "wrong", 401},
		{"/v1/agl/statistics", "secret", 200},
		{"/metrics", "", 401},
		{"/metrics", "secret", 200},
		{"/api/models", "", 401},
		{"/v1/models", "", 401},
		{"//v1/agl/statistics", "", 401},
		{"/./v1/agl/statistics", "", 401},
	}
	for _, tt := range tests {
		status, _, body := request(t, "GET", url+tt.path, tt.token)
		if status != tt.status && !(tt.status == 401 && strings.Contains(body, "<title>")) {
			t.Errorf("GET %s with token %q = %d %.80s, want %d", tt.path, tt.token, status, body, tt.status)
		}
	}
}

func TestListenRefuses(t *testing.T) {
	t.Parallel()
	st := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() { _ = st.Close() })
	first, err := daemon.Listen(t.Context(), daemon.Config{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	defer func() { _ = first.Run(ctx) }()
	var port int
	for _, c := range first.URL()[strings.LastIndex(first.URL(), ":")+1:] {
		port = 10*port + int(c-'0')
	}
	tests := []struct {
		want   string
		config daemon.Config
	}{
		{"address in use; stop the other process or pass another --port", daemon.Config{Store: st, Port: port}},
		{"set --auth-token", daemon.Config{Store: st, Host: "0.0.0.0"}},
		{"port 70000", daemon.Config{Store: st, Port: 70000}},
		{"Store", daemon.Config{}},
	}
	for _, tt := range tests {
		if _, err := daemon.Listen(t.Context(), tt.config); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Listen(%+v) = %v, want an error with %q", tt.config, err, tt.want)
		}
	}
}

// TestStopsWhileClientsWait asks the server to stop during a long poll.
func TestStopsWhileClientsWait(t *testing.T) {
	t.Parallel()
	st := engine.New(memory.New(), engine.Config{})
	server, err := daemon.Listen(t.Context(), daemon.Config{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	rollout, err := st.StartRollout(t.Context(), store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: []byte("1")}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		body := strings.NewReader(`{"rollout_ids":["` + rollout.RolloutID + `"],"timeout":null}`)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL()+"/v1/agl/waits/rollouts", body)
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("Content-Type", "application/json")
		if res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req); err == nil {
			_ = res.Body.Close()
		}
	}()
	for range 100 {
		if status, _, _ := request(t, "GET", server.URL()+"/healthz", ""); status == 200 {
			break
		}
	}
	started := time.Now()
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
	if took := time.Since(started); took > 10*time.Second {
		t.Errorf("the server stopped after %v, want within 10 s", took)
	}
	<-answered
	if err := st.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
}

// TestStopFinishesWhatItAccepted asks the server to stop while a body arrives,
// and sends its end after that. The request is done and answered as any other,
// and a long poll that was there ends all the same.
func TestStopFinishesWhatItAccepted(t *testing.T) {
	t.Parallel()
	st := engine.New(memory.New(), engine.Config{})
	server, err := daemon.Listen(t.Context(), daemon.Config{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	open, err := st.StartRollout(t.Context(), store.StartRequest{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	const body = `{"rollouts":[{"input":1},{"input":2}]}`
	slow, poll := dial(t, server.URL()), dial(t, server.URL())
	fmt.Fprintf(slow, "POST /v1/agl/queues/rollouts/enqueue HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n", len(body))
	answers := bufio.NewReader(slow)
	if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "100") {
		t.Fatalf("the server says %q, %v, want that it reads the body", line, err)
	}
	fmt.Fprint(slow, body[:10])
	wait := `{"rollout_ids":["` + open.RolloutID + `"]}`
	fmt.Fprintf(poll, "POST /v1/agl/waits/rollouts HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(wait), wait)

	began := time.Now()
	stop()
	<-time.After(2500 * time.Millisecond) // longer than those get that only wait
	fmt.Fprint(slow, body[10:])
	if _, err := answers.ReadString('\n'); err != nil { // the end of the first answer
		t.Fatal(err)
	}
	res, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil || res.StatusCode != http.StatusCreated {
		t.Errorf("the body that was arriving: %d %s, %v, want 201", res.StatusCode, text, err)
	}
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the server stopped after %v, want within 10 s", took)
	}
	if s, err := st.Statistics(t.Context()); err != nil || s.TotalRollouts != 3 {
		t.Errorf("statistics = %+v, %v, want the one from before and the two that were accepted", s, err)
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
}
