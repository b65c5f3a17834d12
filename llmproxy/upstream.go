package llmproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"agentlightning/llm/openai"
)

// maxErrorBytes is how much of a failed answer is read.
const maxErrorBytes = 1 << 20

// Why a call was ended from here.
var (
	errFirstByte = errors.New("no answer within the limit")
	errIdle      = errors.New("no more of the answer within the limit")
	errFinished  = errors.New("the call is over")
)

// sendSomewhere calls a backend, another one when the first cannot be reached,
// and without the fields that it refuses.
func (c *call) sendSomewhere() (*http.Response, error) {
	var tried []*backend
	for {
		resp, err := c.sendInDialect()
		if err == nil || !isUnreachable(err) || c.sentContext().Err() != nil {
			return resp, err
		}
		failed := c.backend
		c.notThere(failed, err)
		tried = append(tried, failed)
		c.vacate()
		if other := c.occupy(tried...); other != nil {
			if _, paused := errors.AsType[*PausedError](other); paused || errors.Is(other, errNoOther) {
				return nil, err
			}
			return nil, other
		}
		c.p.cfg.Logger.WarnContext(c.r.Context(), "backend cannot be reached, calling another",
			"model", failed.Name, "backend", failed.Endpoint, "other", c.backend.Endpoint, "err", err)
		if c.failover == "" {
			c.failover = failed.Endpoint
		}
	}
}

// refusalHolds is how long a backend is spared what it refused. It may have been
// started anew by then, with more that it knows.
const refusalHolds = 10 * time.Minute

// sendOnce calls the backend of c, again where it refuses fields that the
// proxy had added.
func (c *call) sendOnce() (*http.Response, error) {
	if err := c.backend.noKey(); err != nil {
		return nil, &unsentError{http.StatusServiceUnavailable, err}
	}
	p, refusal := c.planFor(c.backend)
	if refusal != nil {
		return nil, &unsentError{http.StatusBadRequest, refusal}
	}
	c.plan, c.refused, c.failure = p, nil, nil
	var spared []string
	if len(p.capture) > 0 {
		spared = c.backend.spared(time.Now())
	}
	var first *http.Response // the refusal that names no field
	for learned := false; ; learned = true {
		body, added := c.upstreamBody(spared)
		resp, err := c.post(body)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode < 400 {
			if learned {
				c.backend.refused(spared, time.Now().Add(refusalHolds))
			} else if len(added) > 0 {
				c.backend.accepts.Store(true)
			}
			if c.recorded() {
				c.refused = spared
			}
			return resp, nil
		}
		if err := c.readFailure(resp); err != nil {
			return nil, err
		}
		if first != nil {
			return first, nil // it was not the fields
		}
		more := refusedFields(resp.StatusCode, c.failure, added)
		if len(more) == 0 {
			if !c.maybeRefused(resp.StatusCode, added) {
				return resp, nil
			}
			first, more = resp, added
		}
		spared = slices.Concat(spared, more)
		c.p.cfg.Logger.InfoContext(c.r.Context(), "backend refuses fields that the proxy adds, calling it without",
			"model", c.backend.Name, "backend", c.backend.Endpoint, "fields", more)
	}
}

// readFailure reads what a failed answer says. The answer can still be read.
func (c *call) readFailure(resp *http.Response) error {
	said, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
	if err != nil {
		_ = resp.Body.Close()
		return err
	}
	c.failure = said
	if len(said) < maxErrorBytes {
		_ = resp.Body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(said))
		return nil
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(said), resp.Body), resp.Body}
	return nil
}

// maybeRefused reports whether a failure that names no field may be one of the
// added fields all the same.
func (c *call) maybeRefused(status int, added []string) bool {
	if status != http.StatusBadRequest && status != http.StatusUnprocessableEntity || len(added) == 0 || c.backend.accepts.Load() {
		return false
	}
	said := bytes.ToLower(c.failure)
	for _, word := range [...]string{"extra input", "extra field", "unknown", "unrecognized", "unexpected", "unsupported", "not permitted", "additional propert"} {
		if bytes.Contains(said, []byte(word)) {
			return true
		}
	}
	return false
}

// upstreamBody returns the body for the backend and the names of the fields
// that the caller did not ask for.
func (c *call) upstreamBody(spared []string) (body []byte, added []string) {
	ask := c.plan.ask
	edits := make([]openai.Edit, 0, 4)
	for _, e := range c.plan.capture {
		if slices.Contains(spared, e.Key) || bytes.Equal(ask.Raw(e.Key), e.Value) {
			continue
		}
		edits = append(edits, e)
		added = append(added, e.Key)
	}
	if target := c.backend.target(); target != ask.Model {
		edits = append(edits, openai.Edit{Key: "model", Value: openai.Text(target)})
	}
	if len(edits) == 0 {
		return ask.Body(), nil
	}
	return ask.Edit(edits...), added
}

// refusedFields returns those of the added fields that a failed answer names.
func refusedFields(status int, body []byte, added []string) []string {
	switch status {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusUnprocessableEntity:
	default:
		return nil
	}
	var named []string
	for _, field := range added {
		if bytes.Contains(body, []byte(field)) {
			named = append(named, field)
		}
	}
	return named
}

// begin makes a request to the backend: hangUp ends it, and so does the limit
// when nothing comes.
func (c *call) begin(body []byte) (err error) {
	c.hangUp(errFinished)
	ctx, end := context.WithCancelCause(c.r.Context())
	c.end = end
	if limit := c.p.cfg.UpstreamTimeout; limit > 0 {
		c.first = time.AfterFunc(limit, func() { end(errFirstByte) })
	}
	c.sent, err = http.NewRequestWithContext(ctx, http.MethodPost, c.backend.url(c.plan.route), bytes.NewReader(body))
	return err
}

// sentContext is the context of the request to the backend, which says why it
// was ended.
func (c *call) sentContext() context.Context {
	if c.sent == nil {
		return c.r.Context()
	}
	return c.sent.Context()
}

// hangUp ends the request to the backend, if there is one.
func (c *call) hangUp(cause error) {
	if c.first != nil {
		c.first.Stop()
	}
	if c.end != nil {
		c.end(cause)
	}
}

func (c *call) post(body []byte) (*http.Response, error) {
	if err := c.begin(body); err != nil {
		return nil, err
	}
	c.body = body
	req := c.sent
	if c.directed == nil {
		copyHeaders(req.Header, c.r.Header, requestOnly)
	}
	if c.plan.translate != nil {
		maps.DeleteFunc(req.Header, func(key string, _ []string) bool { return strings.HasPrefix(key, "Anthropic-") })
	}
	// Without a value the transport would add its own name.
	if req.Header["User-Agent"] == nil {
		req.Header.Set("User-Agent", "")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept-Encoding", "identity")
	c.backend.authorize(req.Header)
	// Present but empty: lets the transport send the call again when an idle
	// connection turns out to be dead, and is not sent itself.
	if req.Header["Idempotency-Key"] == nil {
		req.Header["Idempotency-Key"] = []string{}
	}
	resp, err := c.p.cfg.Transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = &timedReader{src: resp.Body, first: c.first, idle: c.p.cfg.UpstreamIdleTimeout, cancel: c.end}
	return resp, nil
}

// hopByHop are headers that concern one connection only.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// requestOnly are headers of callers that are not the backend's business: keys
// and cookies, what the proxy decides itself, and ids of our own.
var requestOnly = []string{
	"Authorization", "X-Api-Key", "Api-Key", "Cookie", "Host", "Content-Length",
	"Accept-Encoding", "Expect", "X-Rollout-Id", "X-Attempt-Id", "X-Sequence-Id", headerAgent,
}

// responseOnly are headers of backends that the proxy decides itself.
var responseOnly = []string{"Content-Length"}

func copyHeaders(dst, src http.Header, without []string) {
	var named []string
	for _, line := range src["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			named = append(named, textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name)))
		}
	}
	for key, values := range src {
		if slices.Contains(hopByHop, key) || slices.Contains(without, key) || slices.Contains(named, key) {
			continue
		}
		dst[key] = slices.Clone(values)
	}
}

// isUnreachable reports whether no connection could be made, so that the
// backend cannot have seen the call.
func isUnreachable(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	_, ok := errors.AsType[*net.DNSError](err)
	return ok
}

// timedReader ends the call when a read takes longer than the limit. Time that
// passes between reads, while the caller takes in what it was sent, does not
// count.
type timedReader struct {
	src    io.ReadCloser
	first  *time.Timer // ends the call while nothing has come; nil without a limit
	idle   time.Duration
	timer  *time.Timer // ends it between reads
	cancel context.CancelCauseFunc
	begun  bool
}

func (t *timedReader) Read(b []byte) (int, error) {
	if t.begun && t.idle > 0 {
		if t.timer == nil {
			t.timer = time.AfterFunc(t.idle, func() { t.cancel(errIdle) })
		} else {
			t.timer.Reset(t.idle)
		}
	}
	n, err := t.src.Read(b)
	if t.timer != nil {
		t.timer.Stop()
	}
	if !t.begun {
		t.begun = true
		if t.first != nil {
			t.first.Stop()
		}
	}
	return n, err
}

func (t *timedReader) Close() error { return t.src.Close() }

func whyUnreachable(err error, patience time.Duration) string {
	op, ok := errors.AsType[*net.OpError](err)
	switch {
	case !ok:
		return err.Error()
	case op.Timeout():
		return fmt.Sprintf("no connection within %s, the limit that --upstream-connect-timeout sets", patience)
	}
	return op.Err.Error()
}

// unreachable says in words that a backend is down.
func (c *call) unreachable(err error) string {
	why := whyUnreachable(err, c.p.cfg.UpstreamConnectTimeout)
	text := fmt.Sprintf("the backend of model %q at %s cannot be reached: %s; start it, or register the model with another URL",
		c.backend.Name, c.backend.Endpoint, why)
	if c.failover != "" {
		text += fmt.Sprintf(" (%s could not be reached either)", c.failover)
	}
	return text
}
