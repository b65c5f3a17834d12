package storehttp

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	agl "agentlightning"
	"agentlightning/store"
)

const (
	// tryTimeout limits one request, beside what it waits on purpose.
	tryTimeout = 30 * time.Second
	firstPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
	// maxFaults is how often a request is tried that the server failed at;
	// unlike a server that is away, a fault seldom heals by itself.
	maxFaults = 4
)

// request is one call of the protocol, tried as often as need be.
type request struct {
	method string
	path   string // below Prefix, with the query
	body   []byte
	// key makes the repetition of what is not repeatable by itself harmless.
	key  string
	wait time.Duration // how long the server may keep the request
	// prefer asks the server to wait, where the body cannot.
	prefer bool
}

// reply is the answer to a request that succeeded.
type reply struct {
	body   []byte
	header http.Header
	tries  int
}

// StatusError is an answer of the server other than success.
type StatusError struct {
	Status    int
	Message   string // what the server says
	RequestID string // by which the server's log knows it, if it does
	kind      error
	route     bool // the route, not what it was asked for, does not exist
	after     time.Duration
}

// Error implements error.
func (e *StatusError) Error() string {
	if e.kind != nil && e.Message != "" {
		return e.Message
	}
	text := fmt.Sprintf("the server answers %d", e.Status)
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.RequestID != "" {
		text += " (request " + e.RequestID + ")"
	}
	return text
}

// Unwrap returns the sentinel of package store that the answer stands for, if any.
func (e *StatusError) Unwrap() error { return e.kind }

// do sends a request until it is answered for good, the window has passed or
// ctx ends.
func (c *Client) do(ctx context.Context, r *request) (*reply, error) {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var since time.Time
	faults := 0
	for tries := 1; ; tries++ {
		rep, err := c.try(ctx, r)
		if err == nil {
			rep.tries = tries
			return rep, nil
		}
		if ctx.Err() != nil {
			return nil, ended(ctx)
		}
		again, fault := retryable(err)
		if fault {
			faults++
		}
		if since.IsZero() {
			since = time.Now()
		}
		pause := pauseAfter(tries, err)
		if !again || faults >= maxFaults || time.Since(since)+pause > c.window {
			if again && tries > 1 {
				return nil, fmt.Errorf("%w (tried %d times)", err, tries)
			}
			return nil, err
		}
		c.log.WarnContext(ctx, "request failed, trying again", "method", r.method, "path", r.path,
			"err", err, "tries", tries, "pause", pause)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ended(ctx)
		}
	}
}

// ended says why a call has no answer: the client was closed, or ctx ended.
func ended(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), store.ErrClosed) {
		return store.ErrClosed
	}
	return ctx.Err()
}

// retryable says whether a failed try may be repeated, and whether the server
// was there but failed, rather than away or busy.
func retryable(err error) (again, fault bool) {
	var status *StatusError
	if !errors.As(err, &status) {
		var untrusted *tls.CertificateVerificationError
		return !errors.As(err, &untrusted), false
	}
	switch status.Status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true, false
	case http.StatusNotImplemented, http.StatusInsufficientStorage:
		return false, true
	}
	return status.Status >= http.StatusInternalServerError && status.kind == nil, true
}

// pauseAfter doubles with every try and is spread, so that many runners do not
// come back to a restarted server all at once.
func pauseAfter(tries int, err error) time.Duration {
	pause := min(firstPause<<min(tries-1, 10), maxPause)
	pause = pause/2 + rand.N(pause/2)
	if status, ok := errors.AsType[*StatusError](err); ok {
		pause = max(pause, min(status.after, maxPause*5))
	}
	return pause
}

// try sends a request once.
func (c *Client) try(ctx context.Context, r *request) (*reply, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout+r.wait)
	defer cancel()
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, c.base+Prefix+r.path, body)
	if err != nil {
		return nil, err
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.key != "" {
		req.Header.Set(keyHeader, r.key)
	}
	if r.prefer {
		req.Header.Set(preferHeader, preferWait(r.wait))
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the server: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := readAll(resp.Body, resp.ContentLength, math.MaxInt64, nil)
	if err != nil {
		return nil, fmt.Errorf("the answer of %s %s broke off: %w", r.method, req.URL, err)
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return nil, statusError(resp, answer)
	}
	if kind := resp.Header.Get("Content-Type"); !isJSON(kind) {
		return nil, &StatusError{
			Status: resp.StatusCode, route: true,
			Message: fmt.Sprintf("%q instead of JSON; is %s the address of a store server?", kind, c.base),
		}
	}
	return &reply{body: answer, header: resp.Header}, nil
}

// statusError reads a refusal. The Python server answers 500 for what does not
// exist and tells so in the name of the exception only.
func statusError(resp *http.Response, body []byte) *StatusError {
	e := &StatusError{Status: resp.StatusCode, RequestID: resp.Header.Get(requestIDHeader)}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		e.after = time.Duration(seconds) * time.Second
	}
	var w struct {
		Detail    json.RawMessage `json:"detail"`
		ErrorType string          `json:"error_type"`
		Traceback string          `json:"traceback"`
	}
	_ = json.Unmarshal(body, &w) // a proxy on the way may answer anything
	e.Message = detailText(w.Detail)
	switch resp.StatusCode {
	case http.StatusNotFound:
		e.kind, e.route = store.ErrNotFound, w.ErrorType == ""
	case http.StatusMethodNotAllowed:
		e.route = true
	case http.StatusUnauthorized, http.StatusForbidden:
		e.kind = store.ErrDenied
	case http.StatusGone:
		e.kind = store.ErrEnded
	case http.StatusInsufficientStorage:
		e.kind = store.ErrFull
	case http.StatusConflict:
		e.kind = store.ErrConflict
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
		e.kind = store.ErrInvalid
	case http.StatusInternalServerError:
		lines := strings.Split(strings.TrimSpace(w.Traceback), "\n")
		switch w.ErrorType {
		case "ValueError":
			e.kind = store.ErrNotFound
			e.Message = strings.TrimPrefix(lines[len(lines)-1], "ValueError: ")
		case "RuntimeError":
			last := strings.TrimPrefix(lines[len(lines)-1], "RuntimeError: ")
			if strings.HasPrefix(last, "Spans for rollout ") && strings.HasSuffix(last, " have been evicted") {
				e.kind, e.Message = store.ErrEvicted, last
			}
		case "ResponseValidationError":
			e.kind = store.ErrNotFound
		}
	}
	if e.route {
		e.kind = errors.ErrUnsupported
		e.Message = fmt.Sprintf("the server at %s does not have %s %s", resp.Request.URL.Host,
			resp.Request.Method, resp.Request.URL.Path)
	}
	return e
}

// detailText makes one line of what the server finds wrong: a text, or a list
// of problems with their places.
func detailText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var list []struct {
		Loc   []json.RawMessage `json:"loc"`
		Msg   string            `json:"msg"`
		Input json.RawMessage   `json:"input"`
	}
	if json.Unmarshal(raw, &list) != nil {
		return string(raw)
	}
	lines := make([]string, 0, len(list))
	for _, p := range list {
		at := make([]string, len(p.Loc))
		for i, part := range p.Loc {
			at[i] = strings.Trim(string(part), `"`)
		}
		line := strings.Join(at, ".") + ": " + p.Msg
		const most = 60
		if len(p.Input) <= most {
			line += ", not " + string(p.Input)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

// lacksRoute reports whether the server does not know the route at all.
func lacksRoute(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && status.route && status.Status >= http.StatusMultipleChoices
}

// newKey returns a key for one request that must not be done twice.
func newKey() string { return agl.NewTraceID() }
