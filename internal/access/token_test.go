package access_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"agentlightning/internal/access"
	"agentlightning/store"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	s := access.NewSigner("server", []byte("secret"))
	for _, at := range []store.Attempted{
		{RolloutID: "ro-1", AttemptID: "at-1"},
		{RolloutID: "", AttemptID: ""},
		{RolloutID: "ro/ä\x00", AttemptID: strings.Repeat("x", 300)},
		{RolloutID: strings.Repeat("y", 300), AttemptID: "z"},
	} {
		token := s.Issue(at, now.Add(time.Minute))
		if got, err := s.Open(token, now); err != nil || got != at {
			t.Errorf("Open(Issue(%q)) = %q, %v", at, got, err)
		}
		if _, err := s.Open(token, now.Add(time.Minute)); !errors.Is(err, access.ErrExpired) {
			t.Errorf("Open at the moment of expiry = %v, want %v", err, access.ErrExpired)
		}
		for name, other := range map[string]*access.Signer{
			"another server token": access.NewSigner("servers", []byte("secret")),
			"another secret":       access.NewSigner("server", []byte("secret2")),
		} {
			if _, err := other.Open(token, now); !errors.Is(err, access.ErrUnknown) {
				t.Errorf("Open with %s = %v, want %v", name, err, access.ErrUnknown)
			}
		}
	}
	// Ids cannot be shifted into one another.
	a := s.Issue(store.Attempted{RolloutID: "ab", AttemptID: "c"}, now)
	b := s.Issue(store.Attempted{RolloutID: "a", AttemptID: "bc"}, now)
	if a == b {
		t.Error("two attempts have one token")
	}
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	s := access.NewSigner("server", []byte("secret"))
	g := access.NewGuard("server", s)
	at := store.Attempted{RolloutID: "r", AttemptID: "a"}
	good, old := s.Issue(at, now.Add(time.Hour)), s.Issue(at, now.Add(-time.Hour))
	for _, tt := range []struct {
		name     string
		tokens   []string
		ok, full bool
		err      error
	}{
		{"server", []string{"server"}, true, true, nil},
		{"attempt", []string{good}, true, false, nil},
		{"one of two", []string{"x", good}, true, false, nil},
		{"the server's counts more", []string{good, "server"}, true, true, nil},
		{"none", nil, false, false, nil},
		{"wrong", []string{"x"}, false, false, access.ErrUnknown},
		{"expired", []string{old}, false, false, access.ErrExpired},
		{"expired beside a wrong one", []string{old, "x"}, false, false, access.ErrExpired},
	} {
		grant, ok, err := g.Admit(tt.tokens, now)
		if ok != tt.ok || !errors.Is(err, tt.err) || ok && (grant.Attempt == nil) != tt.full {
			t.Errorf("%s: Admit = %+v, %v, %v, want %v, %v", tt.name, grant, ok, err, tt.ok, tt.err)
		}
		if ok && !tt.full && *grant.Attempt != at {
			t.Errorf("%s: Admit is for %v, want %v", tt.name, *grant.Attempt, at)
		}
	}
}

// FuzzOpen: nothing but what was issued opens anything, and nothing breaks.
func FuzzOpen(f *testing.F) {
	now := time.Unix(1_700_000_000, 0)
	s := access.NewSigner("server", []byte("secret"))
	good := s.Issue(store.Attempted{RolloutID: "ro-1", AttemptID: "at-1"}, now.Add(time.Hour))
	for _, seed := range []string{good, good[:20], good[:40] + "\n" + good[40:], good + "A", "", "agl-attempt.", "agl-attempt.AAAA", strings.ToUpper(good)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		if _, err := s.Open(token, now); err == nil && token != good {
			t.Errorf("Open(%q) succeeds", token)
		}
	})
}

// FuzzPresented reads header fields as they come: no token is made of nothing,
// and what clients send is found again.
func FuzzPresented(f *testing.F) {
	for _, seed := range []string{"Bearer secret", "bearer  x", "Basic YWdsOnNlY3JldA==", "Basic YWdsOg==", "Basic !", "Bearer", "", "Digest a:b"} {
		f.Add(seed, "")
		f.Add(seed, "key")
	}
	signer := access.NewSigner("server token", []byte("secret"))
	guard := access.NewGuard("server token", signer)
	f.Fuzz(func(t *testing.T, authorization, apiKey string) {
		tokens := access.Presented(authorization, apiKey)
		if apiKey != "" && (len(tokens) == 0 || tokens[len(tokens)-1] != apiKey) {
			t.Errorf("Presented(%q, %q) = %q", authorization, apiKey, tokens)
		}
		full := false
		for _, token := range tokens {
			full = full || token == "server token"
		}
		if _, ok, _ := guard.Admit(tokens, time.Unix(0, 0)); ok != full {
			t.Errorf("%q, %q: admitted %t, want %t", authorization, apiKey, ok, full)
		}
	})
}

func TestReaders(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	s := access.NewSigner("server", []byte("secret"))
	g := access.NewGuard("server", s)
	token := s.IssueReader(now.Add(time.Minute))
	if grant, ok, err := g.Admit([]string{"x", token}, now); err != nil || !ok || !grant.Reader || grant.Attempt != nil {
		t.Errorf("Admit = %+v, %v, %v, want a reader", grant, ok, err)
	}
	if _, ok, err := g.Admit([]string{token}, now.Add(time.Minute)); ok || !errors.Is(err, access.ErrExpired) {
		t.Errorf("Admit at the moment of expiry = %v, %v, want %v", ok, err, access.ErrExpired)
	}
	// No token is one of the other kind, nor of another server.
	attempt := s.Issue(store.Attempted{RolloutID: "r", AttemptID: "a"}, now.Add(time.Minute))
	for name, bad := range map[string]string{
		"an attempt's under another name": "agl-reader." + strings.TrimPrefix(attempt, "agl-attempt."),
		"a part":                          token[:len(token)-2],
		"with a line break":               token[:20] + "\n" + token[20:],
		"of another server":               access.NewSigner("other", []byte("secret")).IssueReader(now.Add(time.Minute)),
	} {
		if err := s.OpenReader(bad, now); !errors.Is(err, access.ErrUnknown) {
			t.Errorf("%s: OpenReader = %v, want %v", name, err, access.ErrUnknown)
		}
	}
	if _, err := s.Open("agl-attempt."+strings.TrimPrefix(token, "agl-reader."), now); !errors.Is(err, access.ErrUnknown) {
		t.Errorf("Open of a reader's = %v, want %v", err, access.ErrUnknown)
	}
}
