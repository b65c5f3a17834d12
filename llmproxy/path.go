package llmproxy

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"agentlightning/store"
)

// place is what a path says.
type place struct {
	at    *store.Attempted // nil when it names none
	agent string           // empty when it names none
	route string           // below /v1
}

// splitPath takes the attempt, the agent and an optional /v1 off a path. Ids are
// decoded, so that one may hold a slash.
func splitPath(u *url.URL) (p place, err error) {
	rest := u.EscapedPath()
	if under, ok := strings.CutPrefix(rest, "/rollout/"); ok {
		rolloutID, after, ok1 := strings.Cut(under, "/attempt/")
		attemptID, tail, _ := strings.Cut(after, "/")
		if !ok1 || rolloutID == "" || attemptID == "" || strings.Contains(rolloutID, "/") {
			return place{}, fmt.Errorf("path %q does not name an attempt; it should begin /rollout/ROLLOUT/attempt/ATTEMPT", u.Path)
		}
		agent := ""
		if named, ok := strings.CutPrefix(tail, "agent/"); ok {
			agent, tail, _ = strings.Cut(named, "/")
		}
		p.at = &store.Attempted{}
		for _, part := range []struct {
			to      *string
			escaped string
		}{{&p.at.RolloutID, rolloutID}, {&p.at.AttemptID, attemptID}, {&p.agent, agent}} {
			if *part.to, err = url.PathUnescape(part.escaped); err != nil {
				return place{}, fmt.Errorf("path %q: %w", u.Path, err)
			}
		}
		rest = "/" + tail
	}
	// Base URLs are written with and without a slash at the end.
	p.route = "/" + strings.Trim(rest, "/")
	if after, ok := strings.CutPrefix(p.route, "/v1/"); ok {
		p.route = "/" + strings.TrimLeft(after, "/")
	}
	return p, nil
}

// AttemptOf returns the attempt that a request to the proxy names, in its path
// or in headers; named is false when there is none.
func AttemptOf(r *http.Request) (at store.Attempted, named bool) {
	p, err := splitPath(r.URL)
	found := p.at
	if err == nil && found == nil {
		found = attemptInHeaders(r.Header)
	}
	if err != nil || found == nil {
		return at, false
	}
	return *found, true
}

// Template names a path of the proxy, with ids replaced by what they are.
func Template(u *url.URL) string {
	p, err := splitPath(u)
	rest := p.route
	switch {
	case err != nil:
		return "/rollout/{other}"
	case strings.HasPrefix(rest, "/models/"):
		rest = "/models/{model}"
	case dialectOf(rest) == nil && rest != "/models":
		rest = "/{other}"
	}
	if p.at != nil {
		return "/rollout/{rollout_id}/attempt/{attempt_id}/v1" + rest
	}
	return "/v1" + rest
}

// attemptInHeaders returns the attempt that a caller names in headers, as those
// do that cannot change the path; nil when it names none. A path that names an
// attempt takes precedence.
func attemptInHeaders(h http.Header) *store.Attempted {
	at := store.Attempted{RolloutID: h.Get("X-Rollout-Id"), AttemptID: h.Get("X-Attempt-Id")}
	if at.RolloutID == "" || at.AttemptID == "" {
		return nil
	}
	return &at
}
