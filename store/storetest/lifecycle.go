package storetest

import (
	"fmt"

	agl "agentlightning"
	"agentlightning/store"
)

func lifecycleTests() []test {
	always := []agl.AttemptStatus{agl.AttemptFailed, agl.AttemptTimeout, agl.AttemptUnresponsive}
	return []test{
		{"from queue to success", "", func(f *fixture) {
			ro := f.enqueue("1")[0]
			equal(f, "status", ro.Status, agl.RolloutQueuing)
			a := f.claim().Attempt
			f.statuses(ro.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
			f.addSpan(a)
			f.statuses(ro.RolloutID, agl.RolloutRunning, agl.AttemptRunning)
			f.pass(1)
			done := f.setAttempt(a, agl.AttemptSucceeded)
			f.isNow("end of the attempt", done.EndTime)
			got := f.rollout(ro.RolloutID)
			equal(f, "status", got.Status, agl.RolloutSucceeded)
			f.isNow("end of the rollout", got.EndTime)
		}},
		{"from failure to a second attempt", "", func(f *fixture) {
			first := f.claimed(agl.RolloutConfig{MaxAttempts: 2, RetryCondition: always})
			f.setAttempt(first.Attempt, agl.AttemptFailed)
			f.statuses(first.RolloutID, agl.RolloutRequeuing, agl.AttemptFailed)
			if end := f.rollout(first.RolloutID).EndTime; end != nil {
				f.Errorf("end_time of a rollout that is retried = %v, want nil", *end)
			}
			second := f.claim()
			equal(f, "rollout of the second attempt", second.RolloutID, first.RolloutID)
			equal(f, "number of the second attempt", second.Attempt.SequenceID, 2)
			f.statuses(first.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
			f.addSpan(second.Attempt)
			f.setAttempt(second.Attempt, agl.AttemptSucceeded)
			f.statuses(first.RolloutID, agl.RolloutSucceeded, agl.AttemptSucceeded)
			history := []agl.AttemptStatus{}
			for _, a := range f.attempts(first.RolloutID) {
				history = append(history, a.Status)
			}
			f.same("history", history, []agl.AttemptStatus{agl.AttemptFailed, agl.AttemptSucceeded})
		}},
		{"the outcome of the latest attempt", "", func(f *fixture) {
			for _, tt := range []struct {
				status  agl.AttemptStatus
				listed  bool
				attempt int
				of      int
				want    agl.RolloutStatus
			}{
				{agl.AttemptPreparing, true, 1, 3, agl.RolloutPreparing},
				{agl.AttemptRunning, true, 1, 3, agl.RolloutRunning},
				{agl.AttemptSucceeded, true, 1, 3, agl.RolloutSucceeded},
				{agl.AttemptFailed, true, 1, 3, agl.RolloutRequeuing},
				{agl.AttemptFailed, true, 2, 3, agl.RolloutRequeuing},
				{agl.AttemptFailed, true, 3, 3, agl.RolloutFailed},
				{agl.AttemptFailed, true, 4, 3, agl.RolloutFailed},
				{agl.AttemptFailed, false, 1, 3, agl.RolloutFailed},
				{agl.AttemptTimeout, true, 1, 2, agl.RolloutRequeuing},
				{agl.AttemptTimeout, true, 2, 2, agl.RolloutFailed},
				{agl.AttemptTimeout, false, 1, 2, agl.RolloutFailed},
				{agl.AttemptUnresponsive, true, 1, 2, agl.RolloutRequeuing},
				{agl.AttemptUnresponsive, true, 2, 2, agl.RolloutFailed},
				{agl.AttemptUnresponsive, false, 1, 2, agl.RolloutFailed},
			} {
				c := agl.RolloutConfig{MaxAttempts: tt.of}
				if tt.listed {
					c.RetryCondition = []agl.AttemptStatus{tt.status}
				}
				ro := f.claimed(c)
				for range tt.attempt - 1 {
					ro = f.startAttempt(ro.RolloutID)
				}
				f.setAttempt(ro.Attempt, tt.status)
				equal(f, fmt.Sprintf("%s, listed %v, %d of %d", tt.status, tt.listed, tt.attempt, tt.of),
					f.rollout(ro.RolloutID).Status, tt.want)
				equal(f, "claims", len(f.dequeue(5)) == 1, tt.want == agl.RolloutRequeuing)
			}
		}},
		{"every move of an attempt moves its rollout", "", func(f *fixture) {
			for _, from := range agl.AttemptStatuses() {
				for _, to := range agl.AttemptStatuses() {
					ro := f.claimed(agl.RolloutConfig{MaxAttempts: 2, RetryCondition: always})
					f.setAttempt(ro.Attempt, from)
					f.setAttempt(ro.Attempt, to)
					want := agl.RolloutRequeuing
					switch to {
					case agl.AttemptPreparing, agl.AttemptRunning, agl.AttemptSucceeded:
						want = agl.RolloutStatus(to)
					case agl.AttemptFailed, agl.AttemptTimeout, agl.AttemptUnresponsive:
					}
					f.statuses(ro.RolloutID, want, to)
					f.dequeue(5)
				}
			}
		}},
		{"what an old attempt sends late stays with it", "", func(f *fixture) {
			first := f.claimed(agl.RolloutConfig{MaxAttempts: 2, RetryCondition: always})
			f.setAttempt(first.Attempt, agl.AttemptUnresponsive)
			second := f.claim()
			before := f.rollout(first.RolloutID)
			f.pass(1)
			f.addSpan(first.Attempt)
			f.setAttempt(first.Attempt, agl.AttemptSucceeded)
			f.same("rollout", f.rollout(first.RolloutID), before)
			f.same("latest attempt", f.attempt(first.RolloutID, second.Attempt.AttemptID), second.Attempt)
			old := f.attempt(first.RolloutID, first.Attempt.AttemptID)
			equal(f, "old attempt", old.Status, agl.AttemptSucceeded)
			f.isNow("end of the old attempt", old.EndTime)
			for attempt, want := range map[string]int{first.Attempt.AttemptID: 1, second.Attempt.AttemptID: 0} {
				page := must(f.QuerySpans(f.Context(), store.SpanQuery{RolloutID: first.RolloutID, AttemptID: &attempt}))(f)
				equal(f, "spans of an attempt", page.Total, want)
			}
			equal(f, "claims", len(f.dequeue(5)), 0)
		}},
		{"only the latest attempt counts", "", func(f *fixture) {
			first := f.claimed(agl.RolloutConfig{MaxAttempts: 5, RetryCondition: always})
			second := f.startAttempt(first.RolloutID)
			for _, st := range agl.AttemptStatuses() {
				f.setAttempt(first.Attempt, st)
				equal(f, "rollout while the first is "+string(st), f.rollout(first.RolloutID).Status, agl.RolloutPreparing)
			}
			f.setAttempt(second.Attempt, agl.AttemptSucceeded)
			f.statuses(first.RolloutID, agl.RolloutSucceeded, agl.AttemptSucceeded)
			third := f.startAttempt(first.RolloutID)
			f.statuses(first.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
			f.setAttempt(second.Attempt, agl.AttemptFailed)
			f.statuses(first.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
			f.update(first.RolloutID, store.RolloutUpdate{Config: store.To(agl.RolloutConfig{})})
			f.setAttempt(third.Attempt, agl.AttemptFailed)
			f.statuses(first.RolloutID, agl.RolloutFailed, agl.AttemptFailed)
			equal(f, "claims", len(f.dequeue(5)), 0)
		}},
		{"a bare update pulls the rollout back to its attempt", "", func(f *fixture) {
			ro := f.claimed(agl.RolloutConfig{})
			f.setRollout(ro.RolloutID, agl.RolloutCancelled)
			must(f.UpdateAttempt(f.Context(), ro.RolloutID, agl.LatestAttempt, store.AttemptUpdate{}))(f)
			f.statuses(ro.RolloutID, agl.RolloutPreparing, agl.AttemptPreparing)
			f.addSpan(ro.Attempt)
			f.setRollout(ro.RolloutID, agl.RolloutRequeuing)
			must(f.UpdateAttempt(f.Context(), ro.RolloutID, ro.Attempt.AttemptID,
				store.AttemptUpdate{LastHeartbeatTime: store.To(1.0)}))(f)
			f.statuses(ro.RolloutID, agl.RolloutRunning, agl.AttemptRunning)
			equal(f, "claims", len(f.dequeue(5)), 0)
		}},
		{"an update that changes nothing leaves the end alone", "", func(f *fixture) {
			a := f.claimed(agl.RolloutConfig{}).Attempt
			f.setAttempt(a, agl.AttemptSucceeded)
			before := f.rollout(a.RolloutID).Rollout
			f.pass(1)
			f.setAttempt(a, agl.AttemptSucceeded)
			f.same("rollout", f.rollout(a.RolloutID).Rollout, before)
		}},
		{"success after a hand-made requeue is final", "", func(f *fixture) {
			ro := f.claimed(agl.RolloutConfig{})
			f.setRollout(ro.RolloutID, agl.RolloutRequeuing)
			f.setAttempt(ro.Attempt, agl.AttemptSucceeded)
			f.statuses(ro.RolloutID, agl.RolloutSucceeded, agl.AttemptSucceeded)
			equal(f, "claims", len(f.dequeue(5)), 0)
		}},
	}
}
