package storetest

import (
	"encoding/json"

	agl "agentlightning"
	"agentlightning/store"
)

func (f *fixture) update(id string, u store.RolloutUpdate) agl.Rollout {
	f.Helper()
	return must(f.UpdateRollout(f.Context(), id, u))(f)
}

func updateTests() []test {
	return []test{
		{"one call sets everything", "", func(f *fixture) {
			ro := f.enqueue("1")[0]
			other := f.enqueue("1")[0]
			conf := agl.RolloutConfig{TimeoutSeconds: new(1.5), MaxAttempts: 4, RetryCondition: []agl.AttemptStatus{agl.AttemptFailed}}
			got := f.update(ro.RolloutID, store.RolloutUpdate{
				Input: store.To(json.RawMessage(`[2]`)), Mode: store.To(agl.ModeTest), ResourcesID: store.To(new("rs-1")),
				Status: store.To(agl.RolloutRunning), Config: store.To(conf), Metadata: store.To(json.RawMessage(`{"k":1.0}`)),
			})
			want := agl.Rollout{
				RolloutID: ro.RolloutID, Input: json.RawMessage(`[2]`), StartTime: ro.StartTime, Mode: agl.ModeTest,
				ResourcesID: new("rs-1"), Status: agl.RolloutRunning, Config: conf, Metadata: json.RawMessage(`{"k":1.0}`),
			}
			f.same("answer", got, want)
			f.same("read again", f.rollout(ro.RolloutID), want)
			f.same("the other rollout", f.rollout(other.RolloutID), other)
		}},
		{"what is not given is left alone, null is stored", "", func(f *fixture) {
			req := store.EnqueueRequest{
				Input: json.RawMessage(`{"a":1}`), Mode: agl.ModeTrain, ResourcesID: new("rs-1"),
				Metadata: json.RawMessage(`{"a":1,"b":2}`),
			}
			ro := must(f.EnqueueRollouts(f.Context(), []store.EnqueueRequest{req}))(f)[0]
			f.same("empty update", f.update(ro.RolloutID, store.RolloutUpdate{}), ro)
			ro.Metadata = json.RawMessage(`{"b":3}`)
			f.same("metadata is replaced, not merged",
				f.update(ro.RolloutID, store.RolloutUpdate{Metadata: store.To(json.RawMessage(`{"b":3}`))}), ro)
			ro.Input, ro.Mode, ro.ResourcesID, ro.Metadata = json.RawMessage("null"), "", nil, nil
			f.same("nulls", f.update(ro.RolloutID, store.RolloutUpdate{
				Input: store.To(json.RawMessage("null")),
				Mode:  store.To(agl.Mode("")), ResourcesID: store.To[*string](nil), Metadata: store.To(json.RawMessage(nil)),
			}), ro)
			f.same("read again", f.rollout(ro.RolloutID), ro)
		}},
		{"a partial configuration resets the rest", "", func(f *fixture) {
			ro := f.enqueueWith(agl.RolloutConfig{TimeoutSeconds: new(1.0), MaxAttempts: 3})
			got := f.update(ro.RolloutID, store.RolloutUpdate{Config: store.To(agl.RolloutConfig{UnresponsiveSeconds: new(2.0)})})
			f.same("configuration", got.Config, agl.RolloutConfig{UnresponsiveSeconds: new(2.0), MaxAttempts: 1})
		}},
		{"an unknown rollout is not found", "", func(f *fixture) {
			_, err := f.UpdateRollout(f.Context(), "ro-x", store.RolloutUpdate{Status: store.To(agl.RolloutFailed)})
			f.refused(err, store.ErrNotFound, "Item does not exist with primary key(s): rollout_id='ro-x'")
		}},
		{"bad values are refused before anything else", "", func(f *fixture) {
			_, err := f.UpdateRollout(f.Context(), "ro-x", store.RolloutUpdate{Status: store.To(agl.RolloutStatus("done"))})
			f.refused(err, store.ErrInvalid, "")
			_, err = f.UpdateRollout(f.Context(), "ro-x", store.RolloutUpdate{Mode: store.To(agl.Mode("practice"))})
			f.refused(err, store.ErrInvalid, "")
			_, err = f.UpdateRollout(f.Context(), "ro-x", store.RolloutUpdate{Config: store.To(agl.RolloutConfig{MaxAttempts: -1})})
			f.refused(err, store.ErrInvalid, "")
			_, err = f.UpdateRollout(f.Context(), "ro-x", store.RolloutUpdate{Status: store.To(agl.RolloutStatus(""))})
			f.refused(err, store.ErrInvalid, "status is invalid; it cannot be a null value.")
		}},
		{"any status can be set, and only a terminal one ends", "", func(f *fixture) {
			ro := f.enqueue("1")[0]
			for _, from := range agl.RolloutStatuses() {
				for _, to := range agl.RolloutStatuses() {
					before := f.setRollout(ro.RolloutID, from)
					f.pass(0.02)
					got := f.setRollout(ro.RolloutID, to)
					equal(f, "status", got.Status, to)
					if to.Terminal() {
						f.isNow(string(to)+": end_time", got.EndTime)
					} else {
						f.same(string(to)+": end_time", got.EndTime, before.EndTime)
					}
				}
			}
		}},
		{"end_time is stamped again and never cleared", "", func(f *fixture) {
			ro := f.enqueue("1")[0]
			if ro.EndTime != nil {
				f.Errorf("end_time = %v, want nil", *ro.EndTime)
			}
			f.pass(1)
			first := f.setRollout(ro.RolloutID, agl.RolloutSucceeded)
			if *first.EndTime <= ro.StartTime {
				f.Errorf("end_time = %f, want after the start %f", *first.EndTime, ro.StartTime)
			}
			f.pass(1)
			second := f.setRollout(ro.RolloutID, agl.RolloutSucceeded)
			if *second.EndTime <= *first.EndTime {
				f.Errorf("second end_time = %f, want after the first, %f", *second.EndTime, *first.EndTime)
			}
			equal(f, "end_time after a restart", *f.startAttempt(ro.RolloutID).EndTime, *second.EndTime)
			f.pass(1)
			meta := f.update(ro.RolloutID, store.RolloutUpdate{Metadata: store.To(json.RawMessage(`{}`))})
			equal(f, "end_time after another update", *meta.EndTime, *second.EndTime)
		}},
		{"cancelling leaves attempts alone", "", func(f *fixture) {
			ro := f.claimed(agl.RolloutConfig{})
			f.setRollout(ro.RolloutID, agl.RolloutCancelled)
			f.same("attempt", f.attempt(ro.RolloutID, ro.Attempt.AttemptID), ro.Attempt)
		}},
	}
}
