package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	agl "agentlightning"
	"agentlightning/store"
)

func (f *fixture) keyed(key string) context.Context { return store.WithKey(f.Context(), key) }

// keyTests repeat calls under their key, as a client does whose answer was lost.
func keyTests() []test {
	enqueue := func(f *fixture, key, input string) ([]agl.Rollout, error) {
		return f.EnqueueRollouts(f.keyed(key), []store.EnqueueRequest{{Input: json.RawMessage(input)}, {Input: json.RawMessage(`2`)}})
	}
	return []test{
		{"an enqueue is done once", Keys, func(f *fixture) {
			first := must(enqueue(f, "k", `{"a":1}`))(f)
			again := must(enqueue(f, "k", `{"a":1}`))(f)
			f.same("the repetition", again, first)
			must(enqueue(f, "other", `{"a":1}`))(f)
			equal(f, "rollouts", must(f.Statistics(f.Context()))(f).TotalRollouts, 4)
			for range 4 {
				equal(f, "claims", len(f.dequeue(1)), 1)
			}
			equal(f, "claims beyond", len(f.dequeue(1)), 0)
		}},
		{"a start is done once", Keys, func(f *fixture) {
			start := func() (agl.AttemptedRollout, error) {
				return f.StartRollout(f.keyed("k"), store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: json.RawMessage(`1`)}})
			}
			first := must(start())(f)
			f.same("the repetition", must(start())(f), first)
			attempt := func() (agl.AttemptedRollout, error) { return f.StartAttempt(f.keyed("k"), first.RolloutID, nil) }
			second := must(attempt())(f)
			f.same("the repeated attempt", must(attempt())(f), second)
			equal(f, "its sequence id", second.Attempt.SequenceID, 2)
			equal(f, "attempts", must(f.Statistics(f.Context()))(f).TotalAttempts, 2)
		}},
		{"numbers are issued once", Keys, func(f *fixture) {
			a, b := store.Attempted{RolloutID: "ro-a", AttemptID: "1"}, store.Attempted{RolloutID: "ro-b", AttemptID: "1"}
			next := func(key string) []int64 {
				return must(f.NextSequenceIDs(f.keyed(key), []store.Attempted{a, b, a}))(f)
			}
			f.same("first", next("k"), []int64{1, 1, 2})
			f.same("without a key", f.next(a), []int64{3})
			f.same("the repetition", next("k"), []int64{1, 1, 2})
			f.same("another key", next("l"), []int64{4, 2, 5})
			f.same("at last", f.next(a, b), []int64{6, 3})
		}},
		{"spans are stored once and say so again", Keys, func(f *fixture) {
			a := f.claimed(agl.RolloutConfig{}).Attempt
			known, unknown := newSpan(a, 1), newSpan(&agl.Attempt{RolloutID: a.RolloutID, AttemptID: "at-x"}, 2)
			for range 2 {
				added := must(f.AddSpans(f.keyed("k"), []agl.Span{known, unknown}))(f)
				equal(f, "stored", added[0].Stored, true)
				if !errors.Is(added[1].Err, store.ErrNotFound) {
					f.Errorf("span of an unknown attempt: %v, want %v", added[1].Err, store.ErrNotFound)
				}
			}
			added := must(f.AddSpans(f.keyed("l"), []agl.Span{known}))(f)
			equal(f, "stored under another key", added[0].Stored, false)
		}},
		{"a key is for one request", Keys, func(f *fixture) {
			must(enqueue(f, "k", `1`))(f)
			if _, err := enqueue(f, "k", `3`); err == nil {
				f.Error("another request with the same key was accepted")
			}
			equal(f, "rollouts", must(f.Statistics(f.Context()))(f).TotalRollouts, 2)
		}},
		{"what failed may be tried again", Keys, func(f *fixture) {
			if _, err := f.StartAttempt(f.keyed("k"), "ro-x", nil); !errors.Is(err, store.ErrNotFound) {
				f.Errorf("attempt of an unknown rollout: %v, want %v", err, store.ErrNotFound)
			}
			id := f.claimed(agl.RolloutConfig{}).RolloutID
			if _, err := f.StartAttempt(f.keyed("k"), id, nil); err != nil {
				f.Errorf("the key of a failed call, tried again: %v", err)
			}
		}},
		{"at the same time", Keys, func(f *fixture) {
			var together sync.WaitGroup
			for range 8 {
				together.Go(func() {
					if _, err := enqueue(f, "k", `1`); err != nil {
						f.Error(err)
					}
				})
			}
			together.Wait()
			equal(f, "rollouts", must(f.Statistics(f.Context()))(f).TotalRollouts, 2)
		}},
	}
}
