package storetest

import (
	agl "agentlightning"
)

// lateSpanTests are the table of what a span does that arrives when nobody
// expects one.
func lateSpanTests() []test {
	retry := func(of int, on ...agl.AttemptStatus) agl.RolloutConfig {
		return agl.RolloutConfig{MaxAttempts: of, RetryCondition: on}
	}
	var tests []test
	for _, tt := range []struct {
		name        string
		config      agl.RolloutConfig
		prepare     func(f *fixture, a *agl.Attempt)
		rollout     agl.RolloutStatus // before the span
		wantRollout agl.RolloutStatus
		wantAttempt agl.AttemptStatus
	}{
		{
			"failed attempt of a failed rollout", retry(1),
			func(f *fixture, a *agl.Attempt) { f.setAttempt(a, agl.AttemptFailed) },
			agl.RolloutFailed, agl.RolloutFailed, agl.AttemptFailed,
		},
		{
			"succeeded attempt", retry(1),
			func(f *fixture, a *agl.Attempt) { f.setAttempt(a, agl.AttemptSucceeded) },
			agl.RolloutSucceeded, agl.RolloutSucceeded, agl.AttemptSucceeded,
		},
		{
			"timed-out attempt of a failed rollout", retry(1),
			func(f *fixture, a *agl.Attempt) { f.setAttempt(a, agl.AttemptTimeout) },
			agl.RolloutFailed, agl.RolloutFailed, agl.AttemptTimeout,
		},
		{
			"timed-out attempt of a requeued rollout", retry(2, agl.AttemptTimeout),
			func(f *fixture, a *agl.Attempt) { f.setAttempt(a, agl.AttemptTimeout) },
			agl.RolloutRequeuing, agl.RolloutRunning, agl.AttemptTimeout,
		},
		{
			"failed attempt of a requeued rollout", retry(2, agl.AttemptFailed),
			func(f *fixture, a *agl.Attempt) { f.setAttempt(a, agl.AttemptFailed) },
			agl.RolloutRequeuing, agl.RolloutRunning, agl.AttemptFailed,
		},
		{
			"silent attempt of a requeued rollout", retry(2, agl.AttemptUnresponsive),
			func(f *fixture, a *agl.Attempt) { f.setAttempt(a, agl.AttemptUnresponsive) },
			agl.RolloutRequeuing, agl.RolloutRunning, agl.AttemptRunning,
		},
		{
			"silent attempt of a failed rollout", retry(1),
			func(f *fixture, a *agl.Attempt) { f.setAttempt(a, agl.AttemptUnresponsive) },
			agl.RolloutFailed, agl.RolloutFailed, agl.AttemptRunning,
		},
		{
			"preparing attempt of a cancelled rollout", retry(1),
			func(f *fixture, a *agl.Attempt) { f.setRollout(a.RolloutID, agl.RolloutCancelled) },
			agl.RolloutCancelled, agl.RolloutCancelled, agl.AttemptRunning,
		},
		{
			"preparing attempt of a rollout that was ended by hand", retry(1),
			func(f *fixture, a *agl.Attempt) { f.setRollout(a.RolloutID, agl.RolloutSucceeded) },
			agl.RolloutSucceeded, agl.RolloutSucceeded, agl.AttemptRunning,
		},
		{
			"preparing attempt of a rollout queued by hand", retry(1),
			func(f *fixture, a *agl.Attempt) { f.setRollout(a.RolloutID, agl.RolloutQueuing) },
			agl.RolloutQueuing, agl.RolloutQueuing, agl.AttemptRunning,
		},
		{
			"preparing attempt of a rollout requeued by hand", retry(1),
			func(f *fixture, a *agl.Attempt) { f.setRollout(a.RolloutID, agl.RolloutRequeuing) },
			agl.RolloutRequeuing, agl.RolloutRunning, agl.AttemptRunning,
		},
	} {
		tests = append(tests, test{tt.name, "", func(f *fixture) {
			a := f.claimed(tt.config).Attempt
			tt.prepare(f, a)
			before := f.rollout(a.RolloutID)
			equal(f, "rollout before", before.Status, tt.rollout)
			f.pass(1)
			f.addSpan(a)
			got := f.rollout(a.RolloutID)
			equal(f, "rollout", got.Status, tt.wantRollout)
			equal(f, "attempt", got.Attempt.Status, tt.wantAttempt)
			f.isNow("heartbeat", got.Attempt.LastHeartbeatTime)
			f.same("end of the attempt", got.Attempt.EndTime, before.Attempt.EndTime)
			f.same("end of the rollout", got.EndTime, before.EndTime)
			claims := f.dequeue(5)
			equal(f, "claims", len(claims) == 1, tt.wantRollout.Queueing())
		}})
	}
	return append(tests,
		test{"an attempt that was overtaken leaves the rollout alone", "", func(f *fixture) {
			for _, st := range agl.AttemptStatuses() {
				ro := f.claimed(retry(3, agl.AttemptUnresponsive, agl.AttemptFailed, agl.AttemptTimeout))
				f.setAttempt(ro.Attempt, st)
				second := f.startAttempt(ro.RolloutID)
				f.addSpan(ro.Attempt)
				want := st
				if st == agl.AttemptPreparing || st == agl.AttemptUnresponsive {
					want = agl.AttemptRunning
				}
				equal(f, "old attempt", f.attempt(ro.RolloutID, ro.Attempt.AttemptID).Status, want)
				f.statuses(ro.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
				f.same("latest attempt", f.rollout(ro.RolloutID).Attempt, second.Attempt)
				f.dequeue(5)
			}
		}},
		test{"an attempt that revived can still succeed or fail", "", func(f *fixture) {
			for _, st := range []agl.AttemptStatus{agl.AttemptSucceeded, agl.AttemptFailed} {
				a := f.claimed(retry(2, agl.AttemptUnresponsive)).Attempt
				f.setAttempt(a, agl.AttemptUnresponsive)
				f.addSpan(a)
				f.setAttempt(a, st)
				f.statuses(a.RolloutID, agl.RolloutStatus(st), st)
				equal(f, "claims", len(f.dequeue(5)), 0)
			}
		}},
	)
}
