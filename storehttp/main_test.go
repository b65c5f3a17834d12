package storehttp_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/goleak"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/storehttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bundle is a server over a fresh store, and a client of it.
type bundle struct {
	store  *engine.Store
	server *httptest.Server
	client *storehttp.Client
}

// setup starts a server whose handler goes through wrap, nil for as it is.
func setup(tb testing.TB, wrap func(http.Handler) http.Handler, opts ...storehttp.Option) *bundle {
	tb.Helper()
	b := &bundle{store: engine.New(memory.New(), engine.Config{})}
	handler := storehttp.NewHandler(b.store, storehttp.Config{})
	if wrap != nil {
		handler = wrap(handler)
	}
	b.server = serve(tb, handler, "")
	b.client = newClient(tb, b.server.URL, opts...)
	tb.Cleanup(func() { _ = b.store.Close() })
	return b
}

// serve starts a server at an address, any when it is empty.
func serve(tb testing.TB, handler http.Handler, address string) *httptest.Server {
	tb.Helper()
	server := httptest.NewUnstartedServer(handler)
	if address != "" {
		_ = server.Listener.Close()
		server.Listener = listen(tb, address)
	}
	server.Listener = storehttp.WatchConns(server.Config, server.Listener)
	server.Start()
	tb.Cleanup(server.Close)
	return server
}

func newClient(tb testing.TB, url string, opts ...storehttp.Option) *storehttp.Client {
	tb.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 100
	opts = append([]storehttp.Option{storehttp.WithHTTPClient(&http.Client{Transport: transport})}, opts...)
	c, err := storehttp.NewClient(url, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// enqueue adds rollouts with the given inputs.
func enqueue(tb testing.TB, s store.Store, inputs ...string) []agl.Rollout {
	tb.Helper()
	reqs := make([]store.EnqueueRequest, len(inputs))
	for i, in := range inputs {
		reqs[i].Input = json.RawMessage(in)
	}
	made, err := s.EnqueueRollouts(tb.Context(), reqs)
	if err != nil {
		tb.Fatal(err)
	}
	return made
}

// dequeue claims one rollout, waiting for it for as long as given.
func dequeue(tb testing.TB, s store.Store, wait time.Duration) []agl.AttemptedRollout {
	tb.Helper()
	got, err := s.DequeueRollouts(tb.Context(), store.DequeueRequest{Limit: 1, Wait: wait})
	if err != nil {
		tb.Fatal(err)
	}
	return got
}
