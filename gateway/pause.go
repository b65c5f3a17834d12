package gateway

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"agentlightning/internal/jsonx"
	"agentlightning/llmproxy"
)

// defaultRetryAfter is what callers are told to wait during a pause that does
// not say.
const defaultRetryAfter = 5

func (h *handler) pause(w http.ResponseWriter, r *http.Request, _ params) {
	var f form
	body, ok := h.read(w, r, &f)
	if !ok {
		return
	}
	p := pauseOf(body)
	if h.refused(w, &f) {
		return
	}
	state, err := h.gate.Pause(p)
	h.answerPause(w, r, state, err)
}

func pauseOf(body field) (p llmproxy.Pause) {
	o, ok := body.model()
	if !ok {
		return p
	}
	after := int64(defaultRetryAfter)
	if v := o.get("retry_after_seconds"); v.raw != nil {
		if after = v.integer(); after < 0 || after > maxSeconds {
			v.wrong("value_error", "Input should be a number of seconds from 0 to "+strconv.Itoa(maxSeconds))
		}
	}
	// To the gate nothing is 0, so that this is the smallest pause that is said.
	p.RetryAfter = max(time.Duration(after)*time.Second, 1)
	p.Reason = o.get("reason").optionalText()
	if owner := o.get("owner").optionalText(); owner != nil {
		p.Owner = *owner
	}
	if v := o.get("lease_seconds"); v.raw != nil && !v.null() {
		p.Lease = time.Duration(v.seconds() * float64(time.Second))
	}
	if v := o.get("hold"); v.raw != nil {
		p.Hold = v.boolean()
	}
	return p
}

// resume takes an owner in a body, which may be left out.
func (h *handler) resume(w http.ResponseWriter, r *http.Request, _ params) {
	var f form
	owner := ""
	if text, ok := h.readText(w, r); !ok {
		return
	} else if len(text) > 0 {
		body, ok := f.readBody(text)
		if ok {
			if o, ok := body.model(); ok {
				if s := o.get("owner").optionalText(); s != nil {
					owner = *s
				}
			}
		}
	}
	if h.refused(w, &f) {
		return
	}
	state, err := h.gate.Resume(owner)
	h.answerPause(w, r, state, err)
}

// pauseState answers the state; with wait, once no call is in flight or after so
// many seconds.
func (h *handler) pauseState(w http.ResponseWriter, r *http.Request, _ params) {
	var f form
	wait := waitOf(query{&f, r.URL.Query()})
	if h.refused(w, &f) {
		return
	}
	if wait > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), wait)
		defer cancel()
		if err := h.gate.Drain(ctx); err != nil && r.Context().Err() != nil {
			h.fail(w, r, err)
			return
		}
	}
	h.answerPause(w, r, h.gate.State(), nil)
}

func (h *handler) answerPause(w http.ResponseWriter, r *http.Request, s llmproxy.PauseState, err error) {
	if e, ok := errors.AsType[*llmproxy.PauseOwnerError](err); ok {
		writeDetail(w, http.StatusConflict, e.Error())
		return
	} else if err != nil {
		h.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, appendPause(nil, &s, time.Now()))
}

// appendPause appends the state of the proxy. What the protocol lacks is shown
// when it is in use.
func appendPause(dst []byte, s *llmproxy.PauseState, now time.Time) []byte {
	dst = strconv.AppendBool(append(dst, `{"paused":`...), s.Paused)
	dst = strconv.AppendInt(append(dst, `,"retry_after_seconds":`...), int64(s.RetryAfter/time.Second), 10)
	dst = jsonx.AppendOptionalString(append(dst, `,"reason":`...), s.Reason)
	dst = strconv.AppendInt(append(dst, `,"inflight":`...), int64(s.InFlight), 10)
	if s.Owner != "" {
		dst = appendMember(dst, "owner", jsonx.AppendString(nil, s.Owner))
	}
	if s.Paused && !s.Until.IsZero() {
		left := max(s.Until.Sub(now).Seconds(), 0)
		dst = appendMember(dst, "lease_seconds", jsonx.AppendFloat(nil, left))
	}
	if s.Hold {
		dst = strconv.AppendInt(append(dst, `,"hold":true,"held":`...), int64(s.Held), 10)
	}
	return append(dst, '}')
}
