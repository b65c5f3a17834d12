package sqlite

import (
	"fmt"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
)

func (r reader) Workers(ids []string) (map[string]agl.Worker, error) {
	out := make(map[string]agl.Worker, len(ids))
	add := func(row row) error {
		w := scanWorker(row)
		out[w.WorkerID] = w
		return nil
	}
	return out, r.each(ids, selectWorker, selectWorkers, add)
}

// Workers answers from what the writer remembers, and asks for the rest.
func (t *tx) Workers(ids []string) (map[string]agl.Worker, error) {
	out := make(map[string]agl.Worker, len(ids))
	var rest []string
	for _, id := range ids {
		if w := t.known.workers[id]; w != nil {
			out[id] = engine.CloneWorker(w)
		} else {
			rest = append(rest, id)
		}
	}
	return out, t.each(rest, selectWorker, selectWorkers, func(row row) error {
		w := scanWorker(row)
		out[w.WorkerID] = w
		t.known.worker(&w)
		return nil
	})
}

func (r reader) QueryWorkers(q store.WorkerQuery) (store.Page[agl.Worker], error) {
	var f filter
	if q.StatusIn != nil {
		f.within("status", texts(q.StatusIn))
	}
	f.contains("worker_id", q.WorkerIDContains)
	return fetch(r.c, f.selection("workers", q.Paging, workerSorts), workerColumns,
		func(row row) (agl.Worker, error) { return scanWorker(row), nil })
}

func (t *tx) PutWorkers(workers []agl.Worker) error {
	t.write()
	for i := range workers {
		w := &workers[i]
		_, err := t.c.exec(putWorker, w.WorkerID, string(w.Status), rawOrNull(w.HeartbeatStats),
			orNull(w.LastHeartbeatTime), orNull(w.LastDequeueTime), orNull(w.LastBusyTime), orNull(w.LastIdleTime),
			orNull(w.CurrentRolloutID), orNull(w.CurrentAttemptID))
		if err != nil {
			return fmt.Errorf("put worker %s: %w", w.WorkerID, err)
		}
		t.known.worker(w)
	}
	return nil
}

func scanWorker(r row) agl.Worker {
	return agl.Worker{
		WorkerID: r.text(0), Status: agl.WorkerStatus(r.text(1)), HeartbeatStats: r.raw(2),
		LastHeartbeatTime: r.optionalFloat(3), LastDequeueTime: r.optionalFloat(4), LastBusyTime: r.optionalFloat(5),
		LastIdleTime: r.optionalFloat(6), CurrentRolloutID: r.optionalText(7), CurrentAttemptID: r.optionalText(8),
	}
}
