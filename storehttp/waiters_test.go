package storehttp_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/storetest"
)

// TestQueueIsLinearizable checks the histories that clients see over HTTP.
func TestQueueIsLinearizable(t *testing.T) {
	t.Parallel()
	storetest.Linearizable(t, openOver(nil))
}

// TestWaitersAreCheap keeps a thousand requests waiting, for work and for
// rollouts to finish. What they cost is their connections; others are served as
// if they were not there, and a waiter is woken within 20 milliseconds.
func TestWaitersAreCheap(t *testing.T) { //nolint:paralleltest // it counts goroutines
	const waiters = 500 // of each kind
	b := setup(t, nil)
	before := runtime.NumGoroutine()
	open := enqueue(t, b.store, "1", "2")
	if got := dequeue(t, b.store, 0); len(got) != 1 {
		t.Fatal("no rollout to wait for")
	}
	dequeue(t, b.store, 0)

	var calls sync.WaitGroup
	var mu sync.Mutex
	claims := 0
	done := make(chan time.Time, waiters+1)
	wait := func(id string) {
		calls.Go(func() {
			got, err := b.client.WaitForRollouts(t.Context(), []string{id}, time.Minute)
			if err != nil || len(got) != 1 {
				t.Errorf("wait = %v, %v, want the rollout", got, err)
			}
			done <- time.Now()
		})
	}
	for range waiters {
		calls.Go(func() {
			got, err := b.client.DequeueRollouts(t.Context(), store.DequeueRequest{Limit: 1, Wait: time.Minute})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			claims += len(got)
		})
		wait(open[0].RolloutID)
	}
	// A waiting request is a caller and a connection, which takes two
	// goroutines at the client and two at the server.
	settled := func() int {
		for last := 0; ; {
			<-time.After(50 * time.Millisecond)
			if n := runtime.NumGoroutine(); n == last {
				return n - before
			} else { //nolint:revive // the count is wanted in both branches
				last = n
			}
		}
	}
	if n := settled(); n > 2*waiters*6 {
		t.Errorf("%d waiting requests take %d goroutines, want 6 each at most", 2*waiters, n)
	}

	// One more waiter is woken as soon as its rollout is done, the others sleep on.
	best := time.Hour
	for range 10 {
		one := enqueue(t, b.store, "3")[0].RolloutID // taken by one of the dequeues
		wait(one)
		waiting(t, b.store, one)
		from := time.Now()
		if _, err := b.store.UpdateRollout(t.Context(), one, store.RolloutUpdate{Status: store.To(agl.RolloutSucceeded)}); err != nil {
			t.Fatal(err)
		}
		best = min(best, (<-done).Sub(from))
	}
	t.Logf("a waiter among %d was woken within %v", 2*waiters, best)
	if best > 20*time.Millisecond {
		t.Errorf("a waiter was woken after %v at the best of ten, want 20ms", best)
	}

	if _, err := b.store.UpdateRollout(t.Context(), open[0].RolloutID, store.RolloutUpdate{Status: store.To(agl.RolloutSucceeded)}); err != nil {
		t.Fatal(err)
	}
	for range waiters - 10 {
		enqueue(t, b.store, "4")
	}
	calls.Wait()
	if claims != waiters {
		t.Errorf("%d dequeues claimed %d rollouts", waiters, claims)
	}
}

// waiting waits until a rollout has been claimed, by which time the request that
// waits for it has most likely arrived too.
func waiting(tb testing.TB, s store.Store, rolloutID string) {
	tb.Helper()
	answered(tb, s, rolloutID)
	<-time.After(10 * time.Millisecond)
}
