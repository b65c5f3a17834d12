package llmproxy

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"agentlightning/llm/openai"
)

// Waits between the tries of a call: half a second, doubled each time up to
// eight, each by up to a quarter more or less, so that calls that failed
// together do not come back together.
const (
	firstWait = 500 * time.Millisecond
	mostWait  = 8 * time.Second
	jitter    = 0.25
	// longestRetryAfter is for how long a backend may ask a call to wait; one that
	// asks for more is not tried again, and its caller told.
	longestRetryAfter = time.Minute
)

// send calls a backend until there is an answer to hand through, as often as the
// backend is registered for. Nothing of an answer has reached the caller then.
func (c *call) send() (*http.Response, error) {
	for {
		resp, err := c.sendSomewhere()
		wait, why := c.again(resp, err)
		if why == "" {
			return resp, err
		}
		if resp != nil {
			_ = resp.Body.Close()
		}
		c.hangUp(errFinished)
		c.retries++
		c.retried = why
		c.p.cfg.Logger.InfoContext(c.r.Context(), "backend could not serve a call, trying again",
			"model", c.backend.Name, "backend", c.backend.Endpoint, "reason", why, "retry", c.retries, "wait", wait)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-c.r.Context().Done():
			timer.Stop()
			return nil, context.Cause(c.r.Context())
		}
		if c.placed {
			c.backend.limits.repeat()
		} else if err := c.occupy(); err != nil {
			return nil, err
		}
	}
}

// again returns how long to wait before another try and why there is one; why is
// empty when there is none.
func (c *call) again(resp *http.Response, err error) (wait time.Duration, why string) {
	if int64(c.retries) >= c.maxRetries() || c.r.Context().Err() != nil || c.p.cfg.Gate.State().Paused {
		return 0, ""
	}
	wait = min(firstWait<<c.retries, mostWait)
	wait = time.Duration(float64(wait) * (1 - jitter + 2*jitter*rand.Float64()))
	if err != nil {
		if !isTransport(err) {
			return 0, ""
		}
		_, why = c.blame(c.sentContext(), err)
		return wait, why
	}
	switch status := resp.StatusCode; {
	case status != http.StatusRequestTimeout && status != http.StatusConflict &&
		status != http.StatusTooManyRequests && status < 500:
		return 0, ""
	case openai.IsContextOverflow(c.failure):
		return 0, "" // it would not fit the next time either
	}
	if asked, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && asked > 0 {
		if time.Duration(asked)*time.Second > longestRetryAfter {
			return 0, ""
		}
		wait = max(wait, time.Duration(asked)*time.Second)
	}
	return wait, "status " + strconv.Itoa(resp.StatusCode)
}

// maxRetries is how often the call may be sent again.
func (c *call) maxRetries() int64 {
	if c.directed != nil {
		return max(c.directed.Retries, c.backend.Retries)
	}
	return c.backend.Retries
}

// isTransport reports whether a call failed on its way, not by a decision of
// the proxy.
func isTransport(err error) bool {
	if _, ok := errors.AsType[*unsentError](err); ok {
		return false
	}
	if _, ok := errors.AsType[*limitError](err); ok {
		return false
	}
	if _, ok := errors.AsType[*PausedError](err); ok {
		return false
	}
	return !errors.Is(err, errGone)
}

// unsentError is why a call is not sent to a backend.
type unsentError struct {
	status int
	err    *openai.Error
}

func (e *unsentError) Error() string { return e.err.Message }
