package llmproxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/llmproxy"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// BenchmarkDialect measures recorded calls whose answer, of 64 tokens, comes from
// a backend that speaks chat completions only. Chat is not translated.
func BenchmarkDialect(b *testing.B) {
	backend := httptest.NewServer(onlyChat(engineLike(64)))
	b.Cleanup(backend.Close)
	s := engine.New(memory.New(), engine.Config{})
	proxy, err := llmproxy.New(llmproxy.Config{Sink: s, Attempts: s, Static: []agl.Model{{Name: "m", Endpoint: backend.URL + "/v1"}}})
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewServer(proxy)
	b.Cleanup(func() {
		server.Close()
		_ = proxy.Close()
		_ = s.Close()
	})
	a, err := s.StartRollout(b.Context(), store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: json.RawMessage(`1`)}})
	if err != nil {
		b.Fatal(err)
	}
	base := agl.ProxyLLM{Endpoint: server.URL + "/v1"}.Route(a.RolloutID, a.Attempt.AttemptID).Endpoint
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
