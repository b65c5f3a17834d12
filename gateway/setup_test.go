package gateway_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"agentlightning/gateway"
	"agentlightning/internal/daemon"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// server is an assembled server until the test ends.
type server struct {
	url    string
	store  store.Store
	client *gateway.Client
}

func serve(t *testing.T, c daemon.Config) *server {
	t.Helper()
	if c.Store == nil {
		c.Store = engine.New(memory.New(), engine.Config{})
	}
	s, err := daemon.Listen(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
		if err := c.Store.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	return &server{s.URL(), c.Store, &gateway.Client{BaseURL: s.URL(), Token: c.AuthToken, HTTP: &http.Client{Transport: transport}}}
}

// send makes a request of a client that follows no redirects.
func (s *server) send(t *testing.T, method, path, body string, header map[string]string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	res, err := s.client.HTTP.Transport.RoundTrip(req)
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

// upstream is a model server with a script.
type upstream struct {
	url string

	mu    sync.Mutex
	asked []asked
}

// asked is one request to the model server.
type asked struct{ Path, Body, Authorization string }

func newUpstream(t *testing.T, serve http.HandlerFunc) *upstream {
	t.Helper()
	u := &upstream{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the proxy went away
		}
		u.mu.Lock()
		u.asked = append(u.asked, asked{r.URL.Path, string(body), r.Header.Get("Authorization")})
		u.mu.Unlock()
		serve(w, r)
	}))
	t.Cleanup(s.Close)
	u.url = s.URL
	return u
}

// take returns what was asked since it was called last.
func (u *upstream) take() []asked {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := u.asked
	u.asked = nil
	return out
}
