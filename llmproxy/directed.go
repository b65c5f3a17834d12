package llmproxy

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"time"

	agl "agentlightning"
	"agentlightning/llm/openai"
	"agentlightning/semconv"
	"agentlightning/store"
)

// Directed is a call for which another protocol has decided what the caller of
// a plain one decides: which model, with which parameters, and in which shape
// errors are told.
type Directed struct {
	// At is the attempt that the call is recorded under. It exists.
	At store.Attempted
	// Route is the path below /v1, such as /chat/completions.
	Route string
	// Model is the model to call. When it is not registered and exactly one
	// other is, that one is called.
	Model string
	// Request is the call, Model in it left to the proxy.
	Request *openai.Request
	// Capture are members that the backend is asked with for the record, without
	// which it is asked again if it refuses them.
	Capture []openai.Edit
	// Retries is how often the call is sent again at least.
	Retries int64
	// Answer rewrites a whole answer that the backend gave in the caller's
	// dialect, and says what to add to the span. An error is one of the backend.
	// Nil leaves answers as they are.
	Answer func(DirectedAnswer) ([]byte, agl.Attributes, error)
	// Error writes an error that the proxy itself answers with; nil leaves that to
	// the dialect.
	Error func(status int, code, message string) []byte
	// Paused is the body that refuses a call during a pause, and RetryAfter the
	// header of that name.
	Paused func(*PausedError) (body []byte, retryAfter string)
}

// DirectedAnswer is a whole answer to a [Directed] call.
type DirectedAnswer struct {
	Model   agl.Model // the backend that answered, without its key
	Request []byte    // the body that it was sent
	Status  int
	Type    string // media type of the answer
	Body    []byte
	Latency time.Duration // from the first try to the answer
	Retries int           // tries that failed before
}

// Serves tells whether directed calls of a route can be made.
func (p *Proxy) Serves(route string) bool { return dialectOf(route) != nil }

// Registered returns the name under which a model is called: itself, or that of
// the only one when it is not registered. It is empty when there is none to call.
func (p *Proxy) Registered(ctx context.Context, model string) (string, error) {
	g, err := p.models.lookup(ctx, model)
	if err != nil {
		return "", err
	}
	if g != nil {
		return model, nil
	}
	if t := p.models.now.Load(); t != nil && len(t.names) == 1 {
		return t.names[0], nil
	}
	return "", nil
}

// ServeDirected makes a call, records and answers it. All calls of a rollout go
// to one backend, which its id alone decides.
func (p *Proxy) ServeDirected(w http.ResponseWriter, r *http.Request, d *Directed) {
	c := &call{
		p: p, w: w, r: r, dialect: d.dialect(dialectOf(d.Route)), start: p.cfg.Now(),
		at: d.At, directed: d, req: d.Request, agent: agentOf(r.Header, ""), rollout: &rollout{},
	}
	if c.recorded() {
		c.seq = p.takeSequence(r.Context(), c.at)
		defer func() { _, _ = c.seq.wait() }()
	}
	g, err := p.models.lookup(r.Context(), d.Model)
	if err != nil {
		c.modelsUnknown(err)
		return
	}
	if g != nil {
		c.rollout.backends = []stay{{g.model, g.byHash(d.At.RolloutID)}}
	}
	c.serve(g)
}

// dialect returns a dialect with the errors and captures of the call.
func (d *Directed) dialect(of *dialect) *dialect {
	own := *of
	if d.Error != nil {
		own.appendError = func(dst []byte, status int, e *openai.Error) []byte {
			return append(dst, d.Error(status, e.Code, e.Message)...)
		}
	}
	own.capture = func(req *openai.Request) []openai.Edit {
		return slices.Concat(d.Capture, openai.CaptureUsage(req))
	}
	return &own
}

// byHash returns the endpoint to which the 1.0 protocol sends the calls of a
// rollout: the endpoints in order, the first eight bytes of the id's SHA-256 as
// an unsigned number modulo how many there are.
func (g *group) byHash(rolloutID string) string {
	endpoints := make([]string, len(g.backends))
	for i, b := range g.backends {
		endpoints[i] = b.Endpoint
	}
	slices.Sort(endpoints)
	digest := sha256.Sum256([]byte(rolloutID))
	return endpoints[binary.BigEndian.Uint64(digest[:])%uint64(len(endpoints))]
}

// rewrite puts a whole answer into the shape of a directed call; it answers the
// caller when it cannot.
func (c *call) rewrite(resp *http.Response, body []byte) ([]byte, bool) {
	d := c.directed
	if d == nil || d.Answer == nil || c.plan.translate != nil {
		return body, true
	}
	model := c.backend.Model
	model.APIKey = ""
	out, extra, err := d.Answer(DirectedAnswer{
		Model: model, Request: c.body, Status: resp.StatusCode, Type: resp.Header.Get("Content-Type"), Body: body,
		Latency: c.p.cfg.Now().Sub(c.start), Retries: c.retries,
	})
	if err != nil {
		c.status = 0 // what it said is no answer
		c.fail(semconv.ProblemUpstreamError, http.StatusBadGateway, &openai.Error{
			Message: fmt.Sprintf("the backend of model %q at %s: %v", c.backend.Name, c.backend.Endpoint, err),
			Type:    openai.TypeServer, Code: "backend_answer",
		})
		return nil, false
	}
	c.extra = extra
	resp.Header = http.Header{"Content-Type": {"application/json"}}
	return out, true
}

// pausedDirected answers a directed call that the gate did not let in, and
// records it.
func (c *call) pausedDirected(e *PausedError) {
	c.problem, c.message = semconv.ProblemPaused, e.Error()
	if err := c.record(); err != nil {
		c.storeFailed(err)
		return
	}
	body, after := c.directed.Paused(e)
	c.w.Header().Set("Retry-After", after)
	writeJSON(c.w, http.StatusTooManyRequests, body)
}
