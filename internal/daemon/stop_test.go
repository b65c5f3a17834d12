package daemon_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	agl "agentlightning"
	"agentlightning/internal/daemon"
	"agentlightning/llmproxy"
	"agentlightning/semconv"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// TestStopIsToldToCallers asks the server to stop while callers wait who are
// still there: none is given an empty answer, or half of one, as if it were whole.
func TestStopIsToldToCallers(t *testing.T) {
	t.Parallel()
	const begin = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hal\"}}]}\n\n"
	var called sync.WaitGroup
	called.Add(4)
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), `"stream":true`) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, begin)
			_ = http.NewResponseController(w).Flush()
		}
		called.Done()
		<-r.Context().Done()
	}))
	defer backend.Close()
	st := engine.New(memory.New(), engine.Config{})
	server, err := daemon.Listen(t.Context(), daemon.Config{
		Store: st, Proxy: llmproxy.Config{Static: []agl.Model{{Name: "m", Endpoint: backend.URL + "/v1"}}},
	})
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

	attempt := "/rollout/" + open.RolloutID + "/attempt/" + open.Attempt.AttemptID + "/v1"
	const ask, askStream = `{"model":"m","messages":[]}`, `{"model":"m","messages":[],"stream":true}`
	var callers sync.WaitGroup
	for _, tt := range []struct {
		name, path, body string
		status           int
		says             string
	}{
		{"whole", attempt + "/chat/completions", ask, http.StatusServiceUnavailable, "server is stopping"},
		{"stream", attempt + "/chat/completions", askStream, http.StatusOK, "server is stopping"},
		{"translated stream", attempt + "/messages", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}],"stream":true}`, http.StatusOK, "server is stopping"},
		{"stream that is not recorded", "/v1/chat/completions", askStream, http.StatusOK, "server is stopping"},
	} {
		callers.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL()+tt.path, strings.NewReader(tt.body))
			if err != nil {
				t.Error(err)
				return
			}
			res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
				return
			}
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			if err != nil || res.StatusCode != tt.status || !strings.Contains(string(text), tt.says) {
				t.Errorf("%s: answered %d %q, %v, want %d with %q", tt.name, res.StatusCode, text, err, tt.status, tt.says)
			}
		})
	}
	called.Wait()
	stop()
	callers.Wait()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
	page, err := st.QuerySpans(t.Context(), store.SpanQuery{RolloutID: open.RolloutID})
	if err != nil || len(page.Items) != 3 {
		t.Fatalf("%d spans, %v, want 3", len(page.Items), err)
	}
	for i := range page.Items {
		if got, _ := page.Items[i].Attributes.String(semconv.CallProblem); got != semconv.ProblemCancelled {
			t.Errorf("problem is %q, want %q", got, semconv.ProblemCancelled)
		}
		if got, _ := page.Items[i].Attributes.String(semconv.CallMessage); !strings.Contains(got, "server is stopping") {
			t.Errorf("message is %q", got)
		}
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
}
