package daemon

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentlightning/internal/access"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/storehttp"
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
		"observed": observe(withLimits(answer, 1<<20, p, new(atomic.Int64)), m, namer(), p, slog.New(slog.DiscardHandler)),
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

// BenchmarkRequest is a whole request over loopback, to the store's handler alone
// and to the assembled server with a token.
func BenchmarkRequest(b *testing.B) {
	st := engine.New(memory.New(), engine.Config{})
	b.Cleanup(func() { _ = st.Close() })
	m, err := NewMetrics()
	if err != nil {
		b.Fatal(err)
	}
	c := Config{Store: st, AuthToken: "secret", Metrics: m}.withDefaults()
	signer := access.NewSigner(c.AuthToken, nil)
	whole, err := routes(c, access.NewGuard(c.AuthToken, signer), signer)
	if err != nil {
		b.Fatal(err)
	}
	for _, bb := range []struct {
		name string
		h    http.Handler
	}{{"store", storehttp.NewHandler(st, storehttp.Config{})}, {"server", whole.handler}} {
		b.Run(bb.name, func(b *testing.B) {
			server := httptest.NewServer(bb.h)
			defer server.Close()
			client := server.Client()
			b.ReportAllocs()
			for b.Loop() {
				req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, server.URL+"/v1/agl/queues/rollouts/dequeue", strings.NewReader("{}"))
				if err != nil {
					b.Fatal(err)
				}
				req.Header.Set("Authorization", "Bearer secret")
				req.Header.Set("Content-Type", "application/json")
				res, err := client.Do(req)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
					b.Fatal(res.Status, err)
				}
				_ = res.Body.Close()
			}
		})
	}
}
