package pruning_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	agl "agentlightning"
	"agentlightning/internal/pruning"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/store/sqlite"
	"agentlightning/storehttp"
)

// server is the protocol over a store, without a network.
type server struct {
	store   *engine.Store
	service *pruning.Service
	handler http.Handler
}

func setup(t *testing.T, backend engine.Backend, over func(*engine.Store) store.Pruner) *server {
	t.Helper()
	s := engine.New(backend, engine.Config{})
	service := pruning.New(pruning.Config{Store: over(s)})
	t.Cleanup(func() {
		if err := service.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &server{s, service, storehttp.NewHandler(s, storehttp.Config{Pruner: service})}
}

func itself(s *engine.Store) store.Pruner { return s }

func (s *server) call(t *testing.T, method, path, body string, want int, into any) string {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), method, "/v1/agl/"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	s.handler.ServeHTTP(w, r)
	if w.Code != want {
		t.Fatalf("%s %s %s = %d %s, want %d", method, path, body, w.Code, w.Body, want)
	}
	if into != nil {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			t.Fatalf("%s %s = %s: %v", method, path, w.Body, err)
		}
	}
	return w.Body.String()
}

func (s *server) finished(t *testing.T, n int) {
	t.Helper()
	for range n {
		r, err := s.store.StartRollout(t.Context(), store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: []byte(`"task"`)}})
		if err != nil {
			t.Fatal(err)
		}
		core := agl.SpanCore{Name: "step"}
		if _, err := s.store.AddSpans(t.Context(), []agl.Span{core.Span(r.RolloutID, r.Attempt.AttemptID, 1, 1)}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.store.UpdateAttempt(t.Context(), r.RolloutID, agl.LatestAttempt, store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)}); err != nil {
			t.Fatal(err)
		}
	}
}

// ended follows work to its end.
func (s *server) ended(t *testing.T, id string) storehttp.Pruning {
	t.Helper()
	for t.Context().Err() == nil {
		var list []storehttp.Pruning
		s.call(t, http.MethodGet, "prunings", "", http.StatusOK, &list)
		for _, p := range list {
			if p.ID == id && p.Status != storehttp.PruneRunning {
				return p
			}
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
	t.Fatal("it has no end")
	return storehttp.Pruning{}
}

func TestPreviewThenDelete(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"memory", "sqlite"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var backend engine.Backend = memory.New()
			if name == "sqlite" {
				b, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "agl.db"), Sync: sqlite.SyncNormal})
				if err != nil {
					t.Fatal(err)
				}
				backend = b
			}
			s := setup(t, backend, itself)
			s.finished(t, 120)
			if _, err := s.store.EnqueueRollouts(t.Context(), []store.EnqueueRequest{{Input: []byte("1")}}); err != nil {
				t.Fatal(err)
			}

			var seen storehttp.Prunable
			s.call(t, http.MethodGet, "prunings/preview?older_than_seconds=3600", "", http.StatusOK, &seen)
			if seen.Rollouts != 0 || seen.Oldest != nil || seen.Stays.Later != 120 || seen.Stays.Open != 1 || !seen.Complete || seen.Looked != 121 {
				t.Errorf("older than an hour: %+v, want nothing of 121", seen)
			}
			s.call(t, http.MethodGet, "prunings/preview?older_than_seconds=0", "", http.StatusOK, &seen)
			if seen.Rollouts != 120 || seen.Attempts != 120 || seen.Spans != 120 || seen.Bytes == 0 || seen.Oldest == nil || seen.Stays.Later != 0 {
				t.Errorf("older than nothing: %+v, want 120", seen)
			}
			body := fmt.Sprintf(`{"before":%v}`, seen.Before)
			var begun storehttp.Pruning
			s.call(t, http.MethodPost, "prunings", body, http.StatusAccepted, &begun)
			if begun.Of == nil || *begun.Of != 120 || begun.Before != seen.Before {
				t.Errorf("begun %+v, want of the 120 that were announced", begun)
			}
			if got := s.ended(t, begun.ID); got.Status != storehttp.PruneSucceeded || got.PrunedCounts != seen.PrunedCounts || got.EndTime == nil {
				t.Errorf("ended %+v, want what was announced: %+v", got, seen.PrunedCounts)
			}
			st, err := s.store.Statistics(t.Context())
			if err != nil || st.TotalRollouts != 1 || st.TotalSpans != 0 {
				t.Errorf("left %+v, %v, want the one that waits", st, err)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	s := setup(t, memory.New(), itself)
	const bad, invalid = http.StatusBadRequest, http.StatusUnprocessableEntity
	for _, tt := range []struct {
		method, path, body string
		want               int
		text               string
	}{
		{http.MethodGet, "prunings/preview", "", invalid, "older_than_seconds"},
		{http.MethodGet, "prunings/preview?older_than_seconds=-1", "", bad, "older_than_seconds: must be an age"},
		{http.MethodGet, "prunings/preview?older_than_seconds=old", "", invalid, "older_than_seconds"},
		{http.MethodPost, "prunings", `{}`, invalid, "before"},
		{http.MethodPost, "prunings", `{"before":0}`, bad, "before: must be Unix seconds"},
		{http.MethodPost, "prunings", `{"before":99999999999}`, bad, "not in the future"},
		{http.MethodDelete, "prunings/pr-none", "", http.StatusNotFound, "pr-none"},
	} {
		if said := s.call(t, tt.method, tt.path, tt.body, tt.want, nil); !strings.Contains(said, tt.text) {
			t.Errorf("%s %s says %s, want %q", tt.method, tt.path, said, tt.text)
		}
	}
}

// slow is a store whose work has no end of its own.
type slow struct{ store.Pruner }

func (s slow) Prune(ctx context.Context, _ float64, told func(store.Pruned) error) (store.Pruned, error) {
	for n := int64(1); ; n++ {
		if err := told(store.Pruned{Rollouts: n}); err != nil {
			return store.Pruned{Rollouts: n}, err
		}
		if ctx.Err() != nil {
			return store.Pruned{Rollouts: n}, ctx.Err()
		}
	}
}

func (slow) Prunable(ctx context.Context, _ float64) (store.Prunable, error) {
	<-ctx.Done()
	return store.Prunable{Pruned: store.Pruned{Rollouts: 7}, Looked: 9}, ctx.Err()
}

func slowly(s *engine.Store) store.Pruner { return slow{s} }

func TestOneAtATimeUntilStopped(t *testing.T) {
	t.Parallel()
	s := setup(t, memory.New(), slowly)
	var first, second storehttp.Pruning
	s.call(t, http.MethodPost, "prunings", `{"before":1000}`, http.StatusAccepted, &first)
	if said := s.call(t, http.MethodPost, "prunings", `{"before":1000}`, http.StatusConflict, nil); !strings.Contains(said, first.ID+" deletes already") {
		t.Errorf("a second one is refused with %s", said)
	}
	s.call(t, http.MethodDelete, "prunings/"+first.ID, "", http.StatusOK, nil)
	if got := s.ended(t, first.ID); got.Status != storehttp.PruneStopped || got.Rollouts == 0 || got.Of != nil {
		t.Errorf("ended %+v, want stopped, with what it deleted", got)
	}
	s.call(t, http.MethodPost, "prunings", `{"before":1000}`, http.StatusAccepted, &second)
	if err := s.service.Close(); err != nil {
		t.Fatal(err)
	}
	if got := s.service.List()[0]; got.ID != second.ID || got.Status != storehttp.PruneStopped || !strings.Contains(got.Error, "the server is stopping") {
		t.Errorf("after Close %+v, want stopped by it", got)
	}
	if _, err := s.service.Start(t.Context(), 1); err == nil {
		t.Error("Start after Close succeeded")
	}
}

func TestPreviewEndsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := pruning.New(pruning.Config{Store: slow{}})
		began := time.Now()
		got, err := service.Preview(t.Context(), 5)
		if err != nil || got.Complete || got.Rollouts != 7 || got.Looked != 9 {
			t.Errorf("Preview() = %+v, %v, want what was seen, not complete", got, err)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %s", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := service.Preview(ctx, 5); err == nil {
			t.Error("Preview() for nobody has an answer")
		}
	})
}
