package storetest

import (
	"time"

	agl "agentlightning"
	"agentlightning/store"
)

func healthTests() []test {
	return []test{
		{"an attempt that is too old times out", Scan, func(f *fixture) {
			ro := f.claimed(agl.RolloutConfig{
				TimeoutSeconds: f.ticks(2), MaxAttempts: 2,
				RetryCondition: []agl.AttemptStatus{agl.AttemptTimeout},
			})
			f.pass(1.5)
			f.addSpan(ro.Attempt)
			f.statuses(ro.RolloutID, agl.RolloutRunning, agl.AttemptRunning)
			f.pass(1)
			f.statuses(ro.RolloutID, agl.RolloutRequeuing, agl.AttemptTimeout)
			second := f.claim()
			equal(f, "claimed", second.RolloutID, ro.RolloutID)
			f.pass(1.5) // the age is that of the attempt, not of the rollout
			f.statuses(ro.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
			f.pass(1)
			f.statuses(ro.RolloutID, agl.RolloutFailed, agl.AttemptTimeout)
			f.isNow("end of the rollout", f.rollout(ro.RolloutID).EndTime)
			if end := f.rollout(ro.RolloutID).Attempt.EndTime; end != nil {
				f.Errorf("end of the attempt = %v, want nil", *end)
			}
		}},
		{"a silent attempt is unresponsive", Scan, func(f *fixture) {
			ro := f.claimed(agl.RolloutConfig{UnresponsiveSeconds: f.ticks(2)})
			f.pass(1.5)
			f.addSpan(ro.Attempt)
			f.pass(1.5)
			f.statuses(ro.RolloutID, agl.RolloutRunning, agl.AttemptRunning)
			f.pass(1)
			f.statuses(ro.RolloutID, agl.RolloutFailed, agl.AttemptUnresponsive)
			equal(f, "claims", len(f.dequeue(1)), 0)
		}},
		{"silence counts from the start", Scan, func(f *fixture) {
			ro := f.claimed(agl.RolloutConfig{
				UnresponsiveSeconds: f.ticks(2), MaxAttempts: 2,
				RetryCondition: []agl.AttemptStatus{agl.AttemptUnresponsive},
			})
			f.pass(1)
			f.statuses(ro.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
			f.pass(1.5)
			f.statuses(ro.RolloutID, agl.RolloutRequeuing, agl.AttemptUnresponsive)
		}},
		{"limits are strict", Clock, func(f *fixture) {
			a := f.claimed(agl.RolloutConfig{TimeoutSeconds: new(2.0)})
			b := f.claimed(agl.RolloutConfig{UnresponsiveSeconds: new(2.0)})
			f.pass(2)
			f.statuses(a.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
			f.statuses(b.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
			f.pass(0.001)
			f.statuses(a.RolloutID, agl.RolloutFailed, agl.AttemptTimeout)
			f.statuses(b.RolloutID, agl.RolloutFailed, agl.AttemptUnresponsive)
		}},
		{"age wins over silence", Scan, func(f *fixture) {
			ro := f.claimed(agl.RolloutConfig{TimeoutSeconds: f.ticks(1), UnresponsiveSeconds: f.ticks(1)})
			f.pass(1.5)
			f.statuses(ro.RolloutID, agl.RolloutFailed, agl.AttemptTimeout)
		}},
		{"a heartbeat of zero is none that counts", Scan, func(f *fixture) {
			ro := f.claimed(agl.RolloutConfig{UnresponsiveSeconds: f.ticks(1)})
			must(f.UpdateAttempt(f.Context(), ro.RolloutID, agl.LatestAttempt, store.AttemptUpdate{LastHeartbeatTime: store.To(0.0)}))(f)
			f.pass(3)
			f.statuses(ro.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
		}},
		{"a negative limit fires at once", Scan, func(f *fixture) {
			ro := f.claimed(agl.RolloutConfig{TimeoutSeconds: new(-1.0)})
			f.statuses(ro.RolloutID, agl.RolloutFailed, agl.AttemptTimeout)
		}},
		{"no limit, no end", Scan, func(f *fixture) {
			ro := f.claimed(agl.RolloutConfig{})
			f.pass(5)
			f.statuses(ro.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
		}},
		{"only active rollouts are looked at", Scan, func(f *fixture) {
			c := agl.RolloutConfig{TimeoutSeconds: f.ticks(1)}
			queued := f.enqueueWith(c)
			for _, st := range []agl.RolloutStatus{agl.RolloutSucceeded, agl.RolloutFailed, agl.RolloutCancelled, agl.RolloutRequeuing} {
				started := must(f.StartRollout(f.Context(), store.StartRequest{EnqueueRequest: store.EnqueueRequest{Config: &c}}))(f)
				f.setRollout(started.RolloutID, st)
				f.pass(1.5)
				f.statuses(started.RolloutID, st, agl.AttemptPreparing)
			}
			equal(f, "status", f.rollout(queued.RolloutID).Status, agl.RolloutQueuing)
		}},
		{"limits that are set later count", Scan, func(f *fixture) {
			ro := f.claimed(agl.RolloutConfig{})
			f.pass(2)
			f.update(ro.RolloutID, store.RolloutUpdate{Config: store.To(agl.RolloutConfig{TimeoutSeconds: f.ticks(1)})})
			f.statuses(ro.RolloutID, agl.RolloutFailed, agl.AttemptTimeout)
		}},
		{"only the latest attempt is looked at", Scan, func(f *fixture) {
			ro := f.claimed(agl.RolloutConfig{TimeoutSeconds: f.ticks(2)})
			f.pass(1.5)
			f.startAttempt(ro.RolloutID)
			f.pass(1)
			f.statuses(ro.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
			equal(f, "first attempt", f.attempt(ro.RolloutID, ro.Attempt.AttemptID).Status, agl.AttemptPreparing)
		}},
		{"a finished attempt of a rollout set back to running is overwritten", Scan, func(f *fixture) {
			ro := f.claimed(agl.RolloutConfig{TimeoutSeconds: f.ticks(1)})
			f.setAttempt(ro.Attempt, agl.AttemptSucceeded)
			f.setRollout(ro.RolloutID, agl.RolloutRunning)
			f.pass(1.5)
			f.statuses(ro.RolloutID, agl.RolloutFailed, agl.AttemptTimeout)
		}},
		{"a worker that fell silent is unknown", Scan, func(f *fixture) {
			f.enqueueWith(agl.RolloutConfig{UnresponsiveSeconds: f.ticks(1)})
			must(f.DequeueRollouts(f.Context(), store.DequeueRequest{Limit: 1, WorkerID: new("w")}))(f)
			f.pass(1.5)
			got := must(f.QueryWorkers(f.Context(), store.WorkerQuery{}))(f).Items[0]
			equal(f, "status", got.Status, agl.WorkerUnknown)
			f.isNow("last idle", got.LastIdleTime)
			if got.CurrentRolloutID != nil || got.CurrentAttemptID != nil {
				f.Errorf("worker = %s, want no current ids", jsonOf(f.T, got))
			}
		}},
		{"dequeue sees what timed out", Scan, func(f *fixture) {
			ro := f.claimed(agl.RolloutConfig{TimeoutSeconds: f.ticks(1), MaxAttempts: 2, RetryCondition: []agl.AttemptStatus{agl.AttemptTimeout}})
			f.pass(1.5)
			equal(f, "claimed", f.claim().RolloutID, ro.RolloutID)
		}},
		{"many at once", Scan, func(f *fixture) {
			const n = 150
			for range n {
				f.enqueueWith(agl.RolloutConfig{TimeoutSeconds: f.ticks(30)})
			}
			equal(f, "claims", len(f.dequeue(n)), n)
			short := agl.RolloutConfig{TimeoutSeconds: new(0.0), MaxAttempts: 2, RetryCondition: []agl.AttemptStatus{agl.AttemptTimeout}}
			for _, ro := range f.query(store.RolloutQuery{}).Items {
				f.update(ro.RolloutID, store.RolloutUpdate{Config: store.To(short)})
			}
			f.pass(1)
			equal(f, "requeued", f.query(store.RolloutQuery{StatusIn: []agl.RolloutStatus{agl.RolloutRequeuing}}).Total, n)
		}},
		{"scans keep their distance", Clock, func(f *fixture) {
			f.Store = f.reopen(10 * time.Second)
			f.query(store.RolloutQuery{}) // the first call scans
			ro := f.claimed(agl.RolloutConfig{TimeoutSeconds: new(1.0)})
			f.pass(9)
			f.statuses(ro.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
			f.pass(1)
			f.statuses(ro.RolloutID, agl.RolloutFailed, agl.AttemptTimeout)
		}},
	}
}
