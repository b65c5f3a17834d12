package llmproxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// BenchmarkDialect measures recorded calls whose answer, of 64 tokens, comes from
// a backend that speaks chat completions only. Chat is not translated.
func BenchmarkDialect(b *testing.B) {
	backend := httptest.NewServer(onlyChat(engineLike(64)))
	b.Cleanup(backend.Close)
	_, base := benchProxy(b, backend.URL)
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	b.Cleanup(transport.CloseIdleConnections)
	chat := struct{ name, route, ask, askStream, last string }{"chat", "/chat/completions", ask, askStream, ""}
	for _, tt := range append(slices.Clone(translatedCalls), chat) {
		for kind, body := range map[string]string{"whole": tt.ask, "stream": tt.askStream} {
			b.Run(tt.name+"/"+kind, func(b *testing.B) {
				var took []time.Duration
				for b.Loop() {
					begun := time.Now()
					req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, base+tt.route, strings.NewReader(body))
					if err != nil {
						b.Fatal(err)
					}
					resp, err := transport.RoundTrip(req)
					if err != nil {
						b.Fatal(err)
					}
					n, err := io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
					if err != nil || resp.StatusCode != http.StatusOK {
						b.Fatal(fmt.Errorf("status %d, %d bytes, %w", resp.StatusCode, n, err))
					}
					took = append(took, time.Since(begun))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-µs")
			})
		}
	}
}
