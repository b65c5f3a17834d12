package engine_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/sqlite"
)

// stuck is a backend whose scans take as long as the test wants.
type stuck struct {
	engine.Backend

	scanning chan struct{} // a token for each scan that began
	release  chan struct{}
}

func (b *stuck) View(ctx context.Context, f func(engine.Reader) error) error {
	return b.Backend.View(ctx, func(r engine.Reader) error { return f(stuckReader{r, b}) })
}

type stuckReader struct {
	engine.Reader
	b *stuck
}

func (r stuckReader) OpenRollouts() ([]agl.AttemptedRollout, error) {
	r.b.scanning <- struct{}{}
	<-r.b.release
	return r.Reader.OpenRollouts()
}

// TestScanHoldsNobodyUp makes every kind of call while a scan is stuck.
func TestScanHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	db, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "agl.db")})
	if err != nil {
		t.Fatal(err)
	}
	b := &stuck{Backend: db, scanning: make(chan struct{}, 1), release: make(chan struct{})}
	s := engine.New(b, engine.Config{HealthScanInterval: time.Hour})
	defer s.Close()

	var scans sync.WaitGroup
	scans.Go(func() {
		if _, err := s.QueryRollouts(t.Context(), store.RolloutQuery{}); err != nil {
			t.Error(err)
		}
	})
	<-b.scanning

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	made, err := s.EnqueueRollouts(ctx, []store.EnqueueRequest{{Input: json.RawMessage("1")}})
	if err != nil {
		t.Fatal(err)
	}
	claimed, err := s.DequeueRollouts(ctx, store.DequeueRequest{Limit: 1})
	if err != nil || len(claimed) != 1 {
		t.Fatalf("dequeue = %v, %v, want one", claimed, err)
	}
	id, attempt := made[0].RolloutID, claimed[0].Attempt.AttemptID
	if _, err := s.NextSequenceIDs(ctx, []store.Attempted{{RolloutID: id, AttemptID: attempt}}); err != nil {
		t.Error(err)
	}
	span := agl.SpanCore{Name: "x", Status: agl.TraceStatus{StatusCode: agl.StatusOK}}.Span(id, attempt, 1, 0)
	if added, err := s.AddSpans(ctx, []agl.Span{span}); err != nil || !added[0].Stored {
		t.Errorf("AddSpans = %+v, %v", added, err)
	}
	if page, err := s.QuerySpans(ctx, store.SpanQuery{RolloutID: id}); err != nil || page.Total != 1 {
		t.Errorf("QuerySpans = %+v, %v", page, err)
	}
	if _, err := s.UpdateAttempt(ctx, id, attempt, store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)}); err != nil {
		t.Error(err)
	}
	if done, err := s.WaitForRollouts(ctx, []string{id}, -1); err != nil || len(done) != 1 {
		t.Errorf("WaitForRollouts = %v, %v", done, err)
	}
	close(b.release)
	scans.Wait()
}

// between calls f before some of the transactions.
type between struct {
	engine.Backend

	updates atomic.Int32
	f       func(n int32)
}

func (b *between) Update(ctx context.Context, f func(engine.Tx) error) error {
	if b.f != nil {
		b.f(b.updates.Add(1))
	}
	return b.Backend.Update(ctx, f)
}

// TestScanLetsOthersInBetween ends a thousand attempts by a scan. A call that
// comes while it is at it waits for a part of them only.
func TestScanLetsOthersInBetween(t *testing.T) {
	t.Parallel()
	const many = 1000
	onBackends(t, func(t *testing.T, backend engine.Backend) {
		b := &between{Backend: backend}
		w := newWorld(t, b, engine.Config{HealthScanInterval: time.Hour})
		w.look()
		reqs := make([]store.EnqueueRequest, many)
		for i := range reqs {
			reqs[i].Config = &agl.RolloutConfig{TimeoutSeconds: new(1.0)}
		}
		if _, err := w.EnqueueRollouts(t.Context(), reqs); err != nil {
			t.Fatal(err)
		}
		if got, err := w.DequeueRollouts(t.Context(), store.DequeueRequest{Limit: many}); err != nil || len(got) != many {
			t.Fatalf("%d claims, %v", len(got), err)
		}
		w.pass(2 * time.Hour)
		var ended int
		b.f = func(n int32) {
			if n != 3 { // two parts are done; this one has not begun
				return
			}
			page, err := w.QueryRollouts(t.Context(), store.RolloutQuery{StatusIn: []agl.RolloutStatus{agl.RolloutFailed}, Paging: store.Paging{Limit: 1}})
			if err != nil {
				t.Error(err)
			}
			ended = page.Total
			if _, err := w.EnqueueRollouts(t.Context(), []store.EnqueueRequest{{}}); err != nil {
				t.Error(err)
			}
		}
		w.look()
		if ended == 0 || ended > many/4 {
			t.Errorf("a call during the scan saw %d attempts ended, want a part of %d", ended, many)
		}
		page, err := w.QueryRollouts(t.Context(), store.RolloutQuery{StatusIn: []agl.RolloutStatus{agl.RolloutFailed}, Paging: store.Paging{Limit: 1}})
		if err != nil || page.Total != many {
			t.Errorf("%d rollouts ended, %v, want %d", page.Total, err, many)
		}
	})
}
