package llmproxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	agl "agentlightning"
	"agentlightning/llm/openai"
	"agentlightning/store"
)

// Proxy is the handler. It starts no goroutine that outlives a request, so
// that shutting down the HTTP server ends it; [Proxy.Close] then gives back the
// idle connections.
type Proxy struct {
	cfg      Config
	models   *models
	rollouts *rollouts
	metrics  *metrics
	lacks    *lacking
	privacy  privacy
	journal  journal

	transport *transport // of our own, nil when the configuration has one
}

// New returns a proxy. It connects to nothing before the first call.
func New(cfg Config) (*Proxy, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	var own *transport
	if cfg.Transport == nil {
		own = newTransport(cfg.UpstreamConnectTimeout)
		cfg.Transport = own
	}
	backends := newModels(cfg)
	m, err := newMetrics(cfg.Metrics, backends)
	if err != nil {
		return nil, fmt.Errorf("llmproxy: %w", err)
	}
	p := &Proxy{
		cfg:      cfg,
		models:   backends,
		rollouts: newRollouts(cfg.Attempts),
		metrics:  m,
		lacks:    newLacking(cfg.Now),
		privacy:  privacy{noBodies: cfg.NoBodies, rules: cfg.Redact},

		transport: own,
	}
	cfg.Gate.watch(p.gateChanged)
	return p, nil
}

// Gate is what pauses the calls.
func (p *Proxy) Gate() *Gate { return p.cfg.Gate }

// Refresh reads the models anew, so that a change is seen by the next call.
func (p *Proxy) Refresh(ctx context.Context) error { return p.models.refresh(ctx) }

// Static lists the backends that the proxy was configured with and has not
// forgotten.
func (p *Proxy) Static() []agl.Model { return p.models.fixed() }

// Forget drops the static backends for which gone returns true, until the next
// proxy is made, and reads the others anew, as one change.
func (p *Proxy) Forget(ctx context.Context, gone func(agl.Model) bool) error {
	return p.models.forget(ctx, gone)
}

// Close gives back idle connections. Call it once no request is open.
func (p *Proxy) Close() error {
	if p.transport != nil {
		p.transport.close()
	}
	return nil
}

// ServeHTTP implements [http.Handler].
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	where, err := splitPath(r.URL)
	at, rest := where.at, where.route
	if err != nil {
		plainDialect(r).writeError(w, http.StatusNotFound, &openai.Error{Message: err.Error(), Type: openai.TypeInvalidRequest})
		return
	}
	d := dialectOf(rest)
	switch {
	case d != nil:
		if allow(w, r, d, http.MethodPost) {
			if at == nil {
				at = attemptInHeaders(r.Header)
			}
			p.serveCall(w, r, d, at, where.agent)
		}
	case rest == "/models":
		if d = plainDialect(r); allow(w, r, d, http.MethodGet, http.MethodHead) {
			p.serveModels(w, r, d, at)
		}
	case strings.HasPrefix(rest, "/models/"):
		if d = plainDialect(r); allow(w, r, d, http.MethodGet, http.MethodHead) {
			p.serveModel(w, r, d, at, strings.TrimPrefix(rest, "/models/"))
		}
	default:
		plainDialect(r).writeError(w, http.StatusNotFound, &openai.Error{
			Message: fmt.Sprintf("the proxy does not serve %s; it serves %s", r.URL.Path, servedRoutes()),
			Type:    openai.TypeInvalidRequest, Code: "not_found",
		})
	}
}

func allow(w http.ResponseWriter, r *http.Request, d *dialect, methods ...string) bool {
	if slices.Contains(methods, r.Method) {
		return true
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	d.writeError(w, http.StatusMethodNotAllowed, &openai.Error{
		Message: fmt.Sprintf("%s does not take %s, use %s", r.URL.Path, r.Method, methods[0]),
		Type:    openai.TypeInvalidRequest,
	})
	return false
}

// findAttempt answers a call whose attempt does not exist or cannot be looked
// up, and returns nil then.
func (p *Proxy) findAttempt(w http.ResponseWriter, r *http.Request, d *dialect, at store.Attempted) *rollout {
	ro, err := p.rollouts.find(r.Context(), at)
	switch {
	case err == nil:
		return ro
	case errors.Is(err, store.ErrNotFound):
		d.writeError(w, http.StatusNotFound, &openai.Error{Message: err.Error(), Type: openai.TypeInvalidRequest, Code: "attempt_not_found"})
	case r.Context().Err() != nil && !errors.Is(context.Cause(r.Context()), store.ErrClosed): // nobody is there to read an answer
	default:
		p.cfg.Logger.ErrorContext(r.Context(), "cannot look up attempt",
			"rollout_id", at.RolloutID, "attempt_id", at.AttemptID, "err", err)
		d.writeError(w, http.StatusServiceUnavailable, &openai.Error{
			Message: fmt.Sprintf("the store cannot be asked for attempt %q of rollout %q; try again", at.AttemptID, at.RolloutID),
			Type:    openai.TypeServer,
		})
	}
	return nil
}

// noModels logs why the models cannot be listed, and returns what callers are
// told of it, with the status 503.
func (p *Proxy) noModels(ctx context.Context, err error) *openai.Error {
	p.cfg.Logger.ErrorContext(ctx, "cannot list models", "err", err)
	return &openai.Error{Message: "the list of models cannot be read from the store; try again", Type: openai.TypeServer}
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the caller is gone if this fails, and nothing is left to be told
}
