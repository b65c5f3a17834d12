package storehttp_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/storehttp"
)

// benchSpan is a model call with 100 token ids.
func benchSpan(a *agl.Attempt, i int) agl.Span {
	ids := make([]int64, 100)
	for n := range ids {
		ids[n] = int64(1000 + n)
	}
	return agl.SpanCore{
		Name: "openai.chat.completion", Status: agl.TraceStatus{StatusCode: agl.StatusOK},
		Attributes: agl.Attributes{
			{Key: "prompt_token_ids", Value: ids},
			{Key: "response_token_ids", Value: ids},
			{Key: "gen_ai.request.model", Value: "policy"},
		},
	}.Span(a.RolloutID, a.AttemptID, int64(i), 1)
}

// BenchmarkRollout is all that a runner calls for one rollout with eight spans,
// through the client and a server on the loopback.
func BenchmarkRollout(b *testing.B) {
	s := setup(b, nil)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		ctx := b.Context()
		for pb.Next() {
			_, err := s.client.EnqueueRollouts(ctx, []store.EnqueueRequest{{Input: json.RawMessage(`{"question":"what is 6 times 7?"}`)}})
			if err != nil {
				b.Error(err)
				return
			}
			got := dequeue(b, s.client, 0)
			a := got[0].Attempt
			for i := range 8 {
				if _, err := s.client.AddSpans(ctx, []agl.Span{benchSpan(a, i)}); err != nil {
					b.Error(err)
					return
				}
			}
			_, err = s.client.UpdateAttempt(ctx, a.RolloutID, a.AttemptID, store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)})
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rollouts/s")
}

// BenchmarkHandler is the server's part of it, one call a time, without a network.
func BenchmarkHandler(b *testing.B) {
	s := engine.New(memory.New(), engine.Config{})
	defer s.Close()
	h := storehttp.NewHandler(s, storehttp.Config{})
	r, err := s.StartRollout(b.Context(), store.StartRequest{})
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for name, body := range map[string]func() (path, body string){
		"enqueue": func() (string, string) {
			return "/queues/rollouts/enqueue", `{"rollouts":[{"input":{"question":"what is 6 times 7?"}}]}`
		},
		"dequeue": func() (string, string) { return "/queues/rollouts/dequeue", `{"limit":1,"worker_id":"w"}` },
		"next": func() (string, string) {
			return "/spans/next", fmt.Sprintf(`{"rollout_id":%q,"attempt_id":%q}`, r.RolloutID, r.Attempt.AttemptID)
		},
		"span": func() (string, string) {
			n++
			span := benchSpan(r.Attempt, n)
			return "/spans", string(span.AppendJSON(nil))
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				path, text := body()
				req := httptest.NewRequestWithContext(b.Context(), http.MethodPost, storehttp.Prefix+path, strings.NewReader(text))
				req.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, req)
				if w.Code >= http.StatusMultipleChoices {
					b.Fatalf("%s: %d %s", path, w.Code, w.Body)
				}
			}
		})
	}
}
