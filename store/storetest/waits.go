package storetest

import (
	"context"
	"errors"
	"time"

	agl "agentlightning"
	"agentlightning/store"
)

const forever = -1 * time.Second

type waited struct {
	got []agl.Rollout
	err error
}

func (f *fixture) wait(ids []string, timeout time.Duration) []agl.Rollout {
	f.Helper()
	return must(f.WaitForRollouts(f.Context(), ids, timeout))(f)
}

func (f *fixture) waitCount(ids []string, count int, timeout time.Duration) []agl.Rollout {
	f.Helper()
	return must(f.WaitForCount(f.Context(), ids, count, timeout))(f)
}

func (f *fixture) waiting(ctx context.Context, ids []string, timeout time.Duration) <-chan waited {
	done := make(chan waited, 1)
	go func() {
		got, err := f.WaitForRollouts(ctx, ids, timeout)
		done <- waited{got, err}
	}()
	return done
}

// breathe gives calls that were started the time to reach the point where they
// wait. The tests hold either way; this makes the harder way the likely one.
func (f *fixture) breathe() {
	t := time.NewTimer(20 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
	case <-f.Context().Done():
	}
}

func waitTests() []test {
	return []test{
		{"finished rollouts are answered at once", "", func(f *fixture) {
			all := ids(f.enqueue("0", "1", "2"))
			done := []agl.Rollout{
				f.setRollout(all[0], agl.RolloutFailed), f.setRollout(all[1], agl.RolloutCancelled),
				f.setRollout(all[2], agl.RolloutSucceeded),
			}
			for _, timeout := range []time.Duration{0, time.Hour, forever} {
				f.same("rollouts", result(f, f.waiting(f.Context(), all, timeout)).got, done)
			}
		}},
		{"in the order asked for, repeated ones repeated", "", func(f *fixture) {
			all := ids(f.enqueue("0", "1"))
			f.setRollout(all[0], agl.RolloutFailed)
			f.setRollout(all[1], agl.RolloutFailed)
			want := []string{all[1], all[0], all[1]}
			sameIDs(f, "rollouts", ids(f.wait(want, time.Hour)), want)
		}},
		{"unknown ids are not waited for", "", func(f *fixture) {
			id := f.enqueue("0")[0].RolloutID
			f.setRollout(id, agl.RolloutSucceeded)
			sameIDs(f, "rollouts", ids(result(f, f.waiting(f.Context(), []string{"ro-x", id}, forever)).got), []string{id})
			sameIDs(f, "rollouts", ids(result(f, f.waiting(f.Context(), []string{"ro-x"}, forever)).got), nil)
			sameIDs(f, "rollouts", ids(result(f, f.waiting(f.Context(), nil, forever)).got), nil)
		}},
		{"a look takes no time", "", func(f *fixture) {
			all := ids(f.enqueue("0", "1"))
			f.setRollout(all[1], agl.RolloutSucceeded)
			from := time.Now()
			sameIDs(f, "rollouts", ids(f.wait(all, 0)), all[1:])
			if d := time.Since(from); d > time.Second {
				f.Errorf("it took %v", d)
			}
		}},
		{"a timeout answers what there is", "", func(f *fixture) {
			all := ids(f.enqueue("0", "1"))
			f.setRollout(all[1], agl.RolloutSucceeded)
			from := time.Now()
			sameIDs(f, "rollouts", ids(f.wait(all, 50*time.Millisecond)), all[1:])
			if d := time.Since(from); d < 50*time.Millisecond {
				f.Errorf("it took %v, want 50ms at least", d)
			}
		}},
		{"every way to finish wakes all who wait", "", func(f *fixture) {
			for name, finish := range map[string]func(a *agl.Attempt){
				"rollout update": func(a *agl.Attempt) { f.setRollout(a.RolloutID, agl.RolloutCancelled) },
				"success":        func(a *agl.Attempt) { f.setAttempt(a, agl.AttemptSucceeded) },
				"failure":        func(a *agl.Attempt) { f.setAttempt(a, agl.AttemptFailed) },
			} {
				a, b := f.claimed(agl.RolloutConfig{}).Attempt, f.claimed(agl.RolloutConfig{}).Attempt
				both := []string{a.RolloutID, b.RolloutID}
				calls := []<-chan waited{f.waiting(f.Context(), both, forever), f.waiting(f.Context(), both[1:], time.Hour), f.waiting(f.Context(), both, forever)}
				f.breathe()
				finish(b)
				sameIDs(f, name, ids(result(f, calls[1]).got), both[1:])
				finish(a)
				for _, i := range []int{0, 2} {
					r := result(f, calls[i])
					f.ok(r.err)
					f.same(name, r.got, []agl.Rollout{f.rollout(a.RolloutID).Rollout, f.rollout(b.RolloutID).Rollout})
				}
			}
		}},
		{"a count is enough", "", func(f *fixture) {
			all := ids(f.enqueue("0", "1", "2", "3"))
			f.setRollout(all[3], agl.RolloutFailed)
			sameIDs(f, "one of four", ids(f.waitCount(append(all, all...), 1, forever)), []string{all[3], all[3]})
			done := make(chan waited, 1)
			go func() {
				got, err := f.WaitForCount(f.Context(), all, 3, forever)
				done <- waited{got, err}
			}()
			f.breathe()
			f.setRollout(all[1], agl.RolloutCancelled)
			f.breathe()
			select {
			case r := <-done:
				f.Fatalf("the wait for three ended with two: %+v", r)
			default:
			}
			f.setRollout(all[0], agl.RolloutSucceeded)
			sameIDs(f, "three of four", ids(result(f, done).got), []string{all[0], all[1], all[3]})
			f.setRollout(all[2], agl.RolloutSucceeded)
		}},
		{"a count that cannot be reached, or of none, does not wait", "", func(f *fixture) {
			all := ids(f.enqueue("0", "1"))
			sameIDs(f, "none", ids(f.waitCount(all, 0, forever)), nil)
			sameIDs(f, "less than none", ids(f.waitCount(all, -1, forever)), nil)
			sameIDs(f, "at the timeout", ids(f.waitCount(all, 1, 30*time.Millisecond)), nil)
			f.setRollout(all[1], agl.RolloutFailed)
			sameIDs(f, "more than there are", ids(f.waitCount([]string{all[1], "ro-x"}, 2, forever)), all[1:])
		}},
		{"a retry is not the end", "", func(f *fixture) {
			a := f.claimed(agl.RolloutConfig{MaxAttempts: 2, RetryCondition: []agl.AttemptStatus{agl.AttemptFailed}}).Attempt
			done := f.waiting(f.Context(), []string{a.RolloutID}, forever)
			f.setAttempt(a, agl.AttemptFailed)
			second := f.claim()
			f.breathe()
			select {
			case r := <-done:
				f.Fatalf("the wait ended with %+v", r)
			default:
			}
			f.setAttempt(second.Attempt, agl.AttemptSucceeded)
			sameIDs(f, "rollouts", ids(result(f, done).got), []string{a.RolloutID})
		}},
		{"time limits end a wait", Scan, func(f *fixture) {
			a := f.claimed(agl.RolloutConfig{TimeoutSeconds: f.ticks(2)}).Attempt
			done := f.waiting(f.Context(), []string{a.RolloutID}, forever)
			f.breathe()
			f.pass(2.5)
			r := result(f, done)
			f.ok(r.err)
			equal(f, "status", r.got[0].Status, agl.RolloutFailed)
		}},
		{"cancelling ends a wait", "", func(f *fixture) {
			ctx, cancel := context.WithCancel(f.Context())
			done := f.waiting(ctx, ids(f.enqueue("0")), forever)
			f.breathe()
			cancel()
			if r := result(f, done); !errors.Is(r.err, context.Canceled) {
				f.Errorf("error = %v, want context.Canceled", r.err)
			}
		}},
		{"Close ends a wait", "", func(f *fixture) {
			f.Store = f.reopen(0)
			done := f.waiting(f.Context(), ids(f.enqueue("0")), forever)
			f.breathe()
			f.ok(f.Close())
			f.refused(result(f, done).err, store.ErrClosed, "")
		}},
		{"waiting holds nobody up", "", func(f *fixture) {
			all := ids(f.enqueue("0", "1"))
			done := f.waiting(f.Context(), all[:1], forever)
			f.breathe()
			sameIDs(f, "claims", attemptedIDs(f.dequeue(5)), all)
			f.setRollout(all[0], agl.RolloutSucceeded)
			sameIDs(f, "rollouts", ids(result(f, done).got), all[:1])
		}},
	}
}
