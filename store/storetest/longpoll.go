package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	agl "agentlightning"
	"agentlightning/store"
)

// soon is a limit for things that happen at once; only failures wait for it.
const soon = 10 * time.Second

type claims struct {
	got []agl.AttemptedRollout
	err error
}

// waitingClaim starts a call that waits for work.
func (f *fixture) waitingClaim(ctx context.Context, req store.DequeueRequest) <-chan claims {
	done := make(chan claims, 1)
	go func() {
		got, err := f.DequeueRollouts(ctx, req)
		done <- claims{got, err}
	}()
	return done
}

// result waits for a call that must end soon.
func result[T any](f *fixture, done <-chan T) T {
	f.Helper()
	var r T
	select {
	case r = <-done:
	case <-time.After(soon):
		f.Fatalf("the call still waits after %v", soon)
	}
	return r
}

// until waits for a condition that must come true soon.
func (f *fixture) until(what string, holds func() bool) {
	f.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(soon); !holds(); <-tick.C {
		if time.Now().After(limit) {
			f.Fatalf("%s: not after %v", what, soon)
		}
	}
}

// waits holds once a worker has looked at the queue and found nothing: its call
// stands in line by then.
func (f *fixture) waits(worker string) {
	f.Helper()
	f.until("worker "+worker+" waits for work", func() bool {
		w, err := f.Worker(f.Context(), worker)
		return err == nil && w.LastDequeueTime != nil
	})
}

func longPollTests() []test {
	return []test{
		{"work that is there is claimed at once", "", func(f *fixture) {
			id := f.enqueue("0")[0].RolloutID
			r := result(f, f.waitingClaim(f.Context(), store.DequeueRequest{Limit: 1, Wait: time.Hour}))
			f.ok(r.err)
			sameIDs(f, "claims", attemptedIDs(r.got), []string{id})
		}},
		{"an enqueue wakes a waiting call", "", func(f *fixture) {
			done := f.waitingClaim(f.Context(), store.DequeueRequest{Limit: 4, Wait: time.Hour, WorkerID: new("w")})
			f.waits("w")
			id := f.enqueue("0")[0].RolloutID
			r := result(f, done)
			f.ok(r.err)
			sameIDs(f, "claims", attemptedIDs(r.got), []string{id})
			w := must(f.Worker(f.Context(), "w"))(f)
			equal(f, "worker status", w.Status, agl.WorkerBusy)
			equal(f, "rollout of the worker", *w.CurrentRolloutID, id)
		}},
		{"a requeue wakes a waiting call", "", func(f *fixture) {
			ro := f.claimed(agl.RolloutConfig{MaxAttempts: 2, RetryCondition: []agl.AttemptStatus{agl.AttemptFailed}})
			done := f.waitingClaim(f.Context(), store.DequeueRequest{Limit: 1, Wait: time.Hour, WorkerID: new("w")})
			f.waits("w")
			f.setAttempt(ro.Attempt, agl.AttemptFailed)
			r := result(f, done)
			f.ok(r.err)
			sameIDs(f, "claims", attemptedIDs(r.got), []string{ro.RolloutID})
			equal(f, "sequence id", r.got[0].Attempt.SequenceID, 2)
		}},
		{"a timeout ends the wait with nothing", "", func(f *fixture) {
			from := time.Now()
			r := result(f, f.waitingClaim(f.Context(), store.DequeueRequest{Limit: 1, Wait: 50 * time.Millisecond, WorkerID: new("w")}))
			f.ok(r.err)
			equal(f, "claims", len(r.got), 0)
			if waited := time.Since(from); waited < 50*time.Millisecond {
				f.Errorf("it waited %v, want 50ms at least", waited)
			}
			equal(f, "worker status", must(f.Worker(f.Context(), "w"))(f).Status, agl.WorkerIdle)
		}},
		{"cancelling ends the wait", "", func(f *fixture) {
			ctx, cancel := context.WithCancel(f.Context())
			done := f.waitingClaim(ctx, store.DequeueRequest{Limit: 1, Wait: time.Hour, WorkerID: new("w")})
			f.waits("w")
			cancel()
			if r := result(f, done); !errors.Is(r.err, context.Canceled) {
				f.Errorf("error = %v, want context.Canceled", r.err)
			}
			equal(f, "claimed", f.enqueue("0")[0].RolloutID, f.claim().RolloutID)
		}},
		{"each waiting call gets one", "", func(f *fixture) {
			const n = 20
			var calls []<-chan claims
			for i := range n {
				w := fmt.Sprint("w", i)
				calls = append(calls, f.waitingClaim(f.Context(), store.DequeueRequest{Limit: 1, Wait: time.Hour, WorkerID: &w}))
				f.waits(w)
			}
			for range n {
				f.enqueue("0")
			}
			seen := map[string]bool{}
			for _, c := range calls {
				r := result(f, c)
				f.ok(r.err)
				for _, ro := range r.got {
					seen[ro.RolloutID] = true
				}
			}
			equal(f, "distinct claims", len(seen), n)
		}},
		{"nothing is left behind when callers give up", "", func(f *fixture) {
			ctx, cancel := context.WithCancel(f.Context())
			var impatient, steady sync.WaitGroup
			steady.Go(func() {
				for ctx.Err() == nil {
					if _, err := f.DequeueRollouts(ctx, store.DequeueRequest{Limit: 1, Wait: time.Hour}); err != nil && ctx.Err() == nil {
						f.Error(err)
						return
					}
				}
			})
			brief, giveUp := context.WithCancel(ctx)
			for i := range 12 {
				impatient.Go(func() {
					for brief.Err() == nil {
						c, done := context.WithTimeout(brief, time.Duration(500+100*i)*time.Microsecond)
						_, err := f.DequeueRollouts(c, store.DequeueRequest{Limit: 1, Wait: time.Duration(1+i%3) * time.Millisecond})
						if err != nil && c.Err() == nil {
							f.Error(err)
						}
						done()
					}
				})
			}
			for range 60 {
				f.enqueue("0")
			}
			giveUp()
			impatient.Wait()
			// A call that gave up in the middle of a claim loses its answer, but
			// whatever is still queued must reach the one that waits on.
			f.until("the queue is empty", func() bool {
				q := store.RolloutQuery{StatusIn: []agl.RolloutStatus{agl.RolloutQueuing}}
				return must(f.QueryRollouts(f.Context(), q))(f).Total == 0
			})
			cancel()
			steady.Wait()
		}},
		{"Close ends the wait", "", func(f *fixture) {
			s := f.reopen(0)
			done := make(chan error, 1)
			go func() {
				_, err := s.DequeueRollouts(f.Context(), store.DequeueRequest{Limit: 1, Wait: time.Hour, WorkerID: new("w")})
				done <- err
			}()
			f.until("the call waits", func() bool {
				w, err := s.Worker(f.Context(), "w")
				return err == nil && w.LastDequeueTime != nil
			})
			f.ok(s.Close())
			f.refused(result(f, done), store.ErrClosed, "")
		}},
	}
}
