package storetest

import (
	"encoding/json"

	agl "agentlightning"
	"agentlightning/store"
)

func attemptTests() []test {
	return []test{
		{"no attempts", "", func(f *fixture) {
			ro := f.enqueue("1")[0]
			for _, id := range []string{ro.RolloutID, "ro-unknown"} {
				equal(f, "attempts", len(f.attempts(id)), 0)
				_, err := f.LatestAttempt(f.Context(), id)
				f.refused(err, store.ErrNotFound, "")
			}
		}},
		{"starting counts up and ignores the limit", "", func(f *fixture) {
			ro := f.claimed(agl.RolloutConfig{MaxAttempts: 1})
			f.pass(1)
			for n := 2; n <= 4; n++ {
				got := must(f.StartAttempt(f.Context(), ro.RolloutID, new("w")))(f)
				equal(f, "status", got.Status, agl.RolloutPreparing)
				f.isNow("start", &got.Attempt.StartTime)
				f.same("attempt", got.Attempt, agl.Attempt{
					RolloutID: ro.RolloutID, AttemptID: got.Attempt.AttemptID, SequenceID: n,
					StartTime: got.Attempt.StartTime, Status: agl.AttemptPreparing, WorkerID: new("w"),
				})
				f.same("latest", must(f.LatestAttempt(f.Context(), ro.RolloutID))(f), got.Attempt)
			}
			equal(f, "attempts", len(f.attempts(ro.RolloutID)), 4)
		}},
		{"starting an unknown rollout", "", func(f *fixture) {
			_, err := f.StartAttempt(f.Context(), "nonexistent", nil)
			f.refused(err, store.ErrNotFound, "Rollout nonexistent not found")
		}},
		{"starting from every status prepares", "", func(f *fixture) {
			for _, st := range agl.RolloutStatuses() {
				ro := f.enqueue("1")[0]
				f.setRollout(ro.RolloutID, st)
				equal(f, "status after "+string(st), f.startAttempt(ro.RolloutID).Status, agl.RolloutPreparing)
			}
		}},
		{"pages and order", "", func(f *fixture) {
			ro := f.enqueue("1")[0]
			for _, w := range []*string{new("b"), nil, new("a")} {
				must(f.StartAttempt(f.Context(), ro.RolloutID, w))(f)
				f.pass(1)
			}
			for _, tt := range []struct {
				p    store.Paging
				want []int
			}{
				{store.Paging{}, []int{1, 2, 3}},
				{store.Paging{SortBy: "sequence_id", Desc: true}, []int{3, 2, 1}},
				{store.Paging{SortBy: "start_time", Desc: true, Limit: 2}, []int{3, 2}},
				{store.Paging{SortBy: "worker_id"}, []int{2, 3, 1}},
				{store.Paging{SortBy: "worker_id", Desc: true}, []int{1, 3, 2}},
				{store.Paging{SortBy: "end_time", Desc: true}, []int{1, 2, 3}},
				{store.Paging{Limit: 1, Offset: 1}, []int{2}},
				{store.Paging{Limit: 1, Offset: 7}, nil},
			} {
				got := must(f.QueryAttempts(f.Context(), store.AttemptQuery{RolloutID: ro.RolloutID, Paging: tt.p}))(f)
				seq := []int{}
				for _, a := range got.Items {
					seq = append(seq, a.SequenceID)
				}
				f.same("sequence ids", seq, append([]int{}, tt.want...))
				equal(f, "total", got.Total, 3)
			}
			_, err := f.QueryAttempts(f.Context(), store.AttemptQuery{RolloutID: ro.RolloutID, Paging: store.Paging{SortBy: "mode"}})
			f.refused(err, store.ErrInvalid, "")
		}},
		{"an update sets what is given", "", func(f *fixture) {
			ro := f.claimed(agl.RolloutConfig{})
			want := *ro.Attempt
			want.WorkerID, want.LastHeartbeatTime, want.Metadata = new("w"), new(123.5), json.RawMessage(`{"a":1.0}`)
			f.same("answer", must(f.UpdateAttempt(f.Context(), ro.RolloutID, agl.LatestAttempt, store.AttemptUpdate{
				WorkerID: store.To("w"), LastHeartbeatTime: store.To(123.5), Metadata: store.To(json.RawMessage(`{"a":1.0}`)),
			}))(f), want)
			want.Metadata = json.RawMessage(`{}`)
			f.same("metadata is replaced", must(f.UpdateAttempt(f.Context(), ro.RolloutID, want.AttemptID,
				store.AttemptUpdate{Metadata: store.To(json.RawMessage(`{}`))}))(f), want)
			want.WorkerID = new("")
			f.same("empty worker", must(f.UpdateAttempt(f.Context(), ro.RolloutID, want.AttemptID,
				store.AttemptUpdate{WorkerID: store.To("")}))(f), want)
			f.same("read again", f.attempt(ro.RolloutID, want.AttemptID), want)
		}},
		{"only failed and succeeded end an attempt", "", func(f *fixture) {
			for _, st := range agl.AttemptStatuses() {
				ro := f.claimed(agl.RolloutConfig{})
				f.pass(0.1)
				got := f.setAttempt(ro.Attempt, st)
				equal(f, "status", got.Status, st)
				if st == agl.AttemptFailed || st == agl.AttemptSucceeded {
					f.isNow("end_time", got.EndTime)
				} else if got.EndTime != nil {
					f.Errorf("%s: end_time = %v, want nil", st, *got.EndTime)
				}
			}
		}},
		{"refusals, in this order", "", func(f *fixture) {
			ro := f.enqueue("1")[0]
			set := store.AttemptUpdate{Status: store.To(agl.AttemptFailed)}
			_, err := f.UpdateAttempt(f.Context(), "ro-x", "at-x", set)
			f.refused(err, store.ErrNotFound, "Rollout ro-x not found")
			_, err = f.UpdateAttempt(f.Context(), ro.RolloutID, "at-x", set)
			f.refused(err, store.ErrNotFound, "No attempts found for rollout "+ro.RolloutID)
			f.startAttempt(ro.RolloutID)
			_, err = f.UpdateAttempt(f.Context(), ro.RolloutID, "at-x", set)
			f.refused(err, store.ErrNotFound, "Attempt at-x not found for rollout "+ro.RolloutID)
			_, err = f.UpdateAttempt(f.Context(), "ro-x", "at-x", store.AttemptUpdate{Status: store.To(agl.AttemptStatus("done"))})
			f.refused(err, store.ErrInvalid, "")
			_, err = f.UpdateAttempt(f.Context(), "ro-x", "at-x", store.AttemptUpdate{Status: store.To(agl.AttemptStatus(""))})
			f.refused(err, store.ErrInvalid, "status is invalid; it cannot be a null value.")
			_, err = f.UpdateAttempt(f.Context(), "ro-x", "at-x", store.AttemptUpdate{Metadata: store.To(json.RawMessage(nil))})
			f.refused(err, store.ErrInvalid, "metadata is invalid; it cannot be a null value.")
		}},
	}
}
