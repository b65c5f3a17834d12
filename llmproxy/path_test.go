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
		path  string
		at    *store.Attempted
		rest  string
		agent string
	}{
		{"/v1/chat/completions", nil, "/chat/completions", ""},
		{"/chat/completions", nil, "/chat/completions", ""},
		{"//v1//chat/completions/", nil, "/chat/completions", ""},
		{"/rollout/r/attempt/a/v1/chat/completions", at, "/chat/completions", ""},
		{"/rollout/r/attempt/a//chat/completions", at, "/chat/completions", ""},
		{"/rollout/r/attempt/a", at, "/", ""},
		{"/rollout/r/attempt/a/", at, "/", ""},
		{"/rollout/r/attempt/a/v1/models", at, "/models", ""},
		{"/rollout/a%2Fb%20c/attempt/%C3%A9/v1/models", &store.Attempted{RolloutID: "a/b c", AttemptID: "é"}, "/models", ""},
		{"/rollout/r/attempt/a/agent/the%20planner/v1/models", at, "/models", "the planner"},
		{"/rollout/r/attempt/a/agent/x", at, "/", "x"},
		{"/rollout/r/attempt/a/agents/v1/models", at, "/agents/v1/models", ""},
		{"/v1", nil, "/v1", ""},
	}
	for _, tt := range tests {
		u, err := url.Parse(tt.path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := splitPath(u)
		if err != nil || got.route != tt.rest || got.agent != tt.agent || (got.at == nil) != (tt.at == nil) || got.at != nil && *got.at != *tt.at {
			t.Errorf("splitPath(%s) = %+v, %v, want %v, %q, %q", tt.path, got, err, tt.at, tt.rest, tt.agent)
		}
	}
	for _, path := range []string{"/rollout/r", "/rollout//attempt/a/v1/models", "/rollout/r/attempt//v1/models", "/rollout/r/x/attempt/a/v1/models"} {
		if got, err := splitPath(&url.URL{Path: path}); err == nil {
			t.Errorf("splitPath(%s) = %v, want an error", path, got)
		}
	}
}

// FuzzSplitPath puts ids into a path in the way of clients and wants them back.
func FuzzSplitPath(f *testing.F) {
	f.Add("ro-1", "at-1", "planner", "/v1/chat/completions")
	f.Add("a/b c", "é", "", "/v1")
	f.Add("%2F", "..", "x?y#z", "//")
	f.Fuzz(func(t *testing.T, rollout, attempt, agent, tail string) {
		path := "/rollout/" + url.PathEscape(rollout) + "/attempt/" + url.PathEscape(attempt)
		if agent != "" {
			path += "/agent/" + url.PathEscape(agent)
		}
		u, err := url.Parse(path + "/v1/models")
		if err != nil || rollout == "" || attempt == "" {
			return
		}
		p, err := splitPath(u)
		if err != nil || p.at == nil || p.at.RolloutID != rollout || p.at.AttemptID != attempt || p.agent != agent || p.route != "/models" {
			t.Errorf("splitPath(%s) = %+v, %v", u, p, err)
		}
		if u, err = url.Parse(path + tail); err == nil {
			if p, err := splitPath(u); err == nil && p.route == "" {
				t.Errorf("splitPath(%s) has no route", u)
			}
			_ = Template(u)
		}
	})
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
