package storetest

import (
	"encoding/json"
	"time"

	agl "agentlightning"
	"agentlightning/store"
)

func releaseTests() []test {
	tests := []test{
		{"a released claim was never made", "", func(f *fixture) {
			batch := ids(f.enqueue("0", "1", "2", "3"))
			before := f.rollout(batch[1])
			got := must(f.DequeueRollouts(f.Context(), store.DequeueRequest{Limit: 3, WorkerID: new("w")}))(f)
			f.ok(f.ReleaseRollouts(f.Context(), got[1:]))
			f.same("released rollout", f.rollout(batch[1]), before)
			equal(f, "attempts", len(f.attempts(batch[1])), 0)
			w := must(f.Worker(f.Context(), "w"))(f)
			equal(f, "worker status", w.Status, agl.WorkerIdle)
			if w.CurrentAttemptID != nil {
				f.Errorf("current attempt of the worker = %q, want nil", *w.CurrentAttemptID)
			}
			f.same("claim that was kept", f.rollout(batch[0]), got[0])
			sameIDs(f, "claims", attemptedIDs(f.dequeue(5)), batch[1:])
			equal(f, "sequence id", f.attempts(batch[1])[0].SequenceID, 1)
		}},
		{"a released retry is requeued", "", func(f *fixture) {
			first := f.claimed(agl.RolloutConfig{})
			f.setRollout(first.RolloutID, agl.RolloutRequeuing)
			behind := f.enqueue("0")[0]
			f.ok(f.ReleaseRollouts(f.Context(), []agl.AttemptedRollout{f.claim()}))
			equal(f, "status", f.rollout(first.RolloutID).Status, agl.RolloutRequeuing)
			f.same("latest attempt", f.rollout(first.RolloutID).Attempt, first.Attempt)
			sameIDs(f, "claims", attemptedIDs(f.dequeue(5)), []string{first.RolloutID, behind.RolloutID})
			equal(f, "sequence id of the new attempt", f.rollout(first.RolloutID).Attempt.SequenceID, 2)
		}},
		{"a claim that was used stays", "", func(f *fixture) {
			for name, use := range map[string]func(a *agl.Attempt){
				"span": func(a *agl.Attempt) { f.addSpan(a) },
				"heartbeat": func(a *agl.Attempt) {
					must(f.UpdateAttempt(f.Context(), a.RolloutID, a.AttemptID, store.AttemptUpdate{LastHeartbeatTime: store.To(5.0)}))(f)
				},
				"metadata": func(a *agl.Attempt) {
					must(f.UpdateAttempt(f.Context(), a.RolloutID, a.AttemptID, store.AttemptUpdate{Metadata: store.To(json.RawMessage(`{}`))}))(f)
				},
				"succeeded": func(a *agl.Attempt) { f.setAttempt(a, agl.AttemptSucceeded) },
				"cancelled": func(a *agl.Attempt) { f.setRollout(a.RolloutID, agl.RolloutCancelled) },
				"restarted": func(a *agl.Attempt) { f.startAttempt(a.RolloutID) },
			} {
				got := f.claimed(agl.RolloutConfig{})
				use(got.Attempt)
				before := f.rollout(got.RolloutID)
				f.ok(f.ReleaseRollouts(f.Context(), []agl.AttemptedRollout{got}))
				f.same(name, f.rollout(got.RolloutID), before)
				equal(f, "claims after "+name, len(f.dequeue(1)), 0)
			}
		}},
		{"releasing twice releases once", "", func(f *fixture) {
			got := f.claimed(agl.RolloutConfig{})
			f.ok(f.ReleaseRollouts(f.Context(), []agl.AttemptedRollout{got, got}))
			f.ok(f.ReleaseRollouts(f.Context(), []agl.AttemptedRollout{got}))
			equal(f, "claims", len(f.dequeue(5)), 1)
			f.ok(f.ReleaseRollouts(f.Context(), []agl.AttemptedRollout{got}))
			equal(f, "claims after releasing the claim of another", len(f.dequeue(5)), 0)
		}},
		{"releasing nothing or the unknown is nothing", "", func(f *fixture) {
			f.ok(f.ReleaseRollouts(f.Context(), nil))
			f.ok(f.ReleaseRollouts(f.Context(), []agl.AttemptedRollout{{
				Rollout: agl.Rollout{RolloutID: "ro-x"},
				Attempt: &agl.Attempt{RolloutID: "ro-x", AttemptID: "at-x"},
			}}))
			equal(f, "claims", len(f.dequeue(5)), 0)
		}},
		{"a release wakes a waiting call", "", func(f *fixture) {
			got := f.claimed(agl.RolloutConfig{})
			done := f.waitingClaim(f.Context(), store.DequeueRequest{Limit: 1, Wait: time.Hour, WorkerID: new("w")})
			f.waits("w")
			f.ok(f.ReleaseRollouts(f.Context(), []agl.AttemptedRollout{got}))
			r := result(f, done)
			f.ok(r.err)
			sameIDs(f, "claims", attemptedIDs(r.got), []string{got.RolloutID})
		}},
		{"a key does not repeat a released claim", "", func(f *fixture) {
			id := f.enqueue("0")[0].RolloutID
			req := store.DequeueRequest{Limit: 1, Key: "k"}
			first := must(f.DequeueRollouts(f.Context(), req))(f)
			f.ok(f.ReleaseRollouts(f.Context(), first))
			again := must(f.DequeueRollouts(f.Context(), req))(f)
			sameIDs(f, "claims", attemptedIDs(again), []string{id})
			if again[0].Attempt.AttemptID == first[0].Attempt.AttemptID {
				f.Error("the attempt that was released is handed out again")
			}
		}},
	}
	for i := range tests {
		tests[i].needs = Release
	}
	return tests
}
