package daemon

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	agl "agentlightning"
	"agentlightning/dashboard"
	"agentlightning/gateway"
	"agentlightning/llmproxy"
	"agentlightning/otlp"
	"agentlightning/store"
	"agentlightning/storehttp"
)

// routes puts every protocol behind one handler, and returns what to call once
// it is no longer used. What no route matches is the dashboard's.
func routes(c Config, registry *prometheus.Registry) (http.Handler, func() error, error) {
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	proxy, err := llmproxy.New(llmproxy.Config{Sink: c.Store, Attempts: c.Store, Models: c.Store, Static: c.Models,
		Logger: c.Logger, Metrics: registry})
	if err != nil {
		return nil, nil, fmt.Errorf("model proxy: %w", err)
	}
	shared := watched{c.Store, proxy}
	api := storehttp.NewHandler(shared, storehttp.Config{Logger: c.Logger})
	traces := otlp.NewHandler(c.Store, otlp.Config{Logger: c.Logger})
	models := gateway.NewHandler(shared, c.Logger)
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	pages := dashboard.Handler()

	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch area(r.URL.Path) {
		case "store":
			api.ServeHTTP(w, r)
		case "otlp":
			traces.ServeHTTP(w, r)
		case "proxy":
			proxy.ServeHTTP(w, r)
		case "gateway":
			models.ServeHTTP(w, r)
		case "metrics":
			metrics.ServeHTTP(w, r)
		default:
			pages.ServeHTTP(w, r)
		}
	})
	return withRequestID(storehttp.CORS(c.CORSOrigins, withToken(inner, c.AuthToken, open))), proxy.Close, nil
}

// watched is a store whose proxy learns of new model backends at once.
type watched struct {
	store.Store
	proxy *llmproxy.Proxy
}

func (w watched) PutModels(ctx context.Context, models []agl.Model) error {
	if err := w.Store.PutModels(ctx, models); err != nil {
		return err
	}
	return w.proxy.Refresh(ctx)
}

func (w watched) DeleteModels(ctx context.Context, name string) error {
	if err := w.Store.DeleteModels(ctx, name); err != nil {
		return err
	}
	return w.proxy.Refresh(ctx)
}

// area names what a path belongs to; empty is the dashboard.
func area(path string) string {
	switch {
	case strings.HasPrefix(path, "/v1/agl/") || path == "/v1/agl":
		return "store"
	case path == "/v1/traces", path == "/v1/metrics", path == "/v1/logs", path == "/v1/development/profiles":
		return "otlp"
	case path == "/metrics", path == "/v1/prometheus", path == "/v1/prometheus/":
		return "metrics"
	case strings.HasPrefix(path, "/rollout/"), strings.HasPrefix(path, "/v1/"):
		return "proxy"
	case path == "/healthz", strings.HasPrefix(path, "/api/"):
		return "gateway"
	}
	return ""
}

// open tells which requests need no token: health checks and the dashboard's files.
func open(r *http.Request) bool {
	path := r.URL.Path
	return path == "/healthz" || path == "/v1/agl/health" || area(path) == ""
}

// withRequestID numbers every answer, so that it and a log line can be put together.
func withRequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		storehttp.RequestID(w)
		next.ServeHTTP(w, r)
	})
}
