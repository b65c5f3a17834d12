package gateway

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"agentlightning/store"
)

// params are what a path names.
type params struct{ rollout, attempt, mode, upstream string }

type serveFunc func(*handler, http.ResponseWriter, *http.Request, params)

// route is one path of the protocol. Parameters are in braces; {upstream_path}
// takes the rest of the path, the others no slash.
type route struct {
	path    string
	parts   []string
	methods map[string]serveFunc
	allow   string
}

// routes are all paths, the more particular ones first.
var routes = makeRoutes()

func makeRoutes() []*route {
	type methods = map[string]serveFunc
	const get, post, put, patch, remove = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete
	list := []*route{
		{path: "/healthz", methods: methods{get: (*handler).health}},
		{path: "/api/rollouts", methods: methods{post: (*handler).createRollouts, get: (*handler).listRollouts}},
		{path: "/api/rollouts/terminal", methods: methods{
			get: (*handler).terminalRollouts, patch: (*handler).patchRollout, remove: (*handler).deleteRollout,
		}},
		{path: "/api/rollouts/{rollout_id}", methods: methods{
			get: (*handler).oneRollout, patch: (*handler).patchRollout, remove: (*handler).deleteRollout,
		}},
		{path: "/api/rollouts/{rollout_id}/events", methods: methods{get: (*handler).listEvents}},
		{path: "/api/rollouts/{rollout_id}/attempt/{attempt_id}/events", methods: methods{post: (*handler).postEvent}},
		{path: "/api/models", methods: methods{
			post: (*handler).putModels, remove: (*handler).deleteModels, get: (*handler).listModels, put: (*handler).putModels,
		}},
		{path: "/proxy/pause", methods: methods{post: (*handler).pause}},
		{path: "/proxy/resume", methods: methods{post: (*handler).resume}},
		{path: "/proxy/state", methods: methods{get: (*handler).pauseState}},
		{
			path:    "/proxy/rollout/{rollout_id}/attempt/{attempt_id}/mode/{mode}/openai/v1/{upstream_path}",
			methods: methods{post: (*handler).call},
		},
	}
	for _, r := range list {
		r.parts = strings.Split(r.path, "/")
		r.allow = strings.Join(slices.Sorted(maps.Keys(r.methods)), ", ")
	}
	return list
}

const terminal = "terminal"

// find returns the route of an escaped path, nil when there is none.
func find(path string) (*route, params) {
	parts := strings.Split(path, "/")
	for _, r := range routes {
		if p, ok := r.match(parts); ok {
			return r, p
		}
	}
	return nil, params{}
}

func (r *route) match(path []string) (p params, ok bool) {
	const rest = "{upstream_path}"
	if len(path) != len(r.parts) && (r.parts[len(r.parts)-1] != rest || len(path) < len(r.parts)) {
		return p, false
	}
	for i, part := range r.parts {
		if part == rest {
			p.upstream, ok = unescape(strings.Join(path[i:], "/"))
			return p, ok
		}
		if !strings.HasPrefix(part, "{") {
			if part != path[i] {
				return p, false
			}
			if part == terminal { // which a rollout may be called
				p.rollout = part
			}
			continue
		}
		value, ok := unescape(path[i])
		if !ok || value == "" {
			return p, false
		}
		switch part {
		case "{rollout_id}":
			p.rollout = value
		case "{attempt_id}":
			p.attempt = value
		case "{mode}":
			p.mode = value
		}
	}
	return p, true
}

func unescape(part string) (string, bool) {
	s, err := url.PathUnescape(part)
	return s, err == nil
}

// withoutSlash returns where a path with a slash too many leads.
func withoutSlash(u *url.URL) (string, bool) {
	path, found := strings.CutSuffix(u.EscapedPath(), "/")
	if !found {
		return "", false
	}
	if r, _ := find(path); r == nil {
		return "", false
	}
	if u.RawQuery != "" {
		path += "?" + u.RawQuery
	}
	return path, true
}

// Template names the path of a request, with ids replaced by what they are;
// empty when the protocol has no such path or does not serve it with the method.
func Template(method string, u *url.URL) string {
	r, _ := find(u.EscapedPath())
	if r == nil || r.methods[method] == nil {
		return ""
	}
	return r.path
}

// AttemptOf returns the attempt to which a request belongs that an agent makes:
// a model call, or an event that it posts.
func AttemptOf(r *http.Request) (at store.Attempted, named bool) {
	found, p := find(r.URL.EscapedPath())
	if found == nil || p.attempt == "" || found.methods[r.Method] == nil {
		return at, false
	}
	return store.Attempted{RolloutID: p.rollout, AttemptID: p.attempt}, true
}

// Routes lists the methods and paths of the protocol.
func Routes() []string {
	var out []string
	for _, r := range routes {
		for _, m := range slices.Sorted(maps.Keys(r.methods)) {
			out = append(out, m+" "+r.path)
		}
	}
	return out
}
