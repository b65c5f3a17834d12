package llmproxy

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"agentlightning/store"
)

// splitPath takes the attempt and an optional /v1 off a path. The attempt is
// nil when the path names none. Ids are decoded, so that one may hold a slash.
func splitPath(u *url.URL) (at *store.Attempted, rest string, err error) {
	rest = u.EscapedPath()
	if under, ok := strings.CutPrefix(rest, "/rollout/"); ok {
		rolloutID, after, ok1 := strings.Cut(under, "/attempt/")
		attemptID, tail, _ := strings.Cut(after, "/")
		if !ok1 || rolloutID == "" || attemptID == "" || strings.Contains(rolloutID, "/") {
			return nil, "", fmt.Errorf("path %q does not name an attempt; it should begin /rollout/ROLLOUT/attempt/ATTEMPT", u.Path)
		}
		at = &store.Attempted{}
		if at.RolloutID, err = url.PathUnescape(rolloutID); err != nil {
			return nil, "", fmt.Errorf("path %q: %w", u.Path, err)
		}
		if at.AttemptID, err = url.PathUnescape(attemptID); err != nil {
			return nil, "", fmt.Errorf("path %q: %w", u.Path, err)
		}
		rest = "/" + tail
	}
	// Base URLs are written with and without a slash at the end.
	rest = "/" + strings.Trim(rest, "/")
	if after, ok := strings.CutPrefix(rest, "/v1/"); ok {
		rest = "/" + strings.TrimLeft(after, "/")
	}
	return at, rest, nil
}

// AttemptOf returns the attempt that a request to the proxy names, in its path
// or in headers; named is false when there is none.
func AttemptOf(r *http.Request) (at store.Attempted, named bool) {
	found, _, err := splitPath(r.URL)
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
	at, rest, err := splitPath(u)
	switch {
	case err != nil:
		return "/rollout/{other}"
	case strings.HasPrefix(rest, "/models/"):
		rest = "/models/{model}"
	case dialectOf(rest) == nil && rest != "/models":
		rest = "/{other}"
	}
	if at != nil {
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
