package storehttp

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/store"
)

func (h *handler) enqueue(c *call) answer {
	o, _, refused := h.bodyObject(c, true)
	if refused != nil {
		return *refused
	}
	var reqs []store.EnqueueRequest
	if v, given := o.need("rollouts"); given {
		for _, e := range v.elements() {
			if r, isObject := e.object("model_attributes_type"); isObject {
				reqs = append(reqs, r.enqueueRequest())
			}
		}
	}
	if !c.valid() {
		return c.invalid()
	}
	return h.once(c, func(ctx context.Context) answer {
		made, err := h.store.EnqueueRollouts(ctx, reqs)
		if err != nil {
			return failed(err)
		}
		return created(appendItems(nil, made, appendRollout))
	})
}

func (h *handler) dequeue(c *call) answer {
	o, given, refused := h.bodyObject(c, false)
	if refused != nil {
		return *refused
	}
	req := store.DequeueRequest{Limit: 1, Key: c.Header.Get(keyHeader)}
	if given {
		if v, given := o.get("limit"); given {
			req.Limit = int(v.int())
		}
		req.WorkerID = o.stringOrNull("worker_id")
	}
	wait, waits := preferredWait(c.Header)
	req.Wait = min(wait, h.config.MaxWait)
	if !c.valid() {
		return c.invalid()
	}
	turn := h.turns.take(req.Key)
	claimed, err := h.claim(c.Context(), req, turn)
	if err != nil {
		return failed(err)
	}
	a := ok(appendItems(nil, claimed, appendAttempted))
	if waits {
		a.header = [2]string{appliedHeader, "wait"}
	}
	if len(claimed) > 0 {
		a.undo = func(ctx context.Context) {
			turn.undo(claimed, func(mine []agl.AttemptedRollout) { h.undoClaim(ctx, mine) })
		}
	}
	return a
}

// claim dequeues for a turn, and again when all that it got was undone meanwhile.
func (h *handler) claim(ctx context.Context, req store.DequeueRequest, turn turn) ([]agl.AttemptedRollout, error) {
	for {
		claimed, err := h.store.DequeueRollouts(ctx, req)
		if err != nil {
			return nil, err
		}
		if held := turn.hold(claimed); len(held) > 0 || len(claimed) == 0 {
			return held, nil
		}
	}
}

func (h *handler) undoClaim(ctx context.Context, claimed []agl.AttemptedRollout) {
	ctx, cancel := detached(ctx)
	defer cancel()
	h.config.Logger.WarnContext(ctx, "claim undone: its answer was not delivered", "rollout_id", claimed[0].RolloutID,
		"claims", len(claimed))
	if err := h.store.ReleaseRollouts(ctx, claimed); err != nil {
		h.config.Logger.ErrorContext(ctx, "cannot undo a claim; its attempt ends when its time limit passes",
			"rollout_id", claimed[0].RolloutID, "err", err)
	}
}

// release undoes claims that a client could not take up.
func (h *handler) release(c *call) answer {
	o, _, refused := h.bodyObject(c, true)
	if refused != nil {
		return *refused
	}
	var claimed []agl.AttemptedRollout
	if v, given := o.need("rollouts"); given {
		for _, e := range v.elements() {
			claimed = append(claimed, decoded[agl.AttemptedRollout](e))
		}
	}
	if !c.valid() {
		return c.invalid()
	}
	if err := h.store.ReleaseRollouts(c.Context(), claimed); err != nil {
		return failed(err)
	}
	return ok([]byte("{}"))
}

const (
	preferHeader  = "Prefer"
	appliedHeader = "Preference-Applied"
)

// preferredWait reads "Prefer: wait=SECONDS", with a fraction if need be.
func preferredWait(header http.Header) (wait time.Duration, given bool) {
	for _, line := range header[preferHeader] {
		for part := range strings.SplitSeq(line, ",") {
			text, found := strings.CutPrefix(strings.TrimSpace(part), "wait=")
			if !found {
				continue
			}
			seconds, err := strconv.ParseFloat(text, 64)
			if err != nil || !(seconds >= 0) {
				continue
			}
			if wait = waitTime(seconds); wait < 0 {
				wait = 1 << 62
			}
			return wait, true
		}
	}
	return 0, false
}

func preferWait(wait time.Duration) string {
	return "wait=" + string(jsonx.AppendFloat(nil, wait.Seconds()))
}
