package storehttp_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/storehttp"
)

// plainSigner makes tokens that can be read.
type plainSigner struct{ now time.Time }

func (s plainSigner) Issue(at store.Attempted, expires time.Time) string {
	return at.RolloutID + " " + at.AttemptID + " " + expires.Sub(s.now).Round(time.Minute).String()
}

func (s plainSigner) IssueReader(expires time.Time) string {
	return "reader " + expires.Sub(s.now).Round(time.Minute).String()
}

func TestReaderToken(t *testing.T) {
	t.Parallel()
	s := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() { _ = s.Close() })
	handler := storehttp.NewHandler(s, storehttp.Config{Tokens: plainSigner{time.Now()}})
	url := serve(t, handler, "").URL
	c := newClient(t, url, storehttp.WithToken("secret"))
	for lifetime, want := range map[time.Duration]string{0: "reader 24h0m0s", time.Hour: "reader 1h0m0s"} {
		if got, err := c.ReaderToken(t.Context(), lifetime); err != nil || got != want {
			t.Errorf("ReaderToken(%v) = %q, %v, want %q", lifetime, got, err, want)
		}
	}
	if got, err := newClient(t, url).ReaderToken(t.Context(), 0); got != "" || err != nil {
		t.Errorf("ReaderToken of a client without a token = %q, %v, want none", got, err)
	}
	python := newClient(t, serve(t, pythonLike(handler), "").URL, storehttp.WithToken("secret"))
	if got, err := python.ReaderToken(t.Context(), 0); got != "" || err != nil {
		t.Errorf("ReaderToken of a server that has no such route = %q, %v, want none", got, err)
	}
}

func TestAttemptToken(t *testing.T) {
	t.Parallel()
	s := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() { _ = s.Close() })
	handler := storehttp.NewHandler(s, storehttp.Config{Tokens: plainSigner{time.Now()}})
	r, err := s.StartRollout(t.Context(), store.StartRequest{})
	if err != nil {
		t.Fatal(err)
	}
	at := store.Attempted{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID}
	url := serve(t, handler, "").URL
	c := newClient(t, url, storehttp.WithToken("secret"))
	for lifetime, want := range map[time.Duration]string{0: "24h0m0s", time.Hour: "1h0m0s", 10000 * time.Hour: "720h0m0s"} {
		got, err := c.AttemptToken(t.Context(), at, lifetime)
		if err != nil || got != at.RolloutID+" "+at.AttemptID+" "+want {
			t.Errorf("AttemptToken(%v) = %q, %v, want one that lives %s", lifetime, got, err, want)
		}
	}
	if _, err := c.AttemptToken(t.Context(), store.Attempted{RolloutID: r.RolloutID, AttemptID: "at-x"}, 0); !errors.Is(err, store.ErrNotFound) || !strings.Contains(err.Error(), "at-x") {
		t.Errorf("AttemptToken of an unknown attempt = %v, want %v and the id", err, store.ErrNotFound)
	}
	if got, err := newClient(t, url).AttemptToken(t.Context(), at, 0); got != "" || err != nil {
		t.Errorf("AttemptToken of a client without a token = %q, %v, want none", got, err)
	}
	old := serve(t, pythonLike(handler), "")
	python := newClient(t, old.URL, storehttp.WithToken("secret"))
	if got, err := python.AttemptToken(t.Context(), at, 0); got != "" || err != nil {
		t.Errorf("AttemptToken of a server that has no such route = %q, %v, want none", got, err)
	}
}

func TestTokensDifferWithoutASigner(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	r, err := b.store.StartRollout(t.Context(), store.StartRequest{})
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, b.server.URL, storehttp.WithToken("x"))
	at := store.Attempted{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID}
	one, err1 := c.AttemptToken(t.Context(), at, 0)
	two, err2 := c.AttemptToken(t.Context(), at, 0)
	if err := errors.Join(err1, err2); err != nil || one == two || len(one) < 20 {
		t.Errorf("tokens = %q, %q, %v, want two that nobody guesses", one, two, err)
	}
}

func TestTokenInTheAddress(t *testing.T) {
	t.Parallel()
	var got string
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("{}"))
	}), "")
	c := newClient(t, strings.Replace(server.URL, "//", "//agl:se%2Fcret@", 1)+"/v1/agl/")
	if err := c.Health(t.Context()); err != nil || got != "Bearer se/cret" || c.URL() != server.URL {
		t.Errorf("Health = %v with Authorization %q at %s, want the token of the address at %s", err, got, c.URL(), server.URL)
	}
	c = newClient(t, strings.Replace(server.URL, "//", "//agl:other@", 1), storehttp.WithToken("option"))
	if err := c.Health(t.Context()); err != nil || got != "Bearer option" {
		t.Errorf("Health = %v with Authorization %q, want the token of the option", err, got)
	}
}
