package storehttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/storehttp"
)

// broken is a store whose statistics fail.
type broken struct {
	store.Store
	statistics func() error
}

func (b broken) Statistics(context.Context) (store.Statistics, error) {
	return store.Statistics{}, b.statistics()
}

func call(tb testing.TB, h http.Handler, method, target, body string, header ...string) *httptest.ResponseRecorder {
	tb.Helper()
	r := httptest.NewRequestWithContext(tb.Context(), method, target, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Header().Get("X-Request-Id") == "" {
		tb.Errorf("%s %s has no request id", method, target)
	}
	return w
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		fail       func() error
		wantStatus int
		wantBody   string
	}{
		{
			"fault", func() error { return errors.New("SELECT secret") }, 500,
			`{"detail":"internal error","error_type":"InternalError","request_id":"ID"}`,
		},
		{
			"panic", func() error { panic("secret") }, 500,
			`{"detail":"internal error","error_type":"InternalError","request_id":"ID"}`,
		},
		{
			"full disk", func() error { return fmt.Errorf("write: %w", store.ErrFull) }, 507,
			`{"detail":"the disk of the server is full; nothing was stored"}`,
		},
		{
			"closed", func() error { return store.ErrClosed }, 503,
			`{"detail":"the server is shutting down; try again in a moment"}`,
		},
		{
			"conflict", func() error { return &store.Error{Kind: store.ErrConflict, Message: "run r exists already"} }, 409,
			`{"detail":"run r exists already","error_type":"ValueError","traceback":"ValueError: run r exists already"}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := storehttp.NewHandler(broken{statistics: tt.fail}, storehttp.Config{})
			w := call(t, h, "GET", "/v1/agl/statistics", "")
			want := strings.Replace(tt.wantBody, "ID", w.Header().Get("X-Request-Id"), 1)
			if w.Code != tt.wantStatus || w.Body.String() != want {
				t.Errorf("got %d %s, want %d %s", w.Code, w.Body, tt.wantStatus, want)
			}
		})
	}
}

func TestRequestIDOfOuterHandler(t *testing.T) {
	t.Parallel()
	b := setup(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Request-Id", "outer")
			next.ServeHTTP(w, r)
		})
	})
	if id := get(t, b.server.URL+"/v1/agl/health").Get("X-Request-Id"); id != "outer" {
		t.Errorf("request id = %q, want that of the outer handler", id)
	}
}

func get(tb testing.TB, url string) http.Header {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, url, nil)
	if err != nil {
		tb.Fatal(err)
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		tb.Fatal(err)
	}
	return resp.Header
}

func TestValidation(t *testing.T) {
	t.Parallel()
	h := storehttp.NewHandler(broken{}, storehttp.Config{MaxBody: 1000})
	for _, tt := range []struct {
		name, path, body string
		wantStatus       int
		wantBody         string
	}{
		{
			"string that is a number", "/rollouts", `{"input":1,"resources_id":5}`, 422,
			`{"detail":[{"type":"string_type","loc":["body","resources_id"],"msg":"Input should be a valid string","input":5}]}`,
		},
		{
			"integer out of range", "/spans/next/batch", `{"attempts":7}`, 422,
			`{"detail":[{"type":"list_type","loc":["body","attempts"],"msg":"Input should be a valid list","input":7}]}`,
		},
		{
			"limit out of range", "/queues/rollouts/dequeue", `{"limit":99999999999999999999}`, 422,
			`{"detail":[{"type":"int_parsing_size","loc":["body","limit"],"msg":"Unable to parse input string as an integer, exceeded maximum size","input":99999999999999999999}]}`,
		},
		{
			"limit that is infinite", "/queues/rollouts/dequeue", `{"limit":Infinity}`, 422,
			`{"detail":[{"type":"finite_number","loc":["body","limit"],"msg":"Input should be a finite number","input":null}]}`,
		},
		{
			"last of two members counts", "/queues/rollouts/dequeue", `{"limit":1,"limit":"x"}`, 422,
			`{"detail":[{"type":"int_parsing","loc":["body","limit"],"msg":"Input should be a valid integer, unable to parse string as an integer","input":"x"}]}`,
		},
		{
			"timeout that is hexadecimal", "/waits/rollouts", `{"rollout_ids":[],"timeout":"0x10"}`, 422,
			`{"detail":[{"type":"float_parsing","loc":["body","timeout"],"msg":"Input should be a valid number, unable to parse string as a number","input":"0x10"}]}`,
		},
		{"bytes that are no text", "/rollouts", "{\"input\":\"\xff\"}", 400, `{"detail":"There was an error parsing the body"}`},
		{
			"too large", "/rollouts", `{"input":"` + strings.Repeat("x", 1000) + `"}`, 413,
			`{"detail":"the body is longer than the 1000 bytes that this server takes; send it in smaller parts"}`,
		},
		{
			"count and share", "/waits/count", `{"rollout_ids":["a"],"count":1,"share":0.5}`, 400,
			`{"detail":"give either count, how many rollouts to wait for, or share, which part of them"}`,
		},
		{
			"neither count nor share", "/waits/count", `{"rollout_ids":["a"]}`, 400,
			`{"detail":"give either count, how many rollouts to wait for, or share, which part of them"}`,
		},
		{
			"share that is more than all", "/waits/count", `{"rollout_ids":["a"],"share":1.5}`, 400,
			`{"detail":"share must be between 0 and 1"}`,
		},
		{
			"run with a number for its config", "/runs/r", `{"config":1,"status":"done"}`, 422,
			`{"detail":[{"type":"literal_error","loc":["body","status"],"msg":"Input should be 'running', 'succeeded', 'failed' or 'interrupted'","input":"done","ctx":{"expected":"'running', 'succeeded', 'failed' or 'interrupted'"}},{"type":"dict_type","loc":["body","config"],"msg":"Input should be a valid dictionary","input":1}]}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := call(t, h, "POST", "/v1/agl"+tt.path, tt.body)
			if w.Code != tt.wantStatus || w.Body.String() != tt.wantBody {
				t.Errorf("POST %s %s\n got %d %s\nwant %d %s", tt.path, tt.body, w.Code, w.Body, tt.wantStatus, tt.wantBody)
			}
		})
	}
}

func TestLenientQuery(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	enqueue(t, b.store, "1", "2", "3")
	h := storehttp.NewHandler(b.store, storehttp.Config{})
	for query, want := range map[string]string{
		"limit=1_0&offset=+1":        `"limit":10,"offset":1,"total":3}`,
		"limit=1&limit=%202.0":       `"limit":2,"offset":0,"total":3}`,
		"rollout_id_contains=%zz;&&": `"limit":-1,"offset":0,"total":0}`,
	} {
		if w := call(t, h, "GET", "/v1/agl/rollouts?"+query, ""); !strings.HasSuffix(w.Body.String(), want) {
			t.Errorf("GET ?%s = %d %s, want it to end %s", query, w.Code, w.Body, want)
		}
	}
}

func TestAllow(t *testing.T) {
	t.Parallel()
	h := storehttp.NewHandler(broken{}, storehttp.Config{})
	for path, want := range map[string]string{
		"/spans": "POST", "/spans/next": "POST", "/rollouts": "POST", "/rollouts/search": "POST", "/resources/latest": "GET",
		"/rollouts/x/attempts/latest": "POST", "/workers/x": "GET", "/workers": "GET", "/rollouts/x": "GET", "/rollouts/x/attempts": "POST", "/resources": "GET", "/resources/x": "POST", "/nothing/here": "GET", "/rollouts/": "GET",
	} {
		w := call(t, h, "PUT", "/v1/agl"+path, "")
		if got := w.Header().Get("Allow"); w.Code != http.StatusMethodNotAllowed || got != want {
			t.Errorf("PUT %s = %d, allowed %q, want %q", path, w.Code, got, want)
		}
	}
}

// TestLongPoll measures how soon an idle runner has what was enqueued.
func TestLongPoll(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	var worst time.Duration
	for range 20 {
		start := make(chan time.Time, 1)
		go func() {
			<-time.After(20 * time.Millisecond) // by then the runner waits
			start <- time.Now()
			_, _ = b.store.EnqueueRollouts(context.WithoutCancel(t.Context()), []store.EnqueueRequest{{}})
		}()
		if got := dequeue(t, b.client, 10*time.Second); len(got) != 1 {
			t.Fatalf("dequeue = %v, want one rollout", got)
		}
		worst = max(worst, time.Since(<-start))
	}
	t.Logf("slowest of 20: %v", worst)
	if worst > time.Second {
		t.Errorf("an idle runner got its rollout after %v", worst)
	}
}

func TestCloseEndsCalls(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	result := make(chan error, 1)
	go func() {
		_, err := b.client.DequeueRollouts(context.WithoutCancel(t.Context()), store.DequeueRequest{Limit: 1, Wait: time.Minute})
		result <- err
	}()
	<-time.After(20 * time.Millisecond)
	if err := b.client.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-result; !errors.Is(err, store.ErrClosed) {
		t.Errorf("a call that waited: %v, want %v", err, store.ErrClosed)
	}
	if err := b.client.Health(t.Context()); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a call after Close: %v, want %v", err, store.ErrClosed)
	}
}

func TestNewClientRefusesAddresses(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "localhost:4747", "ftp://x", "http://", "://"} {
		if _, err := storehttp.NewClient(address); err == nil || !strings.Contains(err.Error(), "http://127.0.0.1:4747") {
			t.Errorf("NewClient(%q) = %v, want an error that shows an address", address, err)
		}
	}
	c, err := storehttp.NewClient("http://127.0.0.1:4747/v1/agl/")
	if err != nil || c.URL() != "http://127.0.0.1:4747" {
		t.Errorf("NewClient with the path of the protocol: %v, %v", c, err)
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	var seen string
	b := setup(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen = r.Header.Get("Authorization")
			next.ServeHTTP(w, r)
		})
	}, storehttp.WithToken("secret"))
	if err := b.client.Health(t.Context()); err != nil || seen != "Bearer secret" {
		t.Errorf("Health = %v with authorization %q", err, seen)
	}
}

// TestOtherServer asks a server that is not a store.
func TestOtherServer(t *testing.T) {
	t.Parallel()
	b := setup(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) })
	})
	_, err := b.client.Statistics(t.Context())
	if err == nil || !strings.Contains(err.Error(), "is "+b.server.URL+" the address of a store server?") {
		t.Errorf("Statistics of a web page = %v", err)
	}
}

// TestUnsupported asks a 0.3 server for what its protocol lacks.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	b := setup(t, pythonLike)
	if _, err := b.client.CreateRun(t.Context(), agl.Run{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("CreateRun = %v, want %v", err, errors.ErrUnsupported)
	}
}
