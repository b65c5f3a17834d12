package llmproxy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/llmproxy"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// engineLike answers as vLLM does, n tokens with ids and log-probabilities,
// whole or as a stream, from bytes that are made once.
func engineLike(n int) http.HandlerFunc {
	var ids, logprobs, text, stream strings.Builder
	for i := range n {
		if i > 0 {
			ids.WriteByte(',')
			logprobs.WriteByte(',')
		}
		token := fmt.Sprintf("w%d ", i)
		logprob := fmt.Sprintf(`{"token":%q,"logprob":-0.%d,"bytes":null,"top_logprobs":[]}`, token, 1+i%7)
		fmt.Fprintf(&ids, "%d", 1000+i)
		logprobs.WriteString(logprob)
		text.WriteString(token)
		first := ""
		if i == 0 {
			first = `"prompt_token_ids":[1,2,3,4,5],`
		}
		fmt.Fprintf(&stream, `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"mock",%s"choices":[{"index":0,"delta":{"content":%q},"token_ids":[%d],"logprobs":{"content":[%s]},"finish_reason":null}]}`+"\n\n",
			first, token, 1000+i, logprob)
	}
	usage := fmt.Sprintf(`{"prompt_tokens":5,"completion_tokens":%d,"total_tokens":%d}`, n, n+5)
	stream.WriteString(`data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: {\"id\":\"c\",\"choices\":[],\"usage\":" + usage + "}\n\n" + done)
	whole := fmt.Sprintf(`{"id":"c","object":"chat.completion","created":1,"model":"mock","choices":[{"index":0,"message":{"role":"assistant","content":%q},`+
		`"finish_reason":"stop","token_ids":[%s],"logprobs":{"content":[%s]}}],"usage":%s,"prompt_token_ids":[1,2,3,4,5]}`, text.String(), ids.String(), logprobs.String(), usage)
	events := strings.SplitAfter(stream.String(), "\n\n")
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !bytes.Contains(body, []byte(`"stream":true`)) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, whole)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		control := http.NewResponseController(w)
		for _, e := range events {
			_, _ = io.WriteString(w, e)
			_ = control.Flush()
		}
	}
}

// benchProxy starts a proxy before a backend whose model is called m. It returns
// its base URL and that of an attempt.
func benchProxy(b *testing.B, backend string) (plain, recorded string) {
	b.Helper()
	s := engine.New(memory.New(), engine.Config{})
	proxy, err := llmproxy.New(llmproxy.Config{Sink: s, Attempts: s, Static: []agl.Model{{Name: "m", Endpoint: backend + "/v1"}}})
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
	plain = server.URL + "/v1"
	return plain, agl.ProxyLLM{Endpoint: plain}.Route(a.RolloutID, a.Attempt.AttemptID).Endpoint
}

// BenchmarkCall compares calls through the proxy, recorded in a memory store,
// with the same calls sent to the backend directly. Eight callers run at once
// on parallel; one alone on latency, which reports the median as p50-µs.
func BenchmarkCall(b *testing.B) {
	backend := httptest.NewServer(engineLike(64))
	b.Cleanup(backend.Close)
	plain, recorded := benchProxy(b, backend.URL)

	for _, to := range []struct{ name, base string }{
		{"direct", backend.URL + "/v1"}, {"plain", plain}, {"recorded", recorded},
	} {
		for _, stream := range []bool{false, true} {
			kind := "whole"
			body := `{"model":"m","stream":false,"messages":[{"role":"user","content":"` + strings.Repeat("Say the words. ", 40) + `"}]}`
			if stream {
				kind = "stream"
				body = strings.Replace(body, "false", "true", 1)
			}
			transport := &http.Transport{MaxIdleConnsPerHost: 64}
			b.Cleanup(transport.CloseIdleConnections)
			call := func() error {
				resp, err := transport.RoundTrip(newRequest(b, to.base, body))
				if err != nil {
					return err
				}
				defer resp.Body.Close()
				n, err := io.Copy(io.Discard, resp.Body)
				if err == nil && (resp.StatusCode != http.StatusOK || n < 4000) {
					err = fmt.Errorf("answer is %d, %d bytes", resp.StatusCode, n)
				}
				return err
			}
			b.Run("latency/"+kind+"/"+to.name, func(b *testing.B) {
				var took []time.Duration
				for b.Loop() {
					start := time.Now()
					if err := call(); err != nil {
						b.Fatal(err)
					}
					took = append(took, time.Since(start))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-µs")
				b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-µs")
			})
			b.Run("parallel/"+kind+"/"+to.name, func(b *testing.B) {
				var failed atomic.Value
				b.SetParallelism(4)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := call(); err != nil {
							failed.Store(err)
						}
					}
				})
				if err := failed.Load(); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
			})
		}
	}
}

func newRequest(tb testing.TB, base, body string) *http.Request {
	req, err := http.NewRequestWithContext(tb.Context(), http.MethodPost, base+"/chat/completions", strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return req
}
