package gateway_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	agl "agentlightning"
	"agentlightning/gateway"
	"agentlightning/llmproxy"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// A caller who waits when the server stops is still there, and is told.
func TestStopIsToldToWhoWaits(t *testing.T) {
	t.Parallel()
	st := engine.New(memory.New(), engine.Config{})
	defer func() { _ = st.Close() }()
	proxy, err := llmproxy.New(llmproxy.Config{Sink: st, Attempts: st, Static: []agl.Model{{Name: "m", Endpoint: "http://127.0.0.1:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	leave, err := proxy.Gate().Enter(t.Context()) // a call to wait for
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	h, err := gateway.NewHandler(gateway.Config{Store: st, Proxy: proxy, Calls: gateway.DefaultCalls()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	stop(store.ErrClosed)
	for _, path := range []string{"/api/rollouts/terminal?wait=60", "/proxy/state?wait=60"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "server is stopping") {
			t.Errorf("%s: answered %d %q, want 503", path, w.Code, w.Body)
		}
	}
}
