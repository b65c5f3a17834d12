package daemon_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	agl "agentlightning"
	"agentlightning/internal/daemon"
	"agentlightning/llmproxy"
	"agentlightning/otlp"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/sqlite"
	"agentlightning/storehttp"
)

// ask sends a request with header fields and returns the answer.
func ask(t *testing.T, method, url, body string, fields ...string) (status int, header http.Header, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header, string(text)
}

func basic(password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("agl:"+password))
}

func TestTokenInEveryWay(t *testing.T) {
	t.Parallel()
	url, _ := start(t, daemon.Config{AuthToken: "se:cret"})
	for _, tt := range []struct {
		field, value string
		status       int
	}{
		{"Authorization", "Bearer se:cret", 200},
		{"Authorization", "bearer  se:cret", 200},
		{"X-Api-Key", "se:cret", 200},
		{"Authorization", basic("se:cret"), 200},
		{"Authorization", basic("cret"), 401},
		{"Authorization", "Basic se:cret", 401},
		{"Authorization", "Bearer se:cre", 401},
		{"Authorization", "Bearer se:cret2", 401},
		{"Authorization", "Bearer", 401},
		{"Authorization", "se:cret", 401},
		{"X-Api-Key", "", 401},
		{"Cookie", "token=se:cret", 401},
	} {
		status, header, body := ask(t, "GET", url+"/v1/agl/statistics", "", tt.field, tt.value)
		if status != tt.status {
			t.Errorf("%s: %s = %d %s, want %d", tt.field, tt.value, status, body, tt.status)
		}
		if status == 401 && (header.Get("Content-Type") != "application/json" || !strings.HasPrefix(body, `{"detail":"`)) {
			t.Errorf("%s: %s is refused with %s %s, want JSON with a detail", tt.field, tt.value, header.Get("Content-Type"), body)
		}
	}
	// Clients of models look for the reason elsewhere.
	if _, _, body := ask(t, "POST", url+"/v1/chat/completions", "{}"); !strings.HasPrefix(body, `{"error":{"message":"this server asks for a token`) {
		t.Errorf("a model call without a token is answered %s", body)
	}
	// The address alone is enough for our client, as for Python's.
	c, err := storehttp.NewClient(strings.Replace(url, "//", "//agl:se%3Acret@", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Statistics(t.Context()); err != nil {
		t.Errorf("a client with the token in its address: %v", err)
	}
	if c.URL() != url {
		t.Errorf("the client's URL is %s: the token is to stay out of it", c.URL())
	}
}

// site is a server with two attempts, of which the first has a token.
type site struct {
	url, token string
	one, other store.Attempted
}

func newSite(t *testing.T, c daemon.Config) site {
	t.Helper()
	url, st := start(t, c)
	s := site{url: url}
	for _, at := range []*store.Attempted{&s.one, &s.other} {
		r, err := st.StartRollout(t.Context(), store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: []byte("1")}})
		if err != nil {
			t.Fatal(err)
		}
		*at = store.Attempted{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID}
	}
	s.token = s.issue(t, c.AuthToken, s.one, "")
	return s
}

func (s site) issue(t *testing.T, server string, at store.Attempted, body string) string {
	t.Helper()
	status, _, answer := ask(t, "POST", s.url+"/v1/agl/rollouts/"+at.RolloutID+"/attempts/"+at.AttemptID+"/token", body, "X-Api-Key", server)
	var issued struct {
		Token     string  `json:"token"`
		AttemptID string  `json:"attempt_id"`
		ExpiresAt float64 `json:"expires_at"`
	}
	if err := json.Unmarshal([]byte(answer), &issued); err != nil || status != http.StatusCreated || issued.Token == "" ||
		issued.ExpiresAt < agl.Seconds(time.Now())-1 {
		t.Fatalf("token = %d %s, want 201 with a token that is good for a while", status, answer)
	}
	return issued.Token
}

func span(at store.Attempted, id string) string {
	s := agl.SpanCore{Name: "step", Status: agl.TraceStatus{StatusCode: agl.StatusOK}, Attributes: agl.Attributes{}}.Span(at.RolloutID, at.AttemptID, 1, 1)
	s.SpanID = id
	return string(s.AppendJSON(nil))
}

func TestAttemptTokenOpensItsAttemptOnly(t *testing.T) {
	t.Parallel()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || r.Header.Get("X-Api-Key") != "" {
			t.Error("the token is passed on to the backend")
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"id":"c","object":"chat.completion","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"42"}}]}`)
	}))
	t.Cleanup(backend.Close)
	s := newSite(t, daemon.Config{AuthToken: "secret", Proxy: llmproxy.Config{Static: []agl.Model{{Name: "m", Endpoint: backend.URL + "/v1"}}}})
	ids := func(at store.Attempted) string {
		return `{"rollout_id":"` + at.RolloutID + `","attempt_id":"` + at.AttemptID + `"}`
	}
	path := func(at store.Attempted) string { return "/rollout/" + at.RolloutID + "/attempt/" + at.AttemptID }
	query := func(at store.Attempted) string { return "?rollout_id=" + at.RolloutID + "&attempt_id=" + at.AttemptID }
	const chat = `{"model":"m","messages":[{"role":"user","content":"6*7"}]}`
	for _, tt := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", path(s.one) + "/v1/chat/completions", chat, 200},
		{"POST", path(s.one) + "/chat/completions", chat, 200},
		{"GET", path(s.one) + "/v1/models", "", 200},
		{"POST", "/v1/agl/spans", span(s.one, "a"), 201},
		{"POST", "/v1/agl/spans/batch", `{"spans":[` + span(s.one, "b") + `]}`, 201},
		{"POST", "/v1/agl/spans/next", ids(s.one), 200},
		{"POST", "/v1/agl/spans/next/batch", `{"attempts":[` + ids(s.one) + `]}`, 200},
		{"GET", "/v1/agl/spans" + query(s.one), "", 200},
		{"POST", "/api/rollouts/" + s.one.RolloutID + "/attempt/" + s.one.AttemptID + "/events", `{"event_type":"x"}`, 200},
		{"POST", "/proxy" + path(s.one) + "/mode/train/openai/v1/chat/completions", chat, 200},
		{"POST", "/proxy" + path(s.other) + "/mode/train/openai/v1/chat/completions", chat, 403},
		{"POST", "/proxy/pause", "{}", 403},
		{"GET", "/proxy/state", "", 403},
		{"GET", "/api/rollouts/" + s.one.RolloutID + "/events", "", 403},
		{"GET", "/api/nothing", "", 404},
		{"GET", "/healthz", "", 200},
		{"GET", "/", "", 200},

		{"POST", path(s.other) + "/v1/chat/completions", chat, 403},
		{"POST", "/rollout/" + s.one.RolloutID + "/attempt/" + s.other.AttemptID + "/v1/chat/completions", chat, 403},
		{"POST", "/v1/chat/completions", chat, 403},
		{"GET", "/v1/models", "", 403},
		{"POST", "/v1/agl/spans", span(s.other, "c"), 403},
		{"POST", "/v1/agl/spans/next", ids(s.other), 403},
		{"POST", "/v1/agl/spans/next/batch", `{"attempts":[` + ids(s.one) + "," + ids(s.other) + `]}`, 403},
		{"GET", "/v1/agl/spans" + query(s.other), "", 403},
		{"GET", "/v1/agl/spans?rollout_id=" + s.one.RolloutID, "", 403},
		{"POST", "/v1/agl/spans/search", ids(s.one), 403},
		{"GET", "/v1/agl/rollouts/" + s.one.RolloutID, "", 403},
		{"POST", "/v1/agl/rollouts/" + s.one.RolloutID + "/attempts/" + s.one.AttemptID, `{"status":"succeeded"}`, 403},
		{"POST", "/v1/agl/rollouts/" + s.one.RolloutID + "/attempts/" + s.one.AttemptID + "/token", "", 403},
		{"POST", "/v1/agl/queues/rollouts/dequeue", "{}", 403},
		{"GET", "/v1/agl/resources/latest", "", 403},
		{"GET", "/v1/agl/models?keys=true", "", 403},
		{"GET", "/v1/agl/statistics", "", 403},
		{"GET", "/api/models", "", 403},
		{"POST", "/api/rollouts/" + s.other.RolloutID + "/attempt/" + s.other.AttemptID + "/events", "{}", 403},
		{"GET", "/metrics", "", 403},
		{"GET", "/openapi.json", "", 403},
	} {
		status, _, body := ask(t, tt.method, s.url+tt.path, tt.body, "Authorization", "Bearer "+s.token)
		if status != tt.status {
			t.Errorf("%s %s = %d %s, want %d", tt.method, tt.path, status, body, tt.status)
		}
		if status == 403 && !strings.HasPrefix(body, `{"detail":"`) && !strings.HasPrefix(body, `{"error":{"message":"`) {
			t.Errorf("%s %s is refused with %s, want JSON that says why", tt.method, tt.path, body)
		}
	}
	// In a batch the spans of others are refused one by one.
	_, _, body := ask(t, "POST", s.url+"/v1/agl/spans/batch", `{"spans":[`+span(s.other, "d")+","+span(s.one, "e")+`]}`, "X-Api-Key", s.token)
	var outcome []struct {
		Stored bool `json:"stored"`
		Status int  `json:"status"`
	}
	if err := json.Unmarshal([]byte(body), &outcome); err != nil || len(outcome) != 2 || outcome[0].Status != 403 || outcome[0].Stored || !outcome[1].Stored {
		t.Errorf("a batch with a span of another attempt = %s, want that one refused and the own one stored", body)
	}
}

func TestOTLPWithTheTokenOfAnAttempt(t *testing.T) {
	t.Parallel()
	s := newSite(t, daemon.Config{AuthToken: "secret"})
	var spans []agl.Span
	for i, at := range []store.Attempted{s.other, s.one, s.other, s.one} {
		one := agl.SpanCore{Name: "step", Status: agl.TraceStatus{StatusCode: agl.StatusOK}, Attributes: agl.Attributes{}}.Span(at.RolloutID, at.AttemptID, 1, 1)
		one.TraceID, one.SpanID = strings.Repeat("a", 32), fmt.Sprintf("%016x", i+1)
		spans = append(spans, one)
	}
	raw, err := otlp.Marshal(spans)
	if err != nil {
		t.Fatal(err)
	}
	export := func(token string) ptraceotlp.ExportPartialSuccess {
		status, _, body := ask(t, "POST", s.url+"/v1/traces", string(raw), "Authorization", basic(token), "Content-Type", "application/x-protobuf")
		answer := ptraceotlp.NewExportResponse()
		if err := answer.UnmarshalProto([]byte(body)); err != nil || status != http.StatusOK {
			t.Fatalf("export = %d %q, %v", status, body, err)
		}
		return answer.PartialSuccess()
	}
	if p := export(s.token); p.RejectedSpans() != 2 || !strings.Contains(p.ErrorMessage(), s.other.AttemptID) {
		t.Errorf("%d spans were rejected: %s, want the 2 of the other attempt", p.RejectedSpans(), p.ErrorMessage())
	}
	if p := export("secret"); p.RejectedSpans() != 0 {
		t.Errorf("%d spans were rejected with the server's token: %s", p.RejectedSpans(), p.ErrorMessage())
	}
}

func TestAttemptTokenExpires(t *testing.T) {
	t.Parallel()
	s := newSite(t, daemon.Config{AuthToken: "secret"})
	short := s.issue(t, "secret", s.one, `{"lifetime_seconds":0.001}`)
	status, _, body := ask(t, "GET", s.url+"/v1/agl/spans?rollout_id="+s.one.RolloutID+"&attempt_id="+s.one.AttemptID, "", "X-Api-Key", short)
	if status != 401 || !strings.Contains(body, "expired") {
		t.Errorf("an expired token = %d %s, want 401 that says so", status, body)
	}
	tampered := []byte(s.token)
	tampered[len(tampered)/2] ^= 1
	status, _, body = ask(t, "GET", s.url+"/v1/agl/spans", "", "X-Api-Key", string(tampered))
	if status != 401 {
		t.Errorf("a token that was changed = %d %s, want 401", status, body)
	}
	for lifetime, want := range map[string]int{"0": 400, "-1": 400, "1e9": 400, `"x"`: 422, "60": 201} {
		status, _, body := ask(t, "POST", s.url+"/v1/agl/rollouts/"+s.one.RolloutID+"/attempts/latest/token",
			`{"lifetime_seconds":`+lifetime+`}`, "X-Api-Key", "secret")
		if status != want {
			t.Errorf("lifetime %s = %d %s, want %d", lifetime, status, body, want)
		}
	}
	if status, _, body := ask(t, "POST", s.url+"/v1/agl/rollouts/"+s.one.RolloutID+"/attempts/at-none/token", "", "X-Api-Key", "secret"); status != 404 || !strings.Contains(body, "at-none") {
		t.Errorf("the token of an unknown attempt = %d %s, want 404 that names it", status, body)
	}
}

func TestWithoutServerTokenNothingIsEnforced(t *testing.T) {
	t.Parallel()
	s := newSite(t, daemon.Config{})
	if status, _, body := ask(t, "GET", s.url+"/v1/agl/statistics", "", "X-Api-Key", s.token); status != 200 {
		t.Errorf("statistics with the token of an attempt = %d %s, want 200 on a server without a token", status, body)
	}
}

// TestAttemptTokenOutlivesTheServer restarts the server on its database, and
// then with another token.
func TestAttemptTokenOutlivesTheServer(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agl.db")
	var at store.Attempted
	var token string
	for _, tt := range []struct {
		server string
		status int
	}{{"first", 0}, {"first", 201}, {"second", 401}} {
		t.Run(tt.server, func(t *testing.T) {
			b, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			st := engine.New(b, engine.Config{})
			url, _ := start(t, daemon.Config{Store: st, AuthToken: tt.server})
			s := site{url: url}
			if token == "" {
				r, err := st.StartRollout(t.Context(), store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: []byte("1")}})
				if err != nil {
					t.Fatal(err)
				}
				at = store.Attempted{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID}
				token = s.issue(t, tt.server, at, "")
				return
			}
			if status, _, body := ask(t, "POST", url+"/v1/agl/spans", span(at, "s"), "X-Api-Key", token); status != tt.status {
				t.Errorf("a span with the token from before = %d %s, want %d", status, body, tt.status)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	url, _ := start(t, daemon.Config{MaxBody: 1000, AuthToken: "secret"})
	long := strings.Repeat("x", 1000)
	for _, tt := range []struct {
		name, path, body string
		fields           []string
		status           int
		contains         string
	}{
		{"body", "/v1/agl/rollouts", `{"input":"` + long + `"}`, nil, 413, "this server takes 1000 (--max-body)"},
		{"body of a model call", "/v1/chat/completions", `{"input":"` + long + `"}`, nil, 413, `{"error":{"message":"the body has`},
		{"header fields", "/v1/agl/rollouts", `{"input":1}`, []string{"X-Long", strings.Repeat("x", 70<<10)}, 431, "this server takes 65536"},
		{"header fields that net/http refuses", "/v1/agl/rollouts", `{"input":1}`, []string{"X-Long", strings.Repeat("x", 3<<20)}, 431, ""},
		{"small", "/v1/agl/rollouts", `{"input":1}`, nil, 201, `"rollout_id"`},
	} {
		status, _, body := ask(t, "POST", url+tt.path, tt.body, append(tt.fields, "X-Api-Key", "secret")...)
		if status != tt.status || !strings.Contains(body, tt.contains) {
			t.Errorf("%s: %d %.200s, want %d with %q", tt.name, status, body, tt.status, tt.contains)
		}
	}
	// Of unknown length.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/agl/rollouts", io.MultiReader(bytes.NewReader([]byte(`{"input":"`)), strings.NewReader(long+`"}`)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Api-Key", "secret")
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusRequestEntityTooLarge || !bytes.Contains(body, []byte("1000 bytes")) {
		t.Errorf("a body of unknown length = %d %s, %v, want 413", res.StatusCode, body, err)
	}
}

// TestBrowsersOfOtherOrigins calls a server with a token as a browser does: it
// asks first, without the token, and reads refusals, too.
func TestBrowsersOfOtherOrigins(t *testing.T) {
	t.Parallel()
	url, _ := start(t, daemon.Config{AuthToken: "secret", CORSOrigins: []string{"https://ui.example"}})
	url += "/v1/agl/statistics"
	for _, tt := range []struct {
		name, method string
		fields       []string
		status       int
		origin       string
	}{
		{
			"before the call", "OPTIONS",
			[]string{"Origin", "https://ui.example", "Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "authorization"},
			200, "https://ui.example",
		},
		{
			"before the call of another origin", "OPTIONS",
			[]string{"Origin", "https://evil.example", "Access-Control-Request-Method", "GET"},
			400, "",
		},
		{"with the token", "GET", []string{"Origin", "https://ui.example", "Authorization", "Bearer secret"}, 200, "https://ui.example"},
		{"without it", "GET", []string{"Origin", "https://ui.example"}, 401, "https://ui.example"},
		{"of another origin", "GET", []string{"Origin", "https://evil.example", "Authorization", "Bearer secret"}, 200, ""},
		{"not asked for", "OPTIONS", []string{"Origin", "https://ui.example"}, 401, "https://ui.example"},
	} {
		status, header, body := ask(t, tt.method, url, "", tt.fields...)
		if status != tt.status || header.Get("Access-Control-Allow-Origin") != tt.origin {
			t.Errorf("%s: %d %s for origin %q, want %d for %q", tt.name, status, body, header.Get("Access-Control-Allow-Origin"), tt.status, tt.origin)
		}
	}
}

func TestReaderTokenChangesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, daemon.Config{AuthToken: "secret", Proxy: llmproxy.Config{Static: []agl.Model{{Name: "m", Endpoint: "http://127.0.0.1:1/v1"}}}})
	client, err := storehttp.NewClient(s.url, storehttp.WithToken("secret"), storehttp.WithRetryWindow(0))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	token, err := client.ReaderToken(t.Context(), time.Minute)
	if err != nil || !strings.HasPrefix(token, "agl-reader.") {
		t.Fatalf("ReaderToken = %q, %v", token, err)
	}
	for _, tt := range []struct {
		method, path string
		status       int
	}{
		{http.MethodGet, "/v1/agl/rollouts", http.StatusOK},
		{http.MethodPost, "/v1/agl/rollouts/search", http.StatusOK},
		{http.MethodGet, "/v1/agl/rollouts/" + s.one.RolloutID, http.StatusOK},
		{http.MethodGet, "/v1/agl/spans?rollout_id=" + s.one.RolloutID, http.StatusOK},
		{http.MethodGet, "/v1/agl/runs", http.StatusOK},
		{http.MethodGet, "/v1/agl/models", http.StatusOK},
		{http.MethodGet, "/v1/agl/runs/run-none/log", http.StatusNotFound},
		{http.MethodPost, "/v1/agl/runs/run-none/log", http.StatusForbidden},
		{http.MethodDelete, "/v1/agl/runs/run-none", http.StatusForbidden},
		{http.MethodPost, "/v1/agl/rollouts", http.StatusForbidden},
		{http.MethodPost, "/v1/agl/queues/rollouts/dequeue", http.StatusForbidden},
		{http.MethodGet, "/v1/agl/queues/rollouts/dequeue", http.StatusForbidden},
		{http.MethodPost, "/v1/agl/runs", http.StatusForbidden},
		{http.MethodPost, "/v1/agl/spans", http.StatusForbidden},
		{http.MethodPost, "/v1/agl/tokens/reader", http.StatusForbidden},
		{http.MethodDelete, "/v1/agl/models", http.StatusForbidden},
		{http.MethodPost, "/v1/traces", http.StatusForbidden},
		{http.MethodPost, "/v1/chat/completions", http.StatusForbidden},
		{http.MethodPost, "/api/rollouts", http.StatusForbidden},
		{http.MethodGet, "/metrics", http.StatusForbidden},
	} {
		if status, _, answer := ask(t, tt.method, s.url+tt.path, "{}", "Authorization", "Bearer "+token); status != tt.status {
			t.Errorf("%s %s: %d %s, want %d", tt.method, tt.path, status, answer, tt.status)
		}
	}
}
