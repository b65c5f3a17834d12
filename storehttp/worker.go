package storehttp

import (
	"encoding/json"

	agl "agentlightning"
	"agentlightning/store"
)

var workerStatuses = []agl.WorkerStatus{agl.WorkerIdle, agl.WorkerBusy, agl.WorkerUnknown}

func appendWorker(w *agl.Worker, dst []byte) []byte { return w.AppendJSON(dst) }

func (h *handler) listWorkers(c *call) answer { return h.searchWorkers(c) }

func (h *handler) searchWorkers(c *call) answer {
	return h.search(c, []string{"status_in"}, func(o object) func() answer {
		var q store.WorkerQuery
		if v, given := o.given("status_in"); given {
			q.StatusIn = literals(v, workerStatuses)
		}
		q.WorkerIDContains = o.stringOrNull("worker_id_contains")
		p := o.page("")
		q.Paging, q.Any = p.Paging, o.any()
		return func() answer {
			if err := p.check(workerFields); err != nil {
				return failed(err)
			}
			found, err := h.store.QueryWorkers(c.Context(), q)
			if err != nil {
				return failed(err)
			}
			return ok(appendPage(p, found, appendWorker))
		}
	})
}

func (h *handler) worker(c *call) answer {
	w, err := h.store.Worker(c.Context(), c.params[0])
	return orNull(err, func() []byte { return w.AppendJSON(nil) })
}

func (h *handler) updateWorker(c *call) answer {
	o, given, refused := h.bodyObject(c, false)
	if refused != nil {
		return *refused
	}
	var stats store.Set[json.RawMessage]
	if given {
		if v, given := o.given("heartbeat_stats"); given {
			stats = store.To(json.RawMessage(v.freeObject()))
		}
		if !c.valid() {
			return c.invalid()
		}
		if err := o.notNull("heartbeat_stats"); err != nil {
			return failed(err)
		}
	}
	w, err := h.store.UpdateWorker(c.Context(), c.params[0], stats)
	if err != nil {
		return failed(err)
	}
	return ok(w.AppendJSON(nil))
}
