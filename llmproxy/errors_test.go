package llmproxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	agl "agentlightning"
	"agentlightning/llmproxy"
	"agentlightning/semconv"
)

func TestErrorsMadeHere(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{MaxRequestBytes: 1000}, func(http.ResponseWriter, *http.Request) {
		t.Error("the backend was called")
	})
	f.store.models = append(f.store.models, agl.Model{Name: "other", Endpoint: "http://127.0.0.1:1/v1"})
	tests := []struct {
		name, path, body string
		status           int
		code, says       string
	}{
		{"unknown rollout", "/rollout/nope/attempt/a1/v1/chat/completions", ask, 404, "attempt_not_found", `rollout "nope"`},
		{"unknown attempt", "/rollout/ro/attempt/a9/v1/chat/completions", ask, 404, "attempt_not_found", `rollout "ro" has no attempt "a9"`},
		{"unknown model", attempt + "/v1/chat/completions", `{"model":"x"}`, 404, "model_not_found", `model "x" is not registered; registered: m, other`},
		{"no model", "/v1/chat/completions", `{"messages":[]}`, 404, "model_not_found", "names no model"},
		{"model of another type", "/v1/chat/completions", `{"model":3}`, 400, "", "must be a string"},
		{"not JSON", attempt + "/v1/chat/completions", `{"model":`, 400, "", "not a JSON object"},
		{"too long", attempt + "/v1/chat/completions", strings.Repeat(" ", 2000), 413, "", "1000 bytes"},
		{"no such path", attempt + "/v1/images", ask, 404, "not_found", "/v1/chat/completions"},
		{"no attempt in the path", "/rollout/ro/v1/chat/completions", ask, 404, "", "/rollout/ROLLOUT/attempt/ATTEMPT"},
		{"models of an unknown attempt", "/rollout/ro/attempt/a9/v1/models", ask, 405, "", "use GET"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			status, _, body := f.post(t, tt.path, tt.body)
			message, code := errorOf(t, body)
			if status != tt.status || code != tt.code || !strings.Contains(message, tt.says) {
				t.Errorf("answer is %d %s, want %d, code %q, %q", status, body, tt.status, tt.code, tt.says)
			}
		})
	}
	// Calls that belong to an attempt are seen there: of an unknown model, of what
	// is no JSON, of what is too long.
	spans := f.store.stored()
	if len(spans) != 3 {
		t.Fatalf("%d spans stored, want 3", len(spans))
	}
	s := spans[0]
	if problem(s) != semconv.ProblemUpstreamError || s.Status.StatusCode != agl.StatusError || !strings.Contains(*s.Status.Description, "not registered") {
		t.Errorf("span has problem %q, status %v", problem(s), s.Status)
	}
}

func TestModels(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{}, answers(wholeAnswer), answers(wholeAnswer))
	f.store.models = append(f.store.models, agl.Model{Name: "a/b", Endpoint: "http://127.0.0.1:1/v1"})
	const want = `{"data":[{"id":"m","object":"model","created":1677610602,"owned_by":"openai"},` +
		`{"id":"a/b","object":"model","created":1677610602,"owned_by":"openai"}],"object":"list"}`
	for _, path := range []string{"/v1/models", "/models", attempt + "/v1/models", attempt + "/models/"} {
		resp, err := client(t).Get(f.url + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(body) != want {
			t.Errorf("%s is %d %s", path, resp.StatusCode, body)
		}
	}
}

func TestBackendErrorsAreRelayed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		status  int
		body    string
		problem string
	}{
		{429, `{"error":{"message":"slow down","type":"rate_limit"}}`, semconv.ProblemUpstreamError},
		{401, `{"detail":"no key"}`, semconv.ProblemUpstreamError},
		{500, "<html>oops</html>", semconv.ProblemUpstreamError},
		{503, "", semconv.ProblemUpstreamError},
		{400, `{"object":"error","message":"This model's maximum context length is 10 tokens.","type":"BadRequestError","code":400}`, semconv.ProblemContextOverflow},
		{400, `{"error":{"message":"x","code":"context_length_exceeded"}}`, semconv.ProblemContextOverflow},
		{500, `{"error":{"message":"context_length_exceeded somewhere"}}`, semconv.ProblemUpstreamError},
	}
	for _, tt := range tests {
		for _, request := range []string{ask, askStream} {
			var calls atomic.Int64
			f := setup(t, llmproxy.Config{}, func(w http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Retry-After", "7")
				w.Header().Set("Content-Type", "text/x-of-the-backend")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			status, header, body := f.chat(t, request)
			if status != tt.status || body != tt.body || header.Get("Retry-After") != "7" || header.Get("Content-Type") != "text/x-of-the-backend" {
				t.Errorf("answer is %d %q with %v, want %d %q", status, body, header, tt.status, tt.body)
			}
			if calls.Load() != 1 {
				t.Errorf("status %d: the backend was called %d times", tt.status, calls.Load())
			}
			s := f.store.span(t)
			if problem(s) != tt.problem || s.Status.StatusCode != agl.StatusError {
				t.Errorf("status %d %s: problem is %q, want %q", tt.status, tt.body, problem(s), tt.problem)
			}
			if got, _ := s.Attributes.Get(semconv.CallStatus); got != int64(tt.status) {
				t.Errorf("recorded status is %v", got)
			}
		}
	}
}

func TestWholeAnswerCutShort(t *testing.T) {
	t.Parallel()
	for _, path := range []string{attempt + "/v1/chat/completions", "/v1/chat/completions"} {
		f := setup(t, llmproxy.Config{}, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, wholeAnswer[:100])
		})
		status, _, body := f.post(t, path, ask)
		if message, _ := errorOf(t, body); status != http.StatusBadGateway || !strings.Contains(message, "ended its answer early") {
			t.Errorf("answer is %d %s", status, body)
		}
		if path != "/v1/chat/completions" {
			if s := f.store.span(t); problem(s) != semconv.ProblemTruncated {
				t.Errorf("problem is %q", problem(s))
			}
		}
	}
}

// freeAddress returns an address on which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestBackendIsDown(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{})
	endpoint := "http://" + freeAddress(t) + "/v1"
	f.store.models = []agl.Model{{Name: "m", Endpoint: endpoint}}
	status, _, body := f.chat(t, ask)
	message, code := errorOf(t, body)
	if status != http.StatusBadGateway || code != "backend_unreachable" || !strings.Contains(message, endpoint) || !strings.Contains(message, "connection refused") {
		t.Errorf("answer is %d %s", status, body)
	}
	if s := f.store.span(t); problem(s) != semconv.ProblemUpstreamError {
		t.Errorf("problem is %q", problem(s))
	}
}

func TestRefusedFields(t *testing.T) {
	t.Parallel()
	var seen []string
	f := setup(t, llmproxy.Config{}, func(w http.ResponseWriter, r *http.Request) {
		body := readBody(t, r)
		var has []string
		for _, field := range []string{"return_token_ids", "logprobs", "stream_options"} {
			if _, ok := body[field]; ok {
				has = append(has, field)
			}
		}
		seen = append(seen, strings.Join(has, "+"))
		// One field at a time, as many engines report them.
		for _, field := range []string{"return_token_ids", "logprobs"} {
			if slices.Contains(has, field) && body["top_logprobs"] == nil {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, `{"error":{"message":"Unrecognized request argument supplied: `+field+`"}}`)
				return
			}
		}
		_, _ = io.WriteString(w, `{"id":"c","choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}`)
	})
	for range 2 {
		if status, _, body := f.chat(t, ask); status != http.StatusOK {
			t.Errorf("answer is %d %s", status, body)
		}
	}
	want := []string{"return_token_ids+logprobs", "logprobs", "", ""}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("fields of the calls (-want +got):\n%s", diff)
	}
	for _, s := range f.store.stored() {
		if problem(s) != semconv.ProblemTokenIDsMissing {
			t.Errorf("problem is %q", problem(s))
		}
		if got, _ := s.Attributes.Get(semconv.CallRefused); !cmp.Equal(got, []string{"return_token_ids", "logprobs"}) {
			t.Errorf("refused fields are %v", got)
		}
	}
	// A field that the caller asked for itself is the caller's to be refused.
	seen = nil
	f.chat(t, `{"model":"m","logprobs":true}`)
	if len(seen) != 1 || seen[0] != "logprobs" {
		t.Errorf("fields of the call are %q", seen)
	}
}

// A connection on which a server has given up looks fine until it is used.
func TestDeadIdleConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var died atomic.Int64
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				req, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(wholeAnswer), wholeAnswer)
				if _, err := in.ReadByte(); err == nil {
					died.Add(1)
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	f := setup(t, llmproxy.Config{})
	f.store.models = []agl.Model{{Name: "m", Endpoint: "http://" + listener.Addr().String() + "/v1"}}
	for range 3 {
		if status, _, body := f.chat(t, ask); status != http.StatusOK {
			t.Fatalf("answer is %d %s", status, body)
		}
	}
	if died.Load() != 2 {
		t.Errorf("%d calls met a dead connection, want 2", died.Load())
	}
	if n := len(f.store.stored()); n != 3 {
		t.Errorf("%d spans stored, want 3", n)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	f := setup(t, llmproxy.Config{Metrics: registry}, answers(wholeAnswer))
	f.chat(t, ask)
	f.chat(t, `{"model":"made up"}`)
	f.post(t, "/v1/chat/completions", ask)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := family.GetName()
			for _, l := range m.GetLabel() {
				labels += " " + l.GetName() + "=" + l.GetValue()
			}
			got[labels] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount()) + m.GetGauge().GetValue()
		}
	}
	at := " backend=" + f.store.models[0].Endpoint + " model=m"
	want := map[string]float64{
		"agl_proxy_calls_total model=m outcome=ok":                   2,
		"agl_proxy_calls_total model=unknown outcome=upstream_error": 1,
		"agl_proxy_call_seconds model=m":                             2,
		"agl_proxy_call_seconds model=unknown":                       1,
		"agl_proxy_backend_open_calls" + at:                          0,
		"agl_proxy_backend_waiting_calls" + at:                       0,
		"agl_proxy_backend_resting" + at:                             0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := llmproxy.New(llmproxy.Config{Static: []agl.Model{{Name: "m", Endpoint: "localhost:80"}}})
	for _, says := range []string{"Sink", "Attempts", `"localhost:80"`} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("error is %v, want it to name %s", err, says)
		}
	}
}
