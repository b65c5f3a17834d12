package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	agl "agentlightning"
	"agentlightning/dashboard"
	"agentlightning/gateway"
	"agentlightning/internal/access"
	"agentlightning/internal/history"
	"agentlightning/internal/pruning"
	"agentlightning/internal/rescoring"
	"agentlightning/llmproxy"
	"agentlightning/otlp"
	"agentlightning/store"
	"agentlightning/store/observed"
	"agentlightning/storehttp"
)

// routed is every protocol over one store.
type routed struct {
	handler http.Handler
	traces  *otlp.Receiver
	history *history.History // filled while the server runs
	store   store.Store      // as callers of the protocol have it
	release func() error     // ends what the handler holds, once it is no longer used
	// arriving counts the requests whose body has not arrived to its end.
	arriving *atomic.Int64
}

// routes puts every protocol behind one handler. What no route matches is the
// dashboard's.
func routes(c Config, guard *access.Guard, signer *access.Signer) (*routed, error) {
	registry := c.Metrics.registry
	kept := observed.New(c.Store, c.Metrics.store)
	calls := c.Proxy
	calls.Sink, calls.Attempts, calls.Models = kept, kept, kept
	calls.Logger, calls.Metrics = c.Log("proxy"), registry
	proxy, err := llmproxy.New(calls)
	if err != nil {
		return nil, fmt.Errorf("model proxy: %w", err)
	}
	if q, ok := c.Store.(queued); ok {
		if err := registry.Register(queueMetrics{q}); err != nil {
			return nil, errors.Join(fmt.Errorf("metrics of the queue: %w", err), proxy.Close())
		}
	}
	shared := watched{kept, kept, kept, proxy}
	looked := storehttp.Config{Logger: c.Log("store"), Tokens: signer, PublicURL: c.PublicURL, Delete: kept.DeleteRollout, Version: c.Version, Checks: c.Checks}
	looked.Browser, _ = c.Store.(store.Browser)
	looked.Feed, _ = c.Store.(store.Feed)
	if q, ok := c.Store.(queued); ok {
		looked.Queue = func(ctx context.Context) (int, float64, error) {
			state, err := q.Queue(ctx)
			return state.Length, state.Waiting.Seconds(), err
		}
	}
	rescores := rescoring.New(rescoring.Config{Store: shared, Logger: c.Log("store")})
	release := func() error { return errors.Join(rescores.Close(), proxy.Close()) }
	if p, ok := c.Store.(store.Pruner); ok {
		prunings := pruning.New(pruning.Config{Store: p, Logger: c.Log("store")})
		release = func() error { return errors.Join(prunings.Close(), rescores.Close(), proxy.Close()) }
		looked.Pruner = prunings
	}
	looked.Rescorer = rescores
	past := newHistory(&c, proxy)
	looked.History, looked.Backends = past, backends{proxy: proxy, started: agl.Seconds(time.Now())}
	api := storehttp.NewHandler(access.Scoped(shared), looked)
	exports := otlp.Config{Logger: c.Log("otlp"), Permit: access.Permit}
	traces := otlp.NewHandler(kept, exports)
	controlled, err := gateway.NewHandler(gateway.Config{Store: kept, Proxy: proxy, Calls: *c.Calls, Logger: c.Log("gateway")})
	if err != nil {
		return nil, errors.Join(err, release())
	}
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	pages := dashboard.Handler()
	described, err := document()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("description of the interface: %w", err), release())
	}

	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch area(r.URL.Path) {
		case areaStore:
			api.ServeHTTP(w, r)
		case areaOTLP:
			traces.ServeHTTP(w, r)
		case areaProxy:
			proxy.ServeHTTP(w, r)
		case areaGateway:
			controlled.ServeHTTP(w, r)
		case areaMetrics:
			metrics.ServeHTTP(w, r)
		case areaDocument:
			described.ServeHTTP(w, r)
		default:
			pages.ServeHTTP(w, r)
		}
	})
	arriving := new(atomic.Int64)
	outer := storehttp.CORS(c.CORSOrigins, withLimits(withGuard(inner, guard), c.MaxBody, c.pace, arriving))
	return &routed{
		arriving: arriving,
		handler:  observe(outer, c.Metrics, namer(), c.pace, c.Log("http")),
		traces:   otlp.NewReceiver(kept, exports),
		history:  past,
		store:    shared,
		release:  release,
	}, nil
}

// watched is a store whose proxy learns of new model backends at once.
type watched struct {
	store.Store
	store.EncodedSpans
	store.Streams
	proxy *llmproxy.Proxy
}

func (w watched) PutModels(ctx context.Context, models []agl.Model) error {
	if err := w.Store.PutModels(ctx, models); err != nil {
		return err
	}
	return w.proxy.Refresh(ctx)
}

// ReplaceModels replaces those of the command line too, until the next start.
func (w watched) ReplaceModels(ctx context.Context, models []agl.Model) error {
	if err := w.Store.ReplaceModels(ctx, models); err != nil {
		return err
	}
	return w.proxy.Forget(ctx, func(m agl.Model) bool {
		return slices.ContainsFunc(models, func(o agl.Model) bool { return o.Name == m.Name })
	})
}

// DeleteModels forgets those of the command line too, until the next start.
func (w watched) DeleteModels(ctx context.Context, name string, endpoints ...string) error {
	if err := w.Store.DeleteModels(ctx, name, endpoints...); err != nil {
		return err
	}
	return w.proxy.Forget(ctx, func(m agl.Model) bool {
		return name == "" || m.Name == name && (len(endpoints) == 0 || slices.Contains(endpoints, m.Endpoint))
	})
}

// Models lists those of the command line first. One that was registered since
// with the same name and address is what holds.
func (w watched) Models(ctx context.Context) ([]agl.Model, error) {
	stored, err := w.Store.Models(ctx)
	if err != nil {
		return nil, err
	}
	fixed := slices.DeleteFunc(w.proxy.Static(), func(m agl.Model) bool {
		return slices.ContainsFunc(stored, func(o agl.Model) bool { return o.Name == m.Name && o.Endpoint == m.Endpoint })
	})
	for i := range fixed {
		fixed[i].KeyGiven = fixed[i].APIKey != ""
	}
	return append(fixed, stored...), nil
}

// What paths belong to.
const (
	areaPages   = ""
	areaStore   = "store"
	areaOTLP    = "otlp"
	areaProxy   = "proxy"
	areaGateway = "gateway"
	areaMetrics = "metrics"

	areaDocument = "openapi"
)

// area names what a path belongs to.
func area(path string) string {
	switch {
	case strings.HasPrefix(path, storehttp.Prefix+"/") || path == storehttp.Prefix:
		return areaStore
	case otlp.Serves(path):
		return areaOTLP
	case path == "/metrics", path == "/v1/prometheus", path == "/v1/prometheus/":
		return areaMetrics
	case path == openAPIPath:
		return areaDocument
	case strings.HasPrefix(path, "/rollout/"), strings.HasPrefix(path, "/v1/"):
		return areaProxy
	case path == "/healthz", strings.HasPrefix(path, "/api/"), strings.HasPrefix(path, "/proxy/"):
		return areaGateway
	}
	return areaPages
}

// open tells which requests need no token: health checks, the dashboard's files,
// and what the 1.0 protocol does not serve, which it says to everybody.
func open(r *http.Request) bool {
	switch path := r.URL.Path; area(path) {
	case areaGateway:
		return path == "/healthz" || gateway.Template(r.Method, r.URL) == ""
	case areaPages:
		return true
	default:
		return path == storehttp.Prefix+"/health"
	}
}

// namer returns what metrics call the path of a request: ids are replaced by
// their names, and what nobody serves has one name for each area, so that
// callers cannot make labels up.
func namer() func(*http.Request) string {
	api := storehttp.Templates()
	return func(r *http.Request) string {
		path := r.URL.Path
		switch area(path) {
		case areaStore:
			return cmp.Or(api(r.Method, path), storehttp.Prefix+"/{other}")
		case areaOTLP, areaMetrics, areaDocument:
			return path
		case areaProxy:
			return llmproxy.Template(r.URL)
		case areaGateway:
			return cmp.Or(gateway.Template(r.Method, r.URL), "/api/{other}")
		}
		if path == "/" {
			return path
		}
		return "/{page}"
	}
}
