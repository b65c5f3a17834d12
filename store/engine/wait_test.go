package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// counted counts transactions and scans.
type counted struct {
	engine.Backend

	updates, views, scans atomic.Int64
}

func (b *counted) Update(ctx context.Context, f func(engine.Tx) error) error {
	b.updates.Add(1)
	return b.Backend.Update(ctx, f)
}

func (b *counted) View(ctx context.Context, f func(engine.Reader) error) error {
	b.views.Add(1)
	return b.Backend.View(ctx, func(r engine.Reader) error { return f(countedReader{r, b}) })
}

type countedReader struct {
	engine.Reader
	b *counted
}

func (r countedReader) OpenRollouts() ([]agl.AttemptedRollout, error) {
	r.b.scans.Add(1)
	return r.Reader.OpenRollouts()
}

// bubble runs a test in a bubble where time stands still until all wait.
func bubble(t *testing.T, cfg engine.Config, f func(t *testing.T, b *counted, s *engine.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &counted{Backend: memory.New()}
		s := engine.New(b, cfg)
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		f(t, b, s)
	})
}

func enqueueOne(t *testing.T, s *engine.Store, c *agl.RolloutConfig) string {
	t.Helper()
	ros, err := s.EnqueueRollouts(t.Context(), []store.EnqueueRequest{{Config: c}})
	if err != nil {
		t.Fatal(err)
	}
	return ros[0].RolloutID
}

func TestThousandWaitersCostAsMuchAsOne(t *testing.T) {
	t.Parallel()
	bubble(t, engine.Config{HealthScanInterval: time.Minute}, func(t *testing.T, b *counted, s *engine.Store) {
		var order []int
		var mu sync.Mutex
		var calls sync.WaitGroup
		for i := range 1000 {
			calls.Go(func() {
				got, err := s.DequeueRollouts(t.Context(), store.DequeueRequest{Limit: 1, Wait: time.Hour})
				if err != nil || len(got) != 1 {
					t.Errorf("dequeue = %v, %v, want one", got, err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
			})
			synctest.Wait()
		}
		at := time.Now()
		for i := range 1000 {
			before := b.updates.Load()
			enqueueOne(t, s, nil)
			synctest.Wait()
			if n := b.updates.Load() - before; n != 2 {
				t.Fatalf("enqueue %d took %d transactions, want 2: its own and one claim", i, n)
			}
		}
		calls.Wait()
		if d := time.Since(at); d != 0 {
			t.Errorf("the calls were woken %v after the enqueue, want at once", d)
		}
		for i := range order {
			if order[i] != i {
				t.Fatalf("call %d was served in place %d, want first come, first served", order[i], i)
			}
		}
	})
}

func TestDequeueWaitsExactlyAsLongAsAsked(t *testing.T) {
	t.Parallel()
	for _, interval := range []time.Duration{0, time.Minute} {
		bubble(t, engine.Config{HealthScanInterval: interval}, func(t *testing.T, _ *counted, s *engine.Store) {
			from := time.Now()
			got, err := s.DequeueRollouts(t.Context(), store.DequeueRequest{Limit: 1, Wait: 90 * time.Second})
			if err != nil || len(got) != 0 || time.Since(from) != 90*time.Second {
				t.Errorf("dequeue = %v, %v after %v, want nothing after 90s", got, err, time.Since(from))
			}
		})
	}
}

func TestTimedScan(t *testing.T) {
	t.Parallel()
	bubble(t, engine.Config{HealthScanInterval: 10 * time.Second}, func(t *testing.T, b *counted, s *engine.Store) {
		id := enqueueOne(t, s, &agl.RolloutConfig{TimeoutSeconds: new(25.0), MaxAttempts: 2, RetryCondition: []agl.AttemptStatus{agl.AttemptTimeout}})
		if _, err := s.DequeueRollouts(t.Context(), store.DequeueRequest{Limit: 1}); err != nil {
			t.Fatal(err)
		}
		from := time.Now()
		got, err := s.DequeueRollouts(t.Context(), store.DequeueRequest{Limit: 1, Wait: time.Hour})
		if err != nil || len(got) != 1 || got[0].RolloutID != id || got[0].Attempt.SequenceID != 2 {
			t.Fatalf("dequeue = %+v, %v, want the second attempt of %s", got, err, id)
		}
		if d := time.Since(from); d < 25*time.Second || d > 35*time.Second {
			t.Errorf("the attempt was ended after %v, want 25s to 35s", d)
		}
		// Nobody calls; the rollout ends all the same.
		if _, err := s.WaitForRollouts(t.Context(), []string{id}, -1); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(from); d < 50*time.Second || d > 70*time.Second {
			t.Errorf("the rollout was ended after %v, want 50s to 70s", d)
		}
		if n := b.scans.Load(); n > 8 {
			t.Errorf("%d scans within 70s, want one in 10s", n)
		}
	})
}

func TestWaitingLooksItselfWithoutATimer(t *testing.T) {
	t.Parallel()
	bubble(t, engine.Config{}, func(t *testing.T, b *counted, s *engine.Store) {
		id := enqueueOne(t, s, &agl.RolloutConfig{TimeoutSeconds: new(5.0)})
		if _, err := s.DequeueRollouts(t.Context(), store.DequeueRequest{Limit: 1}); err != nil {
			t.Fatal(err)
		}
		before := b.scans.Load()
		var calls sync.WaitGroup
		for range 100 {
			calls.Go(func() {
				got, err := s.WaitForRollouts(t.Context(), []string{id}, -1)
				if err != nil || len(got) != 1 || got[0].Status != agl.RolloutFailed {
					t.Errorf("wait = %+v, %v, want the failed rollout", got, err)
				}
			})
		}
		calls.Wait()
		if n := b.scans.Load() - before; n > 100+10 {
			t.Errorf("%d scans of 100 calls within 6s, want one each and one a second", n)
		}
	})
}

func TestOneOfManyScans(t *testing.T) {
	t.Parallel()
	w := newWorld(t, &counted{Backend: memory.New()}, engine.Config{HealthScanInterval: time.Hour})
	b := w.backend.(*counted)
	for round := range 3 {
		var calls sync.WaitGroup
		for range 20 {
			calls.Go(w.look)
		}
		calls.Wait()
		if n := b.scans.Load(); n != int64(round+1) {
			t.Errorf("%d scans after round %d, want one a round", n, round)
		}
		w.pass(59 * time.Minute)
		w.look()
		w.pass(time.Minute)
	}
	w.pass(-24 * time.Hour)
	w.look()
	if n := b.scans.Load(); n != 4 {
		t.Errorf("%d scans after the clock was set back, want 4", n)
	}
}

func TestOtherProcessesAreHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := memory.New()
		here := engine.New(shared, engine.Config{PollInterval: 200 * time.Millisecond})
		there := engine.New(shared, engine.Config{})
		defer func() {
			for _, s := range []*engine.Store{here, there} {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		}()
		var calls sync.WaitGroup
		id := enqueueOne(t, there, nil)
		calls.Go(func() {
			got, err := here.WaitForRollouts(t.Context(), []string{id}, -1)
			if err != nil || len(got) != 1 || got[0].Status != agl.RolloutCancelled {
				t.Errorf("wait = %+v, %v, want the cancelled rollout", got, err)
			}
		})
		synctest.Wait()
		if _, err := there.UpdateRollout(t.Context(), id, store.RolloutUpdate{Status: store.To(agl.RolloutCancelled)}); err != nil {
			t.Fatal(err)
		}
		calls.Go(func() {
			got, err := here.DequeueRollouts(t.Context(), store.DequeueRequest{Limit: 1, Wait: time.Hour})
			if err != nil || len(got) != 1 {
				t.Errorf("dequeue = %+v, %v, want one", got, err)
			}
		})
		synctest.Wait()
		enqueueOne(t, there, nil)
		from := time.Now()
		calls.Wait()
		if d := time.Since(from); d > 200*time.Millisecond {
			t.Errorf("heard after %v, want 200ms at most", d)
		}
	})
}

func TestWorkOfAFailedClaimGoesToTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &faulty{Backend: memory.New()}
		s := engine.New(b, engine.Config{HealthScanInterval: time.Hour})
		defer func() {
			b.breakWith(nil, 0)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		full := errors.New("the disk is full")
		var calls sync.WaitGroup
		calls.Go(func() {
			if got, err := s.DequeueRollouts(t.Context(), store.DequeueRequest{Limit: 1, Wait: time.Hour}); !errors.Is(err, full) {
				t.Errorf("first dequeue = %v, %v, want %v", got, err, full)
			}
			b.breakWith(nil, 0)
		})
		synctest.Wait()
		calls.Go(func() {
			from := time.Now()
			got, err := s.DequeueRollouts(t.Context(), store.DequeueRequest{Limit: 1, Wait: time.Hour})
			for errors.Is(err, full) { // it was woken before the disk was repaired
				got, err = s.DequeueRollouts(t.Context(), store.DequeueRequest{Limit: 1, Wait: time.Hour})
			}
			if err != nil || len(got) != 1 || time.Since(from) != 0 {
				t.Errorf("second dequeue = %v, %v after %v, want one at once", got, err, time.Since(from))
			}
		})
		synctest.Wait()
		b.breakWith(full, 1) // the enqueue succeeds, the claim does not
		enqueueOne(t, s, nil)
		calls.Wait()
	})
}

func TestFailedCommitTellsNobody(t *testing.T) {
	t.Parallel()
	b := &faulty{Backend: memory.New()}
	w := newWorld(t, b, engine.Config{})
	id := w.enqueue(agl.RolloutConfig{})
	a := w.claim()
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := w.WaitForRollouts(ctx, []string{id}, -1)
		done <- err
	}()
	before := len(w.took())
	full := errors.New("the disk is full")
	b.breakWith(full, 0)
	for name, call := range map[string]func() error{
		"update": func() error {
			_, err := w.UpdateAttempt(t.Context(), id, a.AttemptID, store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)})
			return err
		},
		"enqueue": func() error {
			_, err := w.EnqueueRollouts(t.Context(), []store.EnqueueRequest{{}})
			return err
		},
		"span": func() error {
			_, err := w.AddSpans(t.Context(), []agl.Span{{RolloutID: id, AttemptID: a.AttemptID, SpanID: "s", SequenceID: 9}})
			return err
		},
		"release": func() error {
			return w.ReleaseRollouts(t.Context(), []agl.AttemptedRollout{{Rollout: agl.Rollout{RolloutID: id}, Attempt: a}})
		},
		"resources": func() error {
			_, err := w.AddResources(t.Context(), nil)
			return err
		},
	} {
		if err := call(); !errors.Is(err, full) {
			t.Errorf("%s = %v, want %v", name, err, full)
		}
	}
	if got := w.took()[before:]; len(got) != 0 {
		t.Errorf("changes that were told: %v", got)
	}
	select {
	case err := <-done:
		t.Errorf("the wait ended with %v", err)
	default:
	}
	b.breakWith(nil, 0)
	got, err := w.Rollout(t.Context(), id)
	w.ok(err)
	if got.Status != agl.RolloutPreparing || got.Attempt.Status != agl.AttemptPreparing || got.Attempt.LastHeartbeatTime != nil {
		t.Errorf("rollout = %+v with %+v, want it as it was", got.Rollout, got.Attempt)
	}
	st, err := w.Statistics(t.Context())
	w.ok(err)
	if st.TotalRollouts != 1 || st.TotalSpans != 0 || st.TotalAttempts != 1 || st.TotalResources != 0 {
		t.Errorf("statistics = %+v, want one rollout with one attempt", st)
	}
	if n, err := w.NextSequenceIDs(t.Context(), []store.Attempted{{RolloutID: id}}); err != nil || n[0] != 1 {
		t.Errorf("next sequence id = %v, %v, want 1", n, err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("wait = %v, want context.Canceled", err)
	}
}

func TestCloseWithManyCallsInFlight(t *testing.T) {
	t.Parallel()
	for range 20 {
		s := engine.New(memory.New(), engine.Config{HealthScanInterval: time.Millisecond, PollInterval: time.Millisecond})
		var calls sync.WaitGroup
		for i := range 40 {
			calls.Go(func() {
				var err error
				for err == nil {
					switch i % 6 {
					case 0:
						_, err = s.DequeueRollouts(t.Context(), store.DequeueRequest{Limit: 1, Wait: time.Hour, WorkerID: new(fmt.Sprint(i))})
					case 1:
						_, err = s.WaitForRollouts(t.Context(), []string{"ro-x"}, time.Hour)
					case 2:
						_, err = s.EnqueueRollouts(t.Context(), []store.EnqueueRequest{{}})
					case 3:
						_, err = s.QueryWorkers(t.Context(), store.WorkerQuery{})
					case 4:
						_, err = s.NextSequenceIDs(t.Context(), []store.Attempted{{RolloutID: "ro-x"}, {RolloutID: fmt.Sprint(i)}})
					case 5:
						_, err = s.AddSpans(t.Context(), []agl.Span{{RolloutID: "ro-x", SequenceID: 3}})
					}
				}
				if !errors.Is(err, store.ErrClosed) {
					t.Errorf("error = %v, want %v", err, store.ErrClosed)
				}
			})
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		calls.Wait()
	}
}
