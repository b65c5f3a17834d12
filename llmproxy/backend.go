package llmproxy

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	agl "agentlightning"
	"agentlightning/llm/openai"
)

// backend is one server of a model.
type backend struct {
	agl.Model
	kind agl.BackendKind
	base string // URL that routes are put behind
	key  string // sent in the way of the kind; empty for none
	lost string // why there is no key although there should be
	*health
}

// health is what was seen of a backend. It outlives changes to the list that
// do not remove the backend.
type health struct {
	load    atomic.Int64            // calls that it has, those that wait for it too
	share   float64                 // new rollouts so far over the weight; guarded by the group's lock
	resting atomic.Int64            // until when it is avoided, Unix nanoseconds
	refuses atomic.Pointer[refusal] // fields that it does not accept
	accepts atomic.Bool             // it has served a call with all fields
	warned  atomic.Bool             // that it returns no token ids
	limits  limiter
	traffic traffic
	held    atomic.Pointer[hold] // by somebody who paused it; nil when calls may go there
}

// refusal is what a backend was seen not to accept, as long as that holds.
type refusal struct {
	fields []string
	until  time.Time
}

func newBackend(m agl.Model, environ func(string) string) *backend {
	b := &backend{Model: m, kind: m.Speaks(), base: strings.TrimRight(m.Endpoint, "/"), key: m.APIKey}
	switch {
	case m.APIKeyEnv != "":
		if b.key = environ(m.APIKeyEnv); b.key == "" {
			b.lost = "the server's environment has no " + m.APIKeyEnv + ", which is to hold its key; set it and start the server again"
		}
	case m.KeyGiven && m.APIKey == "":
		b.lost = "its key was given to a server that has been started anew since, and keys are not stored; register the backend again, or name a variable with api_key_env"
	}
	if u, err := url.Parse(b.base); err == nil && u.Path == "" && b.kind == agl.BackendAnthropic {
		b.base += "/v1" // Anthropic writes base URLs without
	}
	return b
}

// target is the name by which the backend knows the model.
func (b *backend) target() string {
	if b.Target != "" {
		return b.Target
	}
	return b.Name
}

// weight is the share of new rollouts that the backend takes.
func (b *backend) weight() int64 { return max(b.Weight, 1) }

// url returns where a route is. Route and address may each have a query.
func (b *backend) url(route string) string {
	at, query, _ := strings.Cut(b.base, "?")
	path, more, _ := strings.Cut(route, "?")
	queries := []string{query, more}
	if b.kind == agl.BackendAzure {
		// Azure has the model in the path, unless the address is one of its newer
		// kind, or names the deployment already.
		if !strings.Contains(at, "/openai/deployments/") && !strings.HasSuffix(at, "/openai/v1") {
			at += "/openai/deployments/" + url.PathEscape(b.target())
		}
		if b.APIVersion != "" {
			queries = append(queries, "api-version="+url.QueryEscape(b.APIVersion))
		}
	}
	at = strings.TrimRight(at, "/") + path
	if query = strings.Join(slices.DeleteFunc(queries, func(q string) bool { return q == "" }), "&"); query != "" {
		at += "?" + query
	}
	return at
}

// authorize puts the key where backends of the kind look for it.
func (b *backend) authorize(h http.Header) {
	switch b.kind {
	case agl.BackendAzure:
		if b.key != "" {
			h.Set("Api-Key", b.key)
		}
	case agl.BackendAnthropic:
		if b.key != "" {
			h.Set("X-Api-Key", b.key)
		}
		if h.Get("Anthropic-Version") == "" {
			h.Set("Anthropic-Version", "2023-06-01")
		}
	default:
		if b.key != "" {
			h.Set("Authorization", "Bearer "+b.key)
		}
	}
}

// spared returns the fields that the backend is not asked with.
func (b *backend) spared(now time.Time) []string {
	var fields []string
	if k := b.kind; k == agl.BackendOpenAI || k == agl.BackendAzure || k == agl.BackendAnthropic {
		fields = []string{openai.FieldTokenIDs} // they refuse what they do not know
	}
	if r := b.refuses.Load(); r != nil && now.Before(r.until) {
		fields = slices.Concat(fields, r.fields)
	}
	return fields
}

// refused remembers fields that the backend does not accept.
func (h *health) refused(fields []string, until time.Time) {
	h.refuses.Store(&refusal{fields, until})
}

// forget makes the backend prove anew what it accepts, as something else may
// answer at its address.
func (h *health) forget() {
	h.refuses.Store(nil)
	h.accepts.Store(false)
	h.warned.Store(false)
}

// down notes that the backend could not be reached.
func (b *backend) down() {
	b.resting.Store(time.Now().Add(rest).UnixNano())
	b.forget()
}

// noKey returns why the backend cannot be called, nil when it can.
func (b *backend) noKey() *openai.Error {
	if b.lost == "" {
		return nil
	}
	return &openai.Error{
		Message: "the backend of model \"" + b.Name + "\" at " + b.Endpoint + " cannot be called: " + b.lost,
		Type:    openai.TypeServer, Code: "backend_key_missing",
	}
}
