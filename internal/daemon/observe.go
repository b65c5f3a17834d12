package daemon

import (
	"log/slog"
	"net/http"
	"time"

	"agentlightning/internal/logs"
	"agentlightning/storehttp"
)

// What a request counts as that has no status of its own.
const (
	statusClientClosed = 499 // the caller went away before there was an answer, or before its end
	statusCrashed      = 520 // the handler gave up
)

// observe numbers, counts and times requests, and gives their answers time.
func observe(next http.Handler, m *Metrics, name func(*http.Request) string, p pace, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		m.inFlight.Inc()
		if id := r.Header.Get("X-Request-Id"); usable(id) {
			w.Header().Set("X-Request-Id", id)
		}
		r = r.WithContext(logs.WithRequestID(r.Context(), storehttp.RequestID(w)))
		out := &patientWriter{ResponseWriter: w, control: http.NewResponseController(w), pause: p.writePause}
		out.allow(0)
		path := name(r)
		finished := false
		defer func() { //nolint:contextcheck // the request carries it
			m.inFlight.Dec()
			took := time.Since(began)
			status := out.status
			switch {
			case !finished && status != 0 && r.Context().Err() != nil: // so the handler gave up
				status = statusClientClosed
			case !finished: // a panic is on its way through here
				status = statusCrashed
			case status == 0 && r.Context().Err() != nil:
				status = statusClientClosed
			case status == 0:
				status = http.StatusOK
			}
			m.request(path, r.Method, status, took)
			if log.Enabled(r.Context(), slog.LevelDebug) {
				log.DebugContext(r.Context(), "request", "peer", r.RemoteAddr, "method", r.Method, "path", r.URL.Path,
					"status", status, "bytes", out.bytes, "elapsed", took)
			}
			out.allow(0) // for what the server itself still has to write
		}()
		next.ServeHTTP(out, r)
		finished = true
	})
}

// usable tells whether an id that a caller sends may stand in lines of the log.
func usable(id string) bool {
	const most = 64
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return id != "" && len(id) <= most
}
