package storehttp_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	agl "agentlightning"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/storehttp"
)

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() { _ = s.Close() })
	h := storehttp.NewHandler(s, storehttp.Config{})
	const one, other = `{"input":1}`, `{"input":2}`
	start := func(key, body string) (int, string) {
		w := call(t, h, "POST", "/v1/agl/rollouts", body, "Idempotency-Key", key)
		return w.Code, w.Body.String()
	}

	var mu sync.Mutex
	answers := map[string]bool{}
	var together sync.WaitGroup
	for range 10 {
		together.Go(func() {
			_, body := start("k", one)
			mu.Lock()
			defer mu.Unlock()
			answers[body] = true
		})
	}
	together.Wait()
	if len(answers) != 1 {
		t.Errorf("ten requests with one key had %d answers, want 1", len(answers))
	}
	if _, body := start("another", one); answers[body] {
		t.Error("another key had the answer of the first")
	}
	if status, body := start("k", other); status != http.StatusUnprocessableEntity || !strings.Contains(body, "another request") {
		t.Errorf("the key with another body: %d %s, want a refusal", status, body)
	}
	if status, _ := start(strings.Repeat("k", 300), one); status != http.StatusBadRequest {
		t.Errorf("a long key: %d, want %d", status, http.StatusBadRequest)
	}
	if st, err := s.Statistics(t.Context()); err != nil || st.TotalRollouts != 2 {
		t.Errorf("%d rollouts, %v, want 2", st.TotalRollouts, err)
	}

	// What failed may be tried again under the same key.
	span := agl.SpanCore{Name: "x", Status: agl.TraceStatus{StatusCode: agl.StatusOK}}.Span("ro-x", "at-x", 1, 0)
	for range 2 {
		w := call(t, h, "POST", "/v1/agl/spans", string(span.AppendJSON(nil)), "Idempotency-Key", "k")
		if w.Code != http.StatusNotFound {
			t.Errorf("span of an unknown rollout: %d, want %d", w.Code, http.StatusNotFound)
		}
	}
}

// TestKeysOfModels checks that listing models shows keys to those only who ask.
func TestKeysOfModels(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	model := agl.Model{Name: "m", Endpoint: "http://x/v1", APIKey: "secret", KeyGiven: true}
	if err := b.client.PutModels(t.Context(), []agl.Model{model}); err != nil {
		t.Fatal(err)
	}
	if models, err := b.client.Models(t.Context()); err != nil || len(models) != 1 || models[0] != model {
		t.Errorf("Models = %+v, %v, want %+v", models, err, model)
	}
	w := call(t, storehttp.NewHandler(b.store, storehttp.Config{}), "GET", "/v1/agl/models", "")
	if w.Code != http.StatusOK || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("GET /v1/agl/models = %d %s, want it without the key", w.Code, w.Body)
	}
}

// TestIdempotencyKeyOfEveryRoute sends each request twice under one key. The
// second has the answer of the first, and nothing more is in the store.
func TestIdempotencyKeyOfEveryRoute(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	h := storehttp.NewHandler(b.store, storehttp.Config{})
	enqueue(t, b.store, "0", "0")
	claimed := dequeue(t, b.store, 0)[0]
	id, attempt := claimed.RolloutID, claimed.Attempt.AttemptID
	span := agl.SpanCore{Name: "x", Status: agl.TraceStatus{StatusCode: agl.StatusOK}}.Span(id, attempt, 7, 0)
	text := string(span.AppendJSON(nil))
	other := agl.SpanCore{Name: "y", Status: agl.TraceStatus{StatusCode: agl.StatusOK}}.Span(id, attempt, 8, 0)
	batch := `{"spans":[` + string(other.AppendJSON(nil)) + `]}`
	names := `{"rollout_id":"` + id + `","attempt_id":"` + attempt + `"}`
	for _, tt := range []struct {
		path, body string
		makes      [5]int64 // rollouts, attempts, spans, resources, workers
	}{
		{"/queues/rollouts/dequeue", `{"worker_id":"w"}`, [5]int64{0, 1, 0, 0, 1}},
		{"/queues/rollouts/enqueue", `{"rollouts":[{"input":1},{"input":2}]}`, [5]int64{2, 0, 0, 0, 0}},
		{"/rollouts", `{"input":1}`, [5]int64{1, 1, 0, 0, 0}},
		{"/rollouts/" + id + "/attempts", `{}`, [5]int64{0, 1, 0, 0, 0}},
		{"/spans", text, [5]int64{0, 0, 1, 0, 0}},
		{"/spans/batch", batch, [5]int64{0, 0, 1, 0, 0}},
		{"/spans/next", names, [5]int64{}},
		{"/resources", `{}`, [5]int64{0, 0, 0, 1, 0}},
		{"/resources/mine", `{}`, [5]int64{0, 0, 0, 1, 0}},
	} {
		before := counts(t, b.store)
		var answers []string
		for range 2 {
			w := call(t, h, "POST", "/v1/agl"+tt.path, tt.body, "Idempotency-Key", "one")
			if w.Code >= http.StatusMultipleChoices || w.Body.String() == "null" || w.Body.String() == "[]" {
				t.Errorf("%s: %d %s", tt.path, w.Code, w.Body)
			}
			answers = append(answers, w.Body.String())
		}
		if answers[0] != answers[1] {
			t.Errorf("%s: two answers under one key\n%s\n%s", tt.path, answers[0], answers[1])
		}
		after := counts(t, b.store)
		for i := range after {
			after[i] -= before[i]
		}
		if after != tt.makes {
			t.Errorf("%s twice makes %v, want %v", tt.path, after, tt.makes)
		}
		if w := call(t, h, "POST", "/v1/agl"+tt.path, tt.body, "Idempotency-Key", "two"); w.Body.String() == answers[0] && tt.path != "/spans/batch" {
			t.Errorf("%s: another key has the answer of the first", tt.path)
		}
	}
}

// counts are the counters that requests make grow.
func counts(tb testing.TB, s *engine.Store) [5]int64 {
	tb.Helper()
	st, err := s.Statistics(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return [5]int64{st.TotalRollouts, st.TotalAttempts, st.TotalSpans, st.TotalResources, st.TotalWorkers}
}
