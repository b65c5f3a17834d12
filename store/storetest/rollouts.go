package storetest

import (
	"encoding/json"
	"fmt"
	"slices"

	agl "agentlightning"
	"agentlightning/store"
)

func (f *fixture) query(q store.RolloutQuery) store.Page[agl.AttemptedRollout] {
	f.Helper()
	return must(f.QueryRollouts(f.Context(), q))(f)
}

// variety stores rollouts in several statuses: queuing, queuing, preparing,
// succeeded, failed, requeuing.
func (f *fixture) variety() []string {
	f.Helper()
	var out []string
	for i, mode := range []agl.Mode{agl.ModeTrain, "", agl.ModeVal, agl.ModeTest, "", agl.ModeTrain} {
		ro := must(f.EnqueueRollouts(f.Context(), []store.EnqueueRequest{
			{Input: json.RawMessage("1"), Mode: mode, ResourcesID: new(string(rune('z' - i)))},
		}))(f)[0]
		out = append(out, ro.RolloutID)
		f.pass(1)
	}
	f.startAttempt(out[2])
	f.pass(1)
	f.setRollout(out[4], agl.RolloutFailed)
	f.pass(1)
	f.setRollout(out[3], agl.RolloutSucceeded)
	f.startAttempt(out[5])
	f.setRollout(out[5], agl.RolloutRequeuing)
	return out
}

func rolloutTests() []test {
	return []test{
		{"an unknown rollout is not found", "", func(f *fixture) {
			_, err := f.Rollout(f.Context(), "ro-nothing")
			f.refused(err, store.ErrNotFound, "")
		}},
		{"a rollout comes with its latest attempt", "", func(f *fixture) {
			ro := f.enqueue("1")[0]
			if got := f.rollout(ro.RolloutID); got.Attempt != nil {
				f.Errorf("attempt = %+v, want nil", got.Attempt)
			}
			claim := f.claim()
			f.same("after the claim", f.rollout(ro.RolloutID), claim)
			second := f.startAttempt(ro.RolloutID)
			f.same("after another attempt", f.rollout(ro.RolloutID), second)
			f.same("in a query", f.query(store.RolloutQuery{}).Items, []agl.AttemptedRollout{second})
		}},
		{"without conditions all match, in the order of creation", "", func(f *fixture) {
			all := f.variety()
			sameIDs(f, "all", attemptedIDs(f.query(store.RolloutQuery{}).Items), all)
			sameIDs(f, "all, by or", attemptedIDs(f.query(store.RolloutQuery{Paging: store.Paging{Any: true}}).Items), all)
		}},
		{"conditions", "", func(f *fixture) {
			all := f.variety()
			queuing, preparing := agl.RolloutQueuing, agl.RolloutPreparing
			pick := func(at ...int) (out []string) {
				for _, i := range at {
					out = append(out, all[i])
				}
				return out
			}
			part := all[3][len(all[3])-6:]
			for _, tt := range []struct {
				name string
				q    store.RolloutQuery
				want []string
			}{
				{"one status", store.RolloutQuery{StatusIn: []agl.RolloutStatus{queuing}}, pick(0, 1)},
				{"statuses", store.RolloutQuery{StatusIn: []agl.RolloutStatus{agl.RolloutFailed, preparing}}, pick(2, 4)},
				{"no status", store.RolloutQuery{StatusIn: []agl.RolloutStatus{}}, nil},
				{"ids", store.RolloutQuery{RolloutIDIn: []string{all[4], all[1], "ro-unknown", all[1]}}, pick(1, 4)},
				{"unknown id", store.RolloutQuery{RolloutIDIn: []string{"ro-unknown"}}, nil},
				{"no id", store.RolloutQuery{RolloutIDIn: []string{}}, nil},
				{"part of an id", store.RolloutQuery{RolloutIDContains: &part}, pick(3)},
				{"empty part", store.RolloutQuery{RolloutIDContains: new("")}, all},
				{"case counts", store.RolloutQuery{RolloutIDContains: new("RO-")}, nil},
				{"no wildcard", store.RolloutQuery{RolloutIDContains: new("ro%")}, nil},
				{"ids and status", store.RolloutQuery{RolloutIDIn: all[:3], StatusIn: []agl.RolloutStatus{queuing}}, pick(0, 1)},
				{"ids or status", store.RolloutQuery{
					RolloutIDIn: all[2:4], StatusIn: []agl.RolloutStatus{queuing},
					Paging: store.Paging{Any: true},
				}, pick(0, 1, 2, 3)},
				{"part or status", store.RolloutQuery{
					RolloutIDContains: &part, StatusIn: []agl.RolloutStatus{agl.RolloutRequeuing},
					Paging: store.Paging{Any: true},
				}, pick(3, 5)},
				{"part and status", store.RolloutQuery{RolloutIDContains: &part, StatusIn: []agl.RolloutStatus{queuing}}, nil},
				{"nothing or status", store.RolloutQuery{
					RolloutIDIn: []string{}, StatusIn: []agl.RolloutStatus{preparing},
					Paging: store.Paging{Any: true},
				}, pick(2)},
			} {
				got := f.query(tt.q)
				sameIDs(f, tt.name, attemptedIDs(got.Items), tt.want)
				equal(f, tt.name+": total", got.Total, len(tt.want))
			}
		}},
		{"sorting", "", func(f *fixture) {
			all := f.variety()
			pick := func(at ...int) (out []string) {
				for _, i := range at {
					out = append(out, all[i])
				}
				return out
			}
			byID := slices.Sorted(slices.Values(all))
			reverse := slices.Clone(byID)
			slices.Reverse(reverse)
			for _, tt := range []struct {
				by   string
				desc bool
				want []string
			}{
				{"rollout_id", false, byID},
				{"rollout_id", true, reverse},
				{"start_time", false, all},
				{"start_time", true, pick(5, 4, 3, 2, 1, 0)},
				{"end_time", false, pick(4, 3, 0, 1, 2, 5)}, // no end is after every end
				{"end_time", true, pick(0, 1, 2, 5, 3, 4)},
				{"mode", false, pick(1, 4, 3, 0, 5, 2)}, // null, test, train, val
				{"mode", true, pick(2, 0, 5, 3, 1, 4)},
				{"resources_id", false, pick(5, 4, 3, 2, 1, 0)},
				{"status", false, pick(4, 2, 0, 1, 5, 3)},
				{"status", true, pick(3, 5, 0, 1, 2, 4)},
			} {
				p := store.Paging{SortBy: tt.by, Desc: tt.desc}
				sameIDs(f, "by "+tt.by, attemptedIDs(f.query(store.RolloutQuery{Paging: p}).Items), tt.want)
				for from := range len(all) + 2 {
					p.Limit, p.Offset = 2, from
					got := f.query(store.RolloutQuery{Paging: p})
					want := tt.want[min(from, len(all)):min(from+2, len(all))]
					sameIDs(f, fmt.Sprintf("by %s from %d on", tt.by, from), attemptedIDs(got.Items), want)
					equal(f, "total", got.Total, len(all))
				}
			}
		}},
		{"paging", "", func(f *fixture) {
			var all []string
			for range 10 {
				all = append(all, f.enqueue("1")[0].RolloutID)
			}
			for _, tt := range []struct{ limit, offset, from, to int }{
				{3, 0, 0, 3},
				{3, 3, 3, 6},
				{3, 9, 9, 10},
				{3, 10, 10, 10},
				{3, 99, 10, 10},
				{-1, 0, 0, 10},
				{0, 0, 0, 10},
				{-1, 4, 4, 10},
				{100, 2, 2, 10},
			} {
				got := f.query(store.RolloutQuery{Paging: store.Paging{Limit: tt.limit, Offset: tt.offset}})
				sameIDs(f, "page", attemptedIDs(got.Items), all[tt.from:tt.to])
				equal(f, "total", got.Total, 10)
			}
			some := f.query(store.RolloutQuery{
				RolloutIDIn: all[2:8], StatusIn: []agl.RolloutStatus{agl.RolloutFailed},
				Paging: store.Paging{Any: true, SortBy: "start_time", Limit: 2, Offset: 1},
			})
			sameIDs(f, "page of some", attemptedIDs(some.Items), all[3:5])
			equal(f, "total of some", some.Total, 6)
		}},
		{"unknown fields and negative offsets are refused", "", func(f *fixture) {
			_, err := f.QueryRollouts(f.Context(), store.RolloutQuery{Paging: store.Paging{SortBy: "nonexistent_field"}})
			f.refused(err, store.ErrInvalid, "")
			_, err = f.QueryRollouts(f.Context(), store.RolloutQuery{Paging: store.Paging{SortBy: "attempt"}})
			f.refused(err, store.ErrInvalid, "")
			_, err = f.QueryRollouts(f.Context(), store.RolloutQuery{Paging: store.Paging{Offset: -1}})
			f.refused(err, store.ErrInvalid, "Offset must be greater than or equal to 0")
		}},
		{"updating does not move", "", func(f *fixture) {
			all := ids(f.enqueue("0", "1", "2"))
			f.setRollout(all[0], agl.RolloutCancelled)
			f.startAttempt(all[1])
			sameIDs(f, "order", attemptedIDs(f.query(store.RolloutQuery{}).Items), all)
		}},
	}
}
