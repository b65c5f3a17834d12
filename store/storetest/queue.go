package storetest

import (
	"encoding/json"
	"fmt"
	"sync"

	agl "agentlightning"
	"agentlightning/store"
)

func queueTests() []test {
	return []test{
		{"first in, first out", "", func(f *fixture) {
			var want []string
			for i := range 5 {
				want = append(want, f.enqueue(fmt.Sprint(i))[0].RolloutID)
			}
			f.pass(1)
			for _, id := range want {
				got := f.claim()
				equal(f, "claimed", got.RolloutID, id)
				f.same("attempt", got.Attempt, agl.Attempt{
					RolloutID: id, AttemptID: got.Attempt.AttemptID, SequenceID: 1,
					StartTime: got.Attempt.StartTime, Status: agl.AttemptPreparing,
				})
				f.isNow("start of the attempt", &got.Attempt.StartTime)
				f.statuses(id, agl.RolloutPreparing, agl.AttemptPreparing)
			}
			for range 3 {
				equal(f, "claims of an empty queue", len(f.dequeue(1)), 0)
			}
		}},
		{"a batch claims what there is", "", func(f *fixture) {
			batch := ids(f.enqueue("0", "1", "2", "3", "4"))
			got := must(f.DequeueRollouts(f.Context(), store.DequeueRequest{Limit: 3, WorkerID: new("w")}))(f)
			sameIDs(f, "three", attemptedIDs(got), batch[:3])
			for _, ro := range got {
				equal(f, "worker", *ro.Attempt.WorkerID, "w")
			}
			sameIDs(f, "the rest", attemptedIDs(f.dequeue(10)), batch[3:])
			equal(f, "claims of an empty queue", len(f.dequeue(10)), 0)
		}},
		{"a limit of nothing touches nothing", "", func(f *fixture) {
			id := f.enqueue("0")[0].RolloutID
			for _, limit := range []int{0, -1} {
				got := must(f.DequeueRollouts(f.Context(), store.DequeueRequest{Limit: limit, WorkerID: new("w")}))(f)
				equal(f, "claims", len(got), 0)
			}
			_, err := f.Worker(f.Context(), "w")
			f.refused(err, store.ErrNotFound, "")
			equal(f, "claimed", f.claim().RolloutID, id)
		}},
		{"finished rollouts are skipped", "", func(f *fixture) {
			batch := ids(f.enqueue("0", "1", "2", "3", "4"))
			f.setRollout(batch[0], agl.RolloutSucceeded)
			f.setRollout(batch[1], agl.RolloutFailed)
			f.setRollout(batch[3], agl.RolloutCancelled)
			sameIDs(f, "claims", attemptedIDs(f.dequeue(2)), []string{batch[2], batch[4]})
			equal(f, "status", f.rollout(batch[0]).Status, agl.RolloutSucceeded)
			equal(f, "status", f.rollout(batch[1]).Status, agl.RolloutFailed)
			equal(f, "attempts", len(f.attempts(batch[3])), 0)
		}},
		{"requeueing makes a second attempt", "", func(f *fixture) {
			first := f.claimed(agl.RolloutConfig{})
			f.setRollout(first.RolloutID, agl.RolloutRequeuing)
			second := f.claim()
			equal(f, "rollout", second.RolloutID, first.RolloutID)
			equal(f, "sequence id", second.Attempt.SequenceID, 2)
			equal(f, "status", second.Attempt.Status, agl.AttemptPreparing)
			if second.Attempt.AttemptID == first.Attempt.AttemptID {
				f.Error("the second attempt has the id of the first")
			}
		}},
		{"requeueing twice queues once", "", func(f *fixture) {
			ro := f.claimed(agl.RolloutConfig{})
			f.setRollout(ro.RolloutID, agl.RolloutRequeuing)
			f.setRollout(ro.RolloutID, agl.RolloutQueuing)
			f.setRollout(ro.RolloutID, agl.RolloutRequeuing)
			equal(f, "claims", len(f.dequeue(10)), 1)
		}},
		{"requeued rollouts go to the back", "", func(f *fixture) {
			first := f.claimed(agl.RolloutConfig{})
			waiting := f.enqueue("1")[0]
			f.setRollout(first.RolloutID, agl.RolloutRequeuing)
			sameIDs(f, "claims", attemptedIDs(f.dequeue(2)), []string{waiting.RolloutID, first.RolloutID})
		}},
		{"a stale entry keeps its place", "", func(f *fixture) {
			batch := ids(f.enqueue("0", "1"))
			f.startAttempt(batch[0])
			f.setRollout(batch[0], agl.RolloutRequeuing)
			sameIDs(f, "claims", attemptedIDs(f.dequeue(5)), batch)
		}},
		{"a stale entry is dropped when it is popped", "", func(f *fixture) {
			batch := ids(f.enqueue("0", "1", "2"))
			started := f.startAttempt(batch[0])
			equal(f, "claimed", f.claim().RolloutID, batch[1])
			f.setRollout(batch[0], agl.RolloutRequeuing)
			sameIDs(f, "claims", attemptedIDs(f.dequeue(5)), []string{batch[2], batch[0]})
			equal(f, "attempts", len(f.attempts(batch[0])), started.Attempt.SequenceID+1)
		}},
		{"each is handed out once", "", func(f *fixture) {
			for range 20 {
				f.enqueue("0")
			}
			var mu sync.Mutex
			seen := map[string]int{}
			empty := 0
			together(30, func(int) {
				got, err := f.DequeueRollouts(f.Context(), store.DequeueRequest{Limit: 1})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					f.Error(err)
				}
				if len(got) == 0 {
					empty++
				}
				for _, ro := range got {
					seen[ro.RolloutID]++
				}
			})
			equal(f, "distinct claims", len(seen), 20)
			equal(f, "empty claims", empty, 10)
		}},
		{"batches do not overlap", "", func(f *fixture) {
			f.enqueue("0", "1", "2", "3", "4", "5")
			batches := make([][]agl.AttemptedRollout, 2)
			together(2, func(i int) {
				var err error
				if batches[i], err = f.DequeueRollouts(f.Context(), store.DequeueRequest{Limit: 3}); err != nil {
					f.Error(err)
				}
			})
			seen := map[string]bool{}
			for _, b := range batches {
				equal(f, "batch", len(b), 3)
				for _, ro := range b {
					seen[ro.RolloutID] = true
				}
			}
			equal(f, "distinct claims", len(seen), 6)
		}},
		{"batches enqueued at once stay together", "", func(f *fixture) {
			together(5, func(i int) {
				in := json.RawMessage(fmt.Sprint(i))
				if _, err := f.EnqueueRollouts(f.Context(), []store.EnqueueRequest{{Input: in}, {Input: in}, {Input: in}}); err != nil {
					f.Error(err)
				}
			})
			got := f.dequeue(100)
			equal(f, "claims", len(got), 15)
			for i := 0; i+2 < len(got); i += 3 {
				equal(f, "second of a batch", string(got[i+1].Input), string(got[i].Input))
				equal(f, "third of a batch", string(got[i+2].Input), string(got[i].Input))
			}
		}},
		{"a key repeats its claim", Keys, func(f *fixture) {
			batch := ids(f.enqueue("0", "1", "2"))
			req := store.DequeueRequest{Limit: 2, WorkerID: new("w"), Key: "k1"}
			first := must(f.DequeueRollouts(f.Context(), req))(f)
			again := must(f.DequeueRollouts(f.Context(), req))(f)
			sameIDs(f, "claims", attemptedIDs(first), batch[:2])
			f.same("repeated claims", again, first)
			req.Key = "k2"
			sameIDs(f, "claims of another key", attemptedIDs(must(f.DequeueRollouts(f.Context(), req))(f)), batch[2:])
			equal(f, "attempts", len(f.attempts(batch[0])), 1)
		}},
		{"a key that claimed nothing may claim later", "", func(f *fixture) {
			req := store.DequeueRequest{Limit: 1, Key: "k"}
			equal(f, "claims", len(must(f.DequeueRollouts(f.Context(), req))(f)), 0)
			id := f.enqueue("0")[0].RolloutID
			sameIDs(f, "claims", attemptedIDs(must(f.DequeueRollouts(f.Context(), req))(f)), []string{id})
		}},
		{"a key does not repeat a claim that is over", "", func(f *fixture) {
			f.enqueue("0")
			req := store.DequeueRequest{Limit: 1, Key: "k"}
			got := must(f.DequeueRollouts(f.Context(), req))(f)
			f.setAttempt(got[0].Attempt, agl.AttemptSucceeded)
			equal(f, "claims", len(must(f.DequeueRollouts(f.Context(), req))(f)), 0)
		}},
		{"a key is forgotten after a while", Clock, func(f *fixture) {
			batch := ids(f.enqueue("0", "1"))
			req := store.DequeueRequest{Limit: 1, Key: "k"}
			sameIDs(f, "claims", attemptedIDs(must(f.DequeueRollouts(f.Context(), req))(f)), batch[:1])
			f.pass(24 * 3600)
			sameIDs(f, "claims", attemptedIDs(must(f.DequeueRollouts(f.Context(), req))(f)), batch[1:])
		}},
		{"one key at once claims once", Keys, func(f *fixture) {
			f.enqueue("0", "1", "2", "3")
			var mu sync.Mutex
			seen := map[string]bool{}
			together(8, func(int) {
				got, err := f.DequeueRollouts(f.Context(), store.DequeueRequest{Limit: 1, Key: "k"})
				if err != nil {
					f.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				seen[got[0].Attempt.AttemptID] = true
			})
			equal(f, "distinct claims", len(seen), 1)
		}},
	}
}
