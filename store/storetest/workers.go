package storetest

import (
	"encoding/json"
	"slices"

	agl "agentlightning"
	"agentlightning/store"
)

func (f *fixture) worker(id string) agl.Worker {
	f.Helper()
	return must(f.Worker(f.Context(), id))(f)
}

func (f *fixture) beat(id string) agl.Worker {
	f.Helper()
	return must(f.UpdateWorker(f.Context(), id, store.Set[json.RawMessage]{}))(f)
}

func (f *fixture) claimFor(worker string, n int) []agl.AttemptedRollout {
	f.Helper()
	return must(f.DequeueRollouts(f.Context(), store.DequeueRequest{Limit: n, WorkerID: &worker}))(f)
}

func (f *fixture) busyWith(worker string, a *agl.Attempt) {
	f.Helper()
	w := f.worker(worker)
	equal(f, "status of "+worker, w.Status, agl.WorkerBusy)
	if w.CurrentRolloutID == nil || *w.CurrentRolloutID != a.RolloutID || w.CurrentAttemptID == nil || *w.CurrentAttemptID != a.AttemptID {
		f.Errorf("worker = %s, want busy with attempt %s of %s", jsonOf(f.T, w), a.AttemptID, a.RolloutID)
	}
	f.isNow("last busy", w.LastBusyTime)
}

func workerTests() []test {
	return []test{
		{"an unknown worker is not found", "", func(f *fixture) {
			_, err := f.Worker(f.Context(), "w")
			f.refused(err, store.ErrNotFound, "")
		}},
		{"a heartbeat makes a worker", "", func(f *fixture) {
			got := must(f.UpdateWorker(f.Context(), "w", store.To(json.RawMessage(`{"cpu":1.0,"n":1}`))))(f)
			f.isNow("heartbeat", got.LastHeartbeatTime)
			f.same("worker", got, agl.Worker{
				WorkerID: "w", Status: agl.WorkerUnknown,
				HeartbeatStats: json.RawMessage(`{"cpu":1.0,"n":1}`), LastHeartbeatTime: got.LastHeartbeatTime,
			})
			f.same("read again", f.worker("w"), got)
			f.pass(1)
			again := f.beat("w")
			f.isNow("second heartbeat", again.LastHeartbeatTime)
			got.LastHeartbeatTime = again.LastHeartbeatTime
			f.same("the statistics stay", again, got)
			must(f.UpdateWorker(f.Context(), "w", store.To(json.RawMessage(`{}`))))(f)
			equal(f, "statistics", string(f.worker("w").HeartbeatStats), "{}")
		}},
		{"null statistics are refused", "", func(f *fixture) {
			_, err := f.UpdateWorker(f.Context(), "w", store.To(json.RawMessage(nil)))
			f.refused(err, store.ErrInvalid, "heartbeat_stats is invalid; it cannot be a null value.")
			_, err = f.Worker(f.Context(), "w")
			f.refused(err, store.ErrNotFound, "")
		}},
		{"whatever gives it an attempt makes it busy", "", func(f *fixture) {
			f.enqueue("1")
			claim := f.claimFor("w", 1)[0]
			f.busyWith("w", claim.Attempt)
			f.isNow("last dequeue", f.worker("w").LastDequeueTime)
			f.pass(1)
			f.busyWith("v", must(f.StartRollout(f.Context(), store.StartRequest{WorkerID: new("v")}))(f).Attempt)
			if d := f.worker("v").LastDequeueTime; d != nil {
				f.Errorf("last dequeue of v = %v, want nil", *d)
			}
			f.busyWith("w", must(f.StartAttempt(f.Context(), claim.RolloutID, new("w")))(f).Attempt)
			f.pass(1)
			must(f.UpdateAttempt(f.Context(), claim.RolloutID, claim.Attempt.AttemptID, store.AttemptUpdate{WorkerID: store.To("u")}))(f)
			f.busyWith("u", claim.Attempt)
			equal(f, "the worker it was taken from", f.worker("w").Status, agl.WorkerBusy)
		}},
		{"the end of an attempt frees it", "", func(f *fixture) {
			for st, want := range map[agl.AttemptStatus]agl.WorkerStatus{
				agl.AttemptSucceeded: agl.WorkerIdle, agl.AttemptFailed: agl.WorkerIdle,
				agl.AttemptTimeout: agl.WorkerUnknown, agl.AttemptUnresponsive: agl.WorkerUnknown,
			} {
				f.enqueue("1")
				a := f.claimFor("w", 1)[0].Attempt
				before := f.beat("w")
				f.pass(1)
				f.setAttempt(a, st)
				got := f.worker("w")
				f.isNow("last idle", got.LastIdleTime)
				before.Status, before.LastIdleTime, before.CurrentRolloutID, before.CurrentAttemptID = want, got.LastIdleTime, nil, nil
				f.same("worker after "+string(st), got, before)
				f.dequeue(5)
			}
		}},
		{"what does not concern it leaves it alone", "", func(f *fixture) {
			f.enqueue("1")
			a := f.claimFor("w", 1)[0].Attempt
			before := f.worker("w")
			f.pass(1)
			f.addSpan(a)
			must(f.UpdateAttempt(f.Context(), a.RolloutID, a.AttemptID, store.AttemptUpdate{Metadata: store.To(json.RawMessage(`{}`))}))(f)
			f.setRollout(a.RolloutID, agl.RolloutCancelled)
			f.same("worker", f.worker("w"), before)
		}},
		{"an old attempt idles it as well", "", func(f *fixture) {
			f.enqueue("1", "2")
			old := f.claimFor("w", 1)[0].Attempt
			f.busyWith("w", f.claimFor("w", 1)[0].Attempt)
			f.setAttempt(old, agl.AttemptSucceeded)
			equal(f, "status", f.worker("w").Status, agl.WorkerIdle)
		}},
		{"a batch leaves it with the last", "", func(f *fixture) {
			f.enqueue("1", "2", "3")
			f.busyWith("w", f.claimFor("w", 3)[2].Attempt)
		}},
		{"coming for work in vain", "", func(f *fixture) {
			f.claimFor("w", 1)
			got := f.worker("w")
			f.isNow("last dequeue", got.LastDequeueTime)
			f.isNow("last idle", got.LastIdleTime)
			f.same("new worker", got, agl.Worker{WorkerID: "w", Status: agl.WorkerIdle, LastDequeueTime: got.LastDequeueTime, LastIdleTime: got.LastIdleTime})
			f.pass(1)
			f.claimFor("w", 1)
			again := f.worker("w")
			f.isNow("last dequeue", again.LastDequeueTime)
			equal(f, "last idle of an idle worker", *again.LastIdleTime, *got.LastIdleTime)
			f.enqueue("1")
			a := f.claimFor("w", 1)[0].Attempt
			f.pass(1)
			f.claimFor("w", 1)
			busy := f.worker("w")
			equal(f, "status", busy.Status, agl.WorkerIdle)
			f.isNow("last idle", busy.LastIdleTime)
			if busy.CurrentAttemptID == nil || *busy.CurrentAttemptID != a.AttemptID {
				f.Errorf("worker = %s, want its current ids kept", jsonOf(f.T, busy))
			}
		}},
		{"an empty worker id has no attempts", "", func(f *fixture) {
			f.enqueue("1")
			a := f.claimFor("", 1)[0].Attempt
			equal(f, "worker of the attempt", *a.WorkerID, "")
			f.setAttempt(a, agl.AttemptSucceeded)
			equal(f, "workers", must(f.QueryWorkers(f.Context(), store.WorkerQuery{}))(f).Total, 0)
		}},
		{"an empty worker id that comes in vain is idle", "", func(f *fixture) {
			f.claimFor("", 1)
			workers := must(f.QueryWorkers(f.Context(), store.WorkerQuery{}))(f).Items
			if len(workers) != 1 {
				f.Fatalf("workers = %s, want one", jsonOf(f.T, workers))
			}
			got := workers[0]
			f.isNow("last dequeue", got.LastDequeueTime)
			f.same("worker", got, agl.Worker{Status: agl.WorkerIdle, LastDequeueTime: got.LastDequeueTime, LastIdleTime: got.LastIdleTime})
		}},
		{"queries", "", workerQueries},
	}
}

func workerQueries(f *fixture) {
	f.enqueue("1", "2")
	for _, id := range []string{"beta-1", "alpha-1", "alpha-2"} {
		f.beat(id)
		f.pass(1)
	}
	f.claimFor("alpha-2", 1)
	f.claimFor("gamma", 2)
	f.claimFor("alpha-1", 1)
	busy := []agl.WorkerStatus{agl.WorkerBusy}
	for _, tt := range []struct {
		name string
		q    store.WorkerQuery
		want []string
	}{
		{"all", store.WorkerQuery{}, []string{"beta-1", "alpha-1", "alpha-2", "gamma"}},
		{"all by or", store.WorkerQuery{Paging: store.Paging{Any: true}}, []string{"beta-1", "alpha-1", "alpha-2", "gamma"}},
		{"status", store.WorkerQuery{StatusIn: busy}, []string{"alpha-2", "gamma"}},
		{"no status", store.WorkerQuery{StatusIn: []agl.WorkerStatus{}}, nil},
		{"part", store.WorkerQuery{WorkerIDContains: new("alpha")}, []string{"alpha-1", "alpha-2"}},
		{"part and status", store.WorkerQuery{WorkerIDContains: new("alpha"), StatusIn: busy}, []string{"alpha-2"}},
		{
			"part or status",
			store.WorkerQuery{WorkerIDContains: new("beta"), StatusIn: busy, Paging: store.Paging{Any: true}},
			[]string{"beta-1", "alpha-2", "gamma"},
		},
		{"by id", store.WorkerQuery{Paging: store.Paging{SortBy: "worker_id"}}, []string{"alpha-1", "alpha-2", "beta-1", "gamma"}},
		{
			"by heartbeat",
			store.WorkerQuery{Paging: store.Paging{SortBy: "last_heartbeat_time", Desc: true}},
			[]string{"gamma", "alpha-2", "alpha-1", "beta-1"},
		},
		{"by attempt", store.WorkerQuery{Paging: store.Paging{SortBy: "status"}}, []string{"alpha-2", "gamma", "alpha-1", "beta-1"}},
	} {
		got := must(f.QueryWorkers(f.Context(), tt.q))(f)
		names := []string{}
		for _, w := range got.Items {
			names = append(names, w.WorkerID)
		}
		if !slices.Equal(names, tt.want) && len(names)+len(tt.want) > 0 {
			f.Errorf("%s = %q, want %q", tt.name, names, tt.want)
		}
		equal(f, tt.name+": total", got.Total, len(tt.want))
	}
	page := must(f.QueryWorkers(f.Context(), store.WorkerQuery{Paging: store.Paging{SortBy: "worker_id", Desc: true, Limit: 2, Offset: 1}}))(f)
	equal(f, "second", page.Items[0].WorkerID, "beta-1")
	equal(f, "length", len(page.Items), 2)
	equal(f, "total", page.Total, 4)
	_, err := f.QueryWorkers(f.Context(), store.WorkerQuery{Paging: store.Paging{SortBy: "heartbeat_stats"}})
	f.refused(err, store.ErrInvalid, "")
}
