package storehttp

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"

	agl "agentlightning"
	"agentlightning/store"
)

var modes = []agl.Mode{agl.ModeTrain, agl.ModeVal, agl.ModeTest}

func appendRollout(r *agl.Rollout, dst []byte) []byte { return r.AppendJSON(dst) }

func appendAttempted(r *agl.AttemptedRollout, dst []byte) []byte { return r.AppendJSON(dst) }

// orNull is the answer to a look-up: null when there is no such thing.
func orNull(err error, body func() []byte) answer {
	switch {
	case err == nil:
		return ok(body())
	case errors.Is(err, store.ErrNotFound):
		return ok([]byte("null"))
	}
	return failed(err)
}

func (h *handler) listRollouts(c *call) answer { return h.searchRollouts(c) }

func (h *handler) searchRollouts(c *call) answer {
	return h.search(c, []string{"status_in", "rollout_id_in"}, func(o object) func() answer {
		q := o.rolloutFilters()
		p := o.page("")
		q.Paging, q.Any = p.Paging, o.any()
		return func() answer {
			if err := p.check(rolloutFields); err != nil {
				return failed(err)
			}
			if p.long() {
				return answer{list: &list{p, func(out *listWriter) (int, error) {
					return h.streams.StreamRollouts(c.Context(), q, func(r *agl.AttemptedRollout) error {
						return out.put(r.AppendJSON(out.next()))
					})
				}}}
			}
			found, err := h.store.QueryRollouts(c.Context(), q)
			if err != nil {
				return failed(err)
			}
			return ok(appendPage(p, found, appendAttempted))
		}
	})
}

// rolloutFilters reads which rollouts are asked for.
func (o object) rolloutFilters() store.RolloutQuery {
	var q store.RolloutQuery
	if v, given := o.given("status_in"); given {
		q.StatusIn = literals(v, agl.RolloutStatuses())
	}
	if v, given := o.given("rollout_id_in"); given {
		q.RolloutIDIn = v.strings()
	}
	q.RolloutIDContains = o.stringOrNull("rollout_id_contains")
	return q
}

func (h *handler) rollout(c *call) answer {
	r, err := h.store.Rollout(c.Context(), c.params[0])
	return orNull(err, func() []byte { return r.AppendJSON(nil) })
}

func (h *handler) startRollout(c *call) answer {
	o, _, refused := h.bodyObject(c, true)
	if refused != nil {
		return *refused
	}
	req := store.StartRequest{EnqueueRequest: o.enqueueRequest(), WorkerID: o.stringOrNull("worker_id")}
	if !c.valid() {
		return c.invalid()
	}
	return h.once(c, func(ctx context.Context) answer {
		r, err := h.store.StartRollout(ctx, req)
		if err != nil {
			return failed(err)
		}
		return created(r.AppendJSON(nil))
	})
}

// enqueueRequest reads what a new rollout may be given.
func (o object) enqueueRequest() store.EnqueueRequest {
	var req store.EnqueueRequest
	if v, given := o.need("input"); given {
		req.Input = v.free()
	}
	if v, given := o.given("mode"); given {
		req.Mode = literal(v, modes)
	}
	req.ResourcesID = o.stringOrNull("resources_id")
	if v, given := o.given("config"); given {
		config := v.rolloutConfig()
		req.Config = &config
	}
	if v, given := o.given("metadata"); given {
		req.Metadata = v.freeObject()
	}
	return req
}

func (v value) rolloutConfig() agl.RolloutConfig {
	config := agl.RolloutConfig{MaxAttempts: 1}
	o, isObject := v.object("model_attributes_type")
	if !isObject {
		return config
	}
	config.TimeoutSeconds = o.floatOrNull("timeout_seconds")
	config.UnresponsiveSeconds = o.floatOrNull("unresponsive_seconds")
	if m, given := o.get("max_attempts"); given {
		before := len(v.problems)
		n := m.int()
		if len(v.problems) == before && n < 1 {
			v.problems = append(v.problems, problem{
				kind: "greater_than_equal", at: m.at,
				msg: "Input should be greater than or equal to 1", input: m.raw, ctx: []byte(`{"ge":1}`),
			})
		}
		config.MaxAttempts = int(min(n, math.MaxInt32))
	}
	if r, given := o.get("retry_condition"); given {
		config.RetryCondition = literals(r, agl.AttemptStatuses())
	}
	return config
}

func (h *handler) updateRollout(c *call) answer {
	o, _, refused := h.bodyObject(c, true)
	if refused != nil {
		return *refused
	}
	var u store.RolloutUpdate
	if v, given := o.get("input"); given {
		u.Input = store.To(json.RawMessage(v.free()))
	}
	if v, given := o.get("mode"); given {
		u.Mode.Given = true
		if !v.null() {
			u.Mode.Value = literal(v, modes)
		}
	}
	if _, given := o.get("resources_id"); given {
		u.ResourcesID = store.To(o.stringOrNull("resources_id"))
	}
	if v, given := o.given("status"); given {
		u.Status = store.To(literal(v, agl.RolloutStatuses()))
	}
	if v, given := o.given("config"); given {
		u.Config = store.To(v.rolloutConfig())
	}
	if v, given := o.get("metadata"); given {
		u.Metadata.Given = true
		if !v.null() {
			u.Metadata.Value = v.freeObject()
		}
	}
	if !c.valid() {
		return c.invalid()
	}
	if err := o.notNull("status", "config"); err != nil {
		return failed(err)
	}
	r, err := h.store.UpdateRollout(c.Context(), c.params[0], u)
	if err != nil {
		return failed(err)
	}
	return ok(r.AppendJSON(nil))
}

// notNull refuses members that are given as null where leaving them out is meant.
func (o object) notNull(names ...string) error {
	for _, name := range names {
		if v, given := o.get(name); given && v.null() {
			return &refusal{http.StatusBadRequest, name + " is invalid; it cannot be a null value."}
		}
	}
	return nil
}
