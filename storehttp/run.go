package storehttp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	agl "agentlightning"
	"agentlightning/store"
)

// The routes of runs are ours alone: their bodies are the JSON of the domain
// types, read strictly.

var runStatuses = []agl.RunStatus{agl.RunRunning, agl.RunSucceeded, agl.RunFailed, agl.RunInterrupted}

// decoded reads a value as the JSON of T.
func decoded[T any](v value) T {
	var t T
	if err := json.Unmarshal(v.raw, &t); err != nil {
		what := "Input should be valid: " + err.Error()
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
			what = "Input should have a valid " + wrong.Field + ": " + wrong.Value + " is not " + wrong.Type.String()
		}
		v.report("value_error", v.at, what, v.raw)
	}
	return t
}

// encoded is the answer with the JSON of v.
func encoded(status int, v any) answer {
	body, err := json.Marshal(v)
	if err != nil {
		return failed(err)
	}
	return answer{status: status, body: body}
}

// bodyOf reads the whole body as the JSON of T.
func bodyOf[T any](h *handler, c *call) (t T, refused *answer) {
	v, given, err := c.body(h.config.MaxBody, true)
	if err != nil {
		a := failed(err)
		return t, &a
	}
	if given {
		v.raw = v.free() // NaN, which encoding/json does not read, becomes null
		t = decoded[T](v)
	}
	if !c.valid() {
		a := c.invalid()
		return t, &a
	}
	return t, nil
}

func (h *handler) listRuns(c *call) answer {
	o := c.query()
	limit := 0
	if v, given := o.get("limit"); given {
		limit = int(v.int())
	}
	if !c.valid() {
		return c.invalid()
	}
	runs, err := h.store.Runs(c.Context(), limit)
	if err != nil {
		return failed(err)
	}
	return encoded(http.StatusOK, notNil(runs))
}

func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func (h *handler) createRun(c *call) answer {
	run, refused := bodyOf[agl.Run](h, c)
	if refused != nil {
		return *refused
	}
	return h.once(c, func(ctx context.Context) answer {
		made, err := h.store.CreateRun(ctx, run)
		if err != nil {
			return failed(err)
		}
		return encoded(http.StatusCreated, made)
	})
}

func (h *handler) run(c *call) answer {
	run, err := h.store.Run(c.Context(), c.params[0])
	if errors.Is(err, store.ErrNotFound) {
		return ok([]byte("null"))
	}
	if err != nil {
		return failed(err)
	}
	return encoded(http.StatusOK, run)
}

func (h *handler) updateRun(c *call) answer {
	o, _, refused := h.bodyObject(c, true)
	if refused != nil {
		return *refused
	}
	var u store.RunUpdate
	if v, given := o.get("status"); given {
		u.Status = store.To(literal(v, runStatuses))
	}
	if v, given := o.get("config"); given {
		u.Config = store.To(json.RawMessage(v.freeObject()))
	}
	if v, given := o.get("error"); given {
		u.Error = store.To(v.string())
	}
	if !c.valid() {
		return c.invalid()
	}
	run, err := h.store.UpdateRun(c.Context(), c.params[0], u)
	if err != nil {
		return failed(err)
	}
	return encoded(http.StatusOK, run)
}

func (h *handler) stepMetrics(c *call) answer {
	o := c.query()
	after := -1
	if v, given := o.get("after"); given {
		after = int(v.int())
	}
	if !c.valid() {
		return c.invalid()
	}
	metrics, err := h.store.StepMetrics(c.Context(), c.params[0], after)
	if err != nil {
		return failed(err)
	}
	return encoded(http.StatusOK, stepMetricsJSON(metrics))
}

func (h *handler) addStepMetrics(c *call) answer {
	metrics, refused := bodyOf[[]metricsJSON](h, c)
	if refused != nil {
		return *refused
	}
	if err := h.store.AddStepMetrics(c.Context(), c.params[0], fromMetricsJSON(metrics)...); err != nil {
		return failed(err)
	}
	return ok([]byte("{}"))
}

func (h *handler) putCheckpoint(c *call) answer {
	checkpoint, refused := bodyOf[agl.Checkpoint](h, c)
	if refused != nil {
		return *refused
	}
	if err := h.store.PutCheckpoint(c.Context(), c.params[0], checkpoint); err != nil {
		return failed(err)
	}
	return ok([]byte("{}"))
}

func (h *handler) latestCheckpoint(c *call) answer {
	checkpoint, err := h.store.LatestCheckpoint(c.Context(), c.params[0])
	if errors.Is(err, store.ErrNotFound) {
		return ok([]byte("null"))
	}
	if err != nil {
		return failed(err)
	}
	return encoded(http.StatusOK, checkpoint)
}

func (h *handler) checkpoints(c *call) answer {
	checkpoints, err := h.store.Checkpoints(c.Context(), c.params[0])
	if err != nil {
		return failed(err)
	}
	return encoded(http.StatusOK, notNil(checkpoints))
}
