package storetest

import (
	"slices"
	"sync"

	agl "agentlightning"
	"agentlightning/store"
)

func (f *fixture) next(attempts ...store.Attempted) []int64 {
	f.Helper()
	return must(f.NextSequenceIDs(f.Context(), attempts))(f)
}

func sequenceTests() []test {
	return []test{
		{"one counter for the attempts of a rollout", "", func(f *fixture) {
			a := f.claimed(agl.RolloutConfig{}).Attempt
			at := store.Attempted{RolloutID: a.RolloutID, AttemptID: a.AttemptID}
			f.same("first", f.next(at), []int64{1})
			f.addSpans(newSpan(a, 2))
			f.same("after a span with 2", f.next(at), []int64{3})
			f.addSpans(newSpan(a, 4))
			f.same("another attempt", f.next(store.Attempted{RolloutID: a.RolloutID, AttemptID: "at-x"}), []int64{5})
		}},
		{"many at once", "", func(f *fixture) {
			a, b := store.Attempted{RolloutID: "ro-a", AttemptID: "1"}, store.Attempted{RolloutID: "ro-b", AttemptID: "1"}
			f.same("fresh counters", f.next(a, b, a, a), []int64{1, 1, 2, 3})
			f.same("next", f.next(a, b), []int64{4, 2})
			f.same("none", f.next(), []int64{})
		}},
		{"larger ids raise the counter, smaller ones do not", "", func(f *fixture) {
			a := f.claimed(agl.RolloutConfig{}).Attempt
			at := store.Attempted{RolloutID: a.RolloutID, AttemptID: a.AttemptID}
			f.addSpans(newSpan(a, -4), newSpan(a, 0))
			f.same("after ids below one", f.next(at), []int64{1})
			f.addSpans(newSpan(a, 100))
			f.same("after 100", f.next(at), []int64{101})
			f.addSpans(newSpan(a, 7))
			f.same("after 7", f.next(at), []int64{102})
			equal(f, "the ids of spans stay", f.spans(store.SpanQuery{
				RolloutID: a.RolloutID,
				Paging:    store.Paging{SortBy: "sequence_id", Desc: true},
			}).Items[0].SequenceID, 100)
		}},
		{"refused and dropped spans raise it too", "", func(f *fixture) {
			a := f.claimed(agl.RolloutConfig{}).Attempt
			s := f.addSpan(a)
			s.SequenceID = 10
			f.addSpans(s)
			f.same("after a duplicate", f.next(store.Attempted{RolloutID: a.RolloutID}), []int64{11})
			f.addSpans(newSpan(&agl.Attempt{RolloutID: a.RolloutID, AttemptID: "at-x"}, 20))
			f.same("after an unknown attempt", f.next(store.Attempted{RolloutID: a.RolloutID}), []int64{21})
			f.addSpans(newSpan(&agl.Attempt{RolloutID: "ro-x", AttemptID: "at-x"}, 5))
			f.same("after an unknown rollout", f.next(store.Attempted{RolloutID: "ro-x"}), []int64{6})
		}},
		{"issuing is no heartbeat", "", func(f *fixture) {
			ro := f.claimed(agl.RolloutConfig{})
			f.next(store.Attempted{RolloutID: ro.RolloutID, AttemptID: ro.Attempt.AttemptID})
			f.same("rollout", f.rollout(ro.RolloutID), ro)
		}},
		{"thirty at once are one to thirty", "", func(f *fixture) {
			a := f.claimed(agl.RolloutConfig{}).Attempt
			var mu sync.Mutex
			var got []int64
			together(30, func(int) {
				n, err := f.NextSequenceIDs(f.Context(), []store.Attempted{{RolloutID: a.RolloutID, AttemptID: a.AttemptID}})
				if err != nil {
					f.Error(err)
					return
				}
				if _, err := f.AddSpans(f.Context(), []agl.Span{newSpan(a, n[0])}); err != nil {
					f.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				got = append(got, n[0])
			})
			slices.Sort(got)
			for i, n := range got {
				equal(f, "number", n, int64(i+1))
			}
			equal(f, "spans", f.spans(store.SpanQuery{RolloutID: a.RolloutID}).Total, 30)
		}},
	}
}
