package storehttp_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/storehttp"
)

// TestEvictedSpans asks for spans that the store had to drop: the answer is the
// exception that the protocol has for it, and the client asks only once.
func TestEvictedSpans(t *testing.T) {
	t.Parallel()
	b, err := memory.NewLimited(memory.SpanLimits{Evict: memory.Bytes(1000), Safe: memory.Bytes(0)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := engine.New(b, engine.Config{})
	t.Cleanup(func() { _ = s.Close() })
	h := storehttp.NewHandler(s, storehttp.Config{})
	var asked atomic.Int32
	client := newClient(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/spans/search") {
			asked.Add(1)
		}
		h.ServeHTTP(w, r)
	}), "").URL)
	started, err := client.StartRollout(t.Context(), store.StartRequest{})
	if err != nil {
		t.Fatal(err)
	}
	id := started.RolloutID
	span := agl.SpanCore{Name: strings.Repeat("x", 2000), Status: agl.TraceStatus{StatusCode: agl.StatusOK}}.
		Span(id, started.Attempt.AttemptID, 1, 0)
	if added, err := client.AddSpans(t.Context(), []agl.Span{span}); err != nil || !added[0].Stored {
		t.Fatalf("AddSpans = %+v, %v", added, err)
	}

	text := "Spans for rollout " + id + " have been evicted"
	w := call(t, h, "GET", "/v1/agl/spans?rollout_id="+id, "")
	want := `{"detail":"` + text + `","error_type":"RuntimeError","traceback":"RuntimeError: ` + text + `"}`
	if w.Code != http.StatusInternalServerError || w.Body.String() != want {
		t.Errorf("spans = %d %s, want %s", w.Code, w.Body, want)
	}
	_, err = client.QuerySpans(t.Context(), store.SpanQuery{RolloutID: id})
	if !errors.Is(err, store.ErrEvicted) || err.Error() != text || asked.Load() != 1 {
		t.Errorf("QuerySpans = %v after %d requests, want that they were evicted after one", err, asked.Load())
	}
	w = call(t, h, "GET", "/v1/agl/statistics", "")
	for _, member := range []string{`"total_spans":0`, `"total_span_bytes":0`, `"eviction_threshold_bytes":1000`, `"safe_threshold_bytes":0`, `"memory_capacity_bytes":`} {
		if !strings.Contains(w.Body.String(), member) {
			t.Errorf("statistics = %s, want %s", w.Body, member)
		}
	}
}
