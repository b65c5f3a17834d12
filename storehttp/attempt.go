package storehttp

import (
	"context"
	"encoding/json"

	agl "agentlightning"
	"agentlightning/store"
)

func appendAttempt(a *agl.Attempt, dst []byte) []byte { return a.AppendJSON(dst) }

func (h *handler) startAttempt(c *call) answer {
	o, given, refused := h.bodyObject(c, false)
	if refused != nil {
		return *refused
	}
	var workerID *string
	if given {
		workerID = o.stringOrNull("worker_id")
	}
	if !c.valid() {
		return c.invalid()
	}
	return h.once(c, func(ctx context.Context) answer {
		r, err := h.store.StartAttempt(ctx, c.params[0], workerID)
		if err != nil {
			return failed(err)
		}
		return created(r.AppendJSON(nil))
	})
}

func (h *handler) listAttempts(c *call) answer { return h.searchAttempts(c) }

func (h *handler) searchAttempts(c *call) answer {
	return h.search(c, nil, func(o object) func() answer {
		p := o.page("sequence_id")
		return func() answer {
			if err := p.check(attemptFields); err != nil {
				return failed(err)
			}
			found, err := h.store.QueryAttempts(c.Context(), store.AttemptQuery{RolloutID: c.params[0], Paging: p.Paging})
			if err != nil {
				return failed(err)
			}
			return ok(appendPage(p, found, appendAttempt))
		}
	})
}

func (h *handler) latestAttempt(c *call) answer {
	a, err := h.store.LatestAttempt(c.Context(), c.params[0])
	return orNull(err, func() []byte { return a.AppendJSON(nil) })
}

func (h *handler) updateAttempt(c *call) answer {
	o, _, refused := h.bodyObject(c, true)
	if refused != nil {
		return *refused
	}
	var u store.AttemptUpdate
	if v, given := o.given("status"); given {
		u.Status = store.To(literal(v, agl.AttemptStatuses()))
	}
	if v, given := o.given("worker_id"); given {
		u.WorkerID = store.To(v.string())
	}
	if v, given := o.given("last_heartbeat_time"); given {
		u.LastHeartbeatTime = store.To(v.float())
	}
	if v, given := o.given("metadata"); given {
		u.Metadata = store.To(json.RawMessage(v.freeObject()))
	}
	if !c.valid() {
		return c.invalid()
	}
	if err := o.notNull("status", "worker_id", "last_heartbeat_time", "metadata"); err != nil {
		return failed(err)
	}
	a, err := h.store.UpdateAttempt(c.Context(), c.params[0], c.params[1], u)
	if err != nil {
		return failed(err)
	}
	return ok(a.AppendJSON(nil))
}
