package daemon

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Observe counts the requests of a handler.
func Observe(next http.Handler, m *Metrics) http.Handler {
	name := func(*http.Request) string { return "/x" }
	return observe(next, m, name, pace{}.withDefaults(), slog.New(slog.DiscardHandler))
}

// Registry is where metrics are gathered.
func Registry(m *Metrics) *prometheus.Registry { return m.registry }

// Hurry makes the server expect quick clients.
func Hurry(c Config, body, write time.Duration) Config {
	c.pace = pace{bodyPause: body, body: 10 * body, writePause: write}
	return c
}

// HurryHeader makes the server expect the header of a request soon.
func HurryHeader(c Config, header time.Duration) Config {
	c.pace = pace{header: header}
	return c
}

// Renew makes the server look at the files of its certificate for every connection.
func Renew(c Config) Config {
	c.pace = pace{certificate: time.Nanosecond}
	return c
}

// Look makes the server take a sample of itself that often.
func Look(c Config, every time.Duration) Config {
	c.pace = pace{look: every}
	return c
}
