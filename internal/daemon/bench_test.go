package daemon

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// connected is an answer on a connection that has deadlines.
type connected struct{ *httptest.ResponseRecorder }

func (connected) SetReadDeadline(time.Time) error  { return nil }
func (connected) SetWriteDeadline(time.Time) error { return nil }

// BenchmarkObserve is what counting, timing and limiting adds to a request.
func BenchmarkObserve(b *testing.B) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	m, err := NewMetrics()
	if err != nil {
		b.Fatal(err)
	}
	p := pace{}.withDefaults()
	for name, h := range map[string]http.Handler{
		"bare":     answer,
		"observed": observe(withLimits(answer, 1<<20, p), m, namer(), p, slog.New(slog.DiscardHandler)),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/v1/agl/rollouts/ro-1/attempts/latest", nil)
			for b.Loop() {
				h.ServeHTTP(connected{httptest.NewRecorder()}, r)
			}
		})
	}
}
