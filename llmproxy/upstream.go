package llmproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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

func newTransport(connect time.Duration) *http.Transport {
	dialer := &net.Dialer{Timeout: connect, KeepAlive: 30 * time.Second}
	return &http.Transport{
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: connect,
		ForceAttemptHTTP2:   true,
		DisableCompression:  true, // what is captured is what was sent
		// An agent's calls come in bursts: hundreds of connections that are
		// idle now are needed again in a moment.
		MaxIdleConns:        0,
		MaxIdleConnsPerHost: 4096,
		IdleConnTimeout:     90 * time.Second,
		WriteBufferSize:     16 << 10,
		ReadBufferSize:      16 << 10,
	}
}

// send calls a backend, another one when the first cannot be reached, and
// without the fields that it refuses. The answer's body is read through c.
func (c *call) send(ctx context.Context, g *group) (*http.Response, error) {
	for {
		resp, err := c.sendOnce(ctx)
		if err == nil {
			return resp, nil
		}
		if !isUnreachable(err) || ctx.Err() != nil {
			return nil, err
		}
		c.backend.down()
		if c.failover != "" {
			return nil, err
		}
		other := c.p.pick(g, c.rollout, c.backend)
		if other == nil {
			return nil, err
		}
		c.p.cfg.Logger.WarnContext(ctx, "backend cannot be reached, calling another",
			"model", g.model, "backend", c.backend.Endpoint, "other", other.Endpoint, "err", err)
		c.failover = c.backend.Endpoint
		c.backend.load.Add(-1)
		c.backend = other
	}
}

// sendOnce calls the backend of c, again where it refuses fields that the
// proxy had added.
func (c *call) sendOnce(ctx context.Context) (*http.Response, error) {
	p, refusal := c.planFor(c.backend)
	if refusal != nil {
		return nil, refusal
	}
	c.plan = p
	var spared []string
	if c.recorded() {
		if known := c.backend.refuses.Load(); known != nil {
			spared = *known
		}
	}
	for {
		body, added := c.upstreamBody(spared)
		resp, err := c.post(ctx, body)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode < 400 {
			if len(spared) > 0 {
				c.backend.refuses.Store(&spared)
				c.refused = spared
			}
			return resp, nil
		}
		failed, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
		_ = resp.Body.Close()
		if err != nil {
			return nil, err
		}
		more := refusedFields(resp.StatusCode, failed, added)
		if len(more) == 0 {
			resp.Body = io.NopCloser(bytes.NewReader(failed))
			return resp, nil
		}
		spared = slices.Concat(spared, more)
		c.p.cfg.Logger.InfoContext(ctx, "backend refuses fields that the proxy adds, calling it without",
			"model", c.backend.Name, "backend", c.backend.Endpoint, "fields", more)
	}
}

// upstreamBody returns the body for the backend and the names of the fields
// that the caller did not ask for.
func (c *call) upstreamBody(spared []string) (body []byte, added []string) {
	ask := c.plan.ask
	edits := make([]openai.Edit, 0, 4)
	if c.recorded() && c.plan.capture != nil {
		for _, e := range c.plan.capture(ask) {
			if slices.Contains(spared, e.Key) || bytes.Equal(ask.Raw(e.Key), e.Value) {
				continue
			}
			edits = append(edits, e)
			added = append(added, e.Key)
		}
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

func (c *call) post(ctx context.Context, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.backend.base+c.plan.route, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	copyHeaders(req.Header, c.r.Header, requestOnly)
	// Without a value the transport would add its own name.
	if req.Header["User-Agent"] == nil {
		req.Header.Set("User-Agent", "")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept-Encoding", "identity")
	if c.backend.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+c.backend.APIKey)
	}
	// Present but empty: lets the transport send the call again when an idle
	// connection turns out to be dead, and is not sent itself.
	if req.Header["Idempotency-Key"] == nil {
		req.Header["Idempotency-Key"] = []string{}
	}
	return c.p.cfg.Transport.RoundTrip(req)
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
	"Accept-Encoding", "Expect", "X-Rollout-Id", "X-Attempt-Id", "X-Sequence-Id",
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

// unreachable says in words that a backend is down.
func (c *call) unreachable(err error) string {
	why := err.Error()
	if op, ok := errors.AsType[*net.OpError](err); ok {
		why = op.Err.Error()
		if op.Timeout() {
			why = fmt.Sprintf("no connection within %s, the limit that --upstream-connect-timeout sets", c.p.cfg.UpstreamConnectTimeout)
		}
	}
	text := fmt.Sprintf("the backend of model %q at %s cannot be reached: %s; start it, or register the model with another URL",
		c.backend.Name, c.backend.Endpoint, why)
	if c.failover != "" {
		text += fmt.Sprintf(" (%s could not be reached either)", c.failover)
	}
	return text
}
