package llmproxy

import (
	"net/url"
	"testing"

	"agentlightning/store"
)

func TestSplitPath(t *testing.T) {
	t.Parallel()
	at := &store.Attempted{RolloutID: "r", AttemptID: "a"}
	tests := []struct {
		path string
		at   *store.Attempted
		rest string
	}{
		{"/v1/chat/completions", nil, "/chat/completions"},
		{"/chat/completions", nil, "/chat/completions"},
		{"//v1//chat/completions/", nil, "/chat/completions"},
		{"/rollout/r/attempt/a/v1/chat/completions", at, "/chat/completions"},
		{"/rollout/r/attempt/a//chat/completions", at, "/chat/completions"},
		{"/rollout/r/attempt/a", at, "/"},
		{"/rollout/r/attempt/a/", at, "/"},
		{"/rollout/r/attempt/a/v1/models", at, "/models"},
		{"/rollout/a%2Fb%20c/attempt/%C3%A9/v1/models", &store.Attempted{RolloutID: "a/b c", AttemptID: "é"}, "/models"},
		{"/v1", nil, "/v1"},
	}
	for _, tt := range tests {
		u, err := url.Parse(tt.path)
		if err != nil {
			t.Fatal(err)
		}
		got, rest, err := splitPath(u)
		if err != nil || rest != tt.rest || (got == nil) != (tt.at == nil) || got != nil && *got != *tt.at {
			t.Errorf("splitPath(%s) = %v, %q, %v, want %v, %q", tt.path, got, rest, err, tt.at, tt.rest)
		}
	}
	for _, path := range []string{"/rollout/r", "/rollout//attempt/a/v1/models", "/rollout/r/attempt//v1/models", "/rollout/r/x/attempt/a/v1/models"} {
		if got, _, err := splitPath(&url.URL{Path: path}); err == nil {
			t.Errorf("splitPath(%s) = %v, want an error", path, got)
		}
	}
}

func TestRolloutCacheIsBounded(t *testing.T) {
	t.Parallel()
	r := newRollouts(nil)
	kept := r.add("kept")
	for i := range 3 * maxRollouts {
		r.add(string(rune(i)) + "x")
		if i%1000 == 0 && r.get("kept") != kept {
			t.Fatalf("a rollout in use was forgotten after %d others", i)
		}
	}
	if n := len(r.young) + len(r.old); n > 2*maxRollouts {
		t.Errorf("%d rollouts are held, want at most %d", n, 2*maxRollouts)
	}
}
