package llmproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"time"

	agl "agentlightning"
	"agentlightning/llm/openai"
	"agentlightning/semconv"
	"agentlightning/store"
)

// call is one model call from the request to the recorded span.
type call struct {
	p *Proxy
	w http.ResponseWriter
	r *http.Request

	dialect *dialect

	at      store.Attempted
	agent   string   // that calls, as it says; empty when it does not
	rollout *rollout // nil when the call is not attributed, and so not recorded
	seq     *sequence

	directed *Directed // nil for a call of the proxy's own protocol

	req     *openai.Request
	group   *group
	backend *backend
	placed  bool // the call has a place at the backend
	plan    *plan
	asChat  *openai.Request // the call as a chat completion; nil before
	notChat *openai.Error   // what cannot be put that way

	sent  *http.Request           // to the backend, the one that goes on or was the last; nil before
	end   context.CancelCauseFunc // ends it
	first *time.Timer             // ends it when nothing comes; nil without a limit

	start     time.Time
	firstByte time.Time // zero until something of a stream arrived
	failover  string    // endpoint that could not be reached before
	retries   int       // how often the call was sent again
	retried   string    // why it was sent again the last time
	refused   []string  // fields that the backend was spared
	status    int       // of the backend's answer, 0 when there was none
	failure   []byte    // what the backend said in a failed answer
	chunks    int       // of a stream

	body  []byte         // sent to the backend last
	extra agl.Attributes // of the span, from whoever directed the call

	answer  *openai.Answer // what arrived of it; nil before
	problem string         // why the call is left out of training
	message string         // the problem in words
}

func (p *Proxy) serveCall(w http.ResponseWriter, r *http.Request, d *dialect, at *store.Attempted, agent string) {
	c := &call{p: p, w: w, r: r, dialect: d, agent: agentOf(r.Header, agent), start: p.cfg.Now()}
	if at != nil {
		if c.rollout = p.findAttempt(w, r, d, *at); c.rollout == nil {
			return
		}
		c.at = *at
	}
	if c.recorded() {
		c.seq = p.takeSequence(r.Context(), c.at)
		defer func() { _, _ = c.seq.wait() }()
	}
	if status, e := c.readRequest(); e != nil {
		c.req = &openai.Request{}
		problem := semconv.ProblemUpstreamError
		if status == 0 {
			problem = semconv.ProblemCancelled
		}
		c.fail(problem, status, e)
		return
	}
	g, err := p.models.lookup(r.Context(), c.req.Model)
	if err != nil {
		c.modelsUnknown(err)
		return
	}
	c.serve(g)
}

// modelsUnknown answers a call whose model could not be looked up.
func (c *call) modelsUnknown(err error) {
	if c.r.Context().Err() != nil {
		c.fail(semconv.ProblemCancelled, 0, &openai.Error{Message: c.whyCancelled()})
		return
	}
	c.fail(semconv.ProblemUpstreamError, http.StatusServiceUnavailable, c.p.noModels(c.r.Context(), err))
}

// serve makes the call at a backend of its model, nil when the model has none.
func (c *call) serve(g *group) {
	if g == nil {
		c.fail(semconv.ProblemUpstreamError, http.StatusNotFound, &openai.Error{
			Message: c.p.models.unknownModel(c.req.Model),
			Type:    openai.TypeInvalidRequest, Param: "model", Code: "model_not_found",
		})
		return
	}
	leave, err := c.p.cfg.Gate.Enter(c.r.Context())
	if err != nil {
		c.refusePaused(err)
		return
	}
	defer leave()
	c.group = g
	if err := c.occupy(); err != nil {
		c.refuseFull(err)
		return
	}
	defer c.vacate()
	c.run()
}

// occupy takes a place at a backend of the model, and waits for it where the
// backend has limits. Those to avoid are not taken.
func (c *call) occupy(avoid ...*backend) error {
	for {
		b := c.p.pick(c.group, c.rollout, avoid...)
		if b == nil {
			return c.noneLeft(avoid)
		}
		c.backend = b
		err := b.limits.acquire(c.r.Context(), c.p.cfg.UpstreamQueueTimeout)
		if err == nil {
			c.placed = true
			return nil
		}
		b.leave()
		if !errors.Is(err, errGone) {
			return err
		}
		g, err := c.p.models.lookup(c.r.Context(), c.req.Model)
		if err != nil {
			return err
		}
		if g == nil {
			return errGone
		}
		c.group = g
	}
}

// errNoOther tells that there is no backend left to try.
var errNoOther = errors.New("the model has no other backend")

// vacate gives the place at the backend back.
func (c *call) vacate() {
	if !c.placed {
		return
	}
	c.placed = false
	var tokens int64
	if c.answer != nil && c.answer.Usage != nil {
		tokens = c.answer.Usage.Total
	}
	c.backend.limits.release(tokens)
	c.backend.leave()
}

// refuseFull answers a call that got no place at a backend.
func (c *call) refuseFull(err error) {
	if _, paused := errors.AsType[*PausedError](err); paused {
		c.refusePaused(err)
		return
	}
	if e, ok := errors.AsType[*limitError](err); ok {
		c.w.Header().Set("Retry-After", seconds(max(e.retryAfter, time.Second)))
		c.fail(semconv.ProblemUpstreamError, http.StatusTooManyRequests, &openai.Error{
			Message: fmt.Sprintf("the backend of model %q at %s has all the calls that its limit %s lets in; this one waited for %s, the limit that --upstream-queue-timeout sets",
				c.backend.Name, c.backend.Endpoint, e.limit, e.waited),
			Type: openai.TypeRateLimit, Code: "backend_limit",
		})
		return
	}
	if errors.Is(err, errGone) {
		c.fail(semconv.ProblemUpstreamError, http.StatusNotFound, &openai.Error{
			Message: c.p.models.unknownModel(c.req.Model) + "; its backend was withdrawn while the call waited",
			Type:    openai.TypeInvalidRequest, Param: "model", Code: "model_not_found",
		})
		return
	}
	c.modelsUnknown(err)
}

// refusePaused answers a call that the gate did not let in.
func (c *call) refusePaused(err error) {
	e, ok := errors.AsType[*PausedError](err)
	if !ok {
		c.fail(semconv.ProblemCancelled, 0, &openai.Error{Message: c.whyCancelled()})
		return
	}
	c.w.Header().Set("X-Agl-Paused", "true")
	if c.directed != nil {
		c.pausedDirected(e)
		return
	}
	c.w.Header().Set("Retry-After", seconds(e.RetryAfter))
	c.fail(semconv.ProblemPaused, http.StatusTooManyRequests, &openai.Error{Message: e.Error(), Type: openai.TypeRateLimit, Code: "paused"})
}

// seconds writes a time for the header Retry-After, which has whole ones.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// patience is how long the store may take for a call whose caller may be gone.
const patience = 30 * time.Second

// sequence is a sequence id on its way from the store.
type sequence struct {
	done chan struct{}
	id   int64
	err  error
}

// takeSequence asks for a sequence id while the call goes on: taking one is
// durable, and on a disk that may last as long as the backend does. The owner
// of the sequence waits for it.
func (p *Proxy) takeSequence(ctx context.Context, at store.Attempted) *sequence {
	s := &sequence{done: make(chan struct{})}
	go func() {
		defer close(s.done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		ids, err := p.cfg.Sink.NextSequenceIDs(ctx, []store.Attempted{at})
		switch {
		case err != nil:
			s.err = fmt.Errorf("take a sequence id: %w", err)
		case len(ids) != 1:
			s.err = fmt.Errorf("take a sequence id: the store returned %d", len(ids))
		default:
			s.id = ids[0]
		}
	}()
	return s
}

func (s *sequence) wait() (int64, error) {
	<-s.done
	return s.id, s.err
}

// recorded reports whether the call belongs to an attempt.
func (c *call) recorded() bool { return c.rollout != nil && !c.dialect.silent }

// gathers reports whether the proxy reads the answer, not only passes it on.
func (c *call) gathers() bool { return c.recorded() || c.plan.translate != nil || c.backend.TPM > 0 }

// readRequest reads the body. The status is 0 when the caller is gone.
func (c *call) readRequest() (status int, e *openai.Error) {
	limit := c.p.cfg.MaxRequestBytes
	body, err := readAll(http.MaxBytesReader(c.w, c.r.Body, limit), c.r.ContentLength)
	_, long := errors.AsType[*http.MaxBytesError](err)
	switch {
	case err == nil:
	case long:
		return http.StatusRequestEntityTooLarge, &openai.Error{Message: fmt.Sprintf("the body is longer than %d bytes", limit), Type: openai.TypeInvalidRequest}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return http.StatusRequestTimeout, &openai.Error{Message: "the body did not arrive in time; send it again", Type: openai.TypeInvalidRequest}
	case c.r.Context().Err() != nil:
		return 0, &openai.Error{Message: c.whyCancelled()}
	default:
		return http.StatusBadRequest, &openai.Error{Message: "the body cannot be read: " + err.Error(), Type: openai.TypeInvalidRequest}
	}
	if c.req, err = openai.ParseRequest(body); err != nil {
		return http.StatusBadRequest, &openai.Error{Message: err.Error(), Type: openai.TypeInvalidRequest}
	}
	return 0, nil
}

// run calls the backend and brings the answer back.
func (c *call) run() {
	if local := c.dialect.local; local != nil && !c.dialect.spoken(c.backend.kind) {
		local(c)
		return
	}
	resp, err := c.send()
	defer c.hangUp(errFinished)
	ctx := c.sentContext()
	if e, ok := errors.AsType[*unsentError](err); ok {
		c.fail(semconv.ProblemUpstreamError, e.status, e.err)
		return
	}
	_, full := errors.AsType[*limitError](err)
	if _, paused := errors.AsType[*PausedError](err); full || paused || errors.Is(err, errGone) {
		c.refuseFull(err)
		return
	}
	if err != nil {
		c.sendFailed(ctx, err)
		return
	}
	defer resp.Body.Close()
	c.status = resp.StatusCode
	switch {
	case resp.StatusCode >= 400:
		c.relayFailure(ctx, resp)
	case !isStream(resp):
		c.relayWhole(ctx, resp)
	case c.plan.translate != nil && !c.req.Stream:
		c.relayGathered(ctx, resp)
	case c.gathers():
		c.relayStream(ctx, resp)
	default:
		c.passThrough(ctx, resp)
	}
}

// sendFailed answers a call for which the backend gave no answer.
func (c *call) sendFailed(ctx context.Context, err error) {
	problem, message := c.blame(ctx, err)
	status, kind, code := http.StatusBadGateway, openai.TypeServer, "backend_error"
	switch {
	case problem == semconv.ProblemUpstreamTimeout:
		status, kind, code = http.StatusGatewayTimeout, openai.TypeTimeout, "backend_timeout"
	case isUnreachable(err):
		code = "backend_unreachable"
	}
	c.fail(problem, status, &openai.Error{Message: message, Type: kind, Code: code})
}

const callerGone = "the caller went away before the answer was complete"

// stopping reports whether the server ends the call, and not its caller, who is
// still there: servers say so with [store.ErrClosed] as the cause.
func (c *call) stopping() bool { return errors.Is(context.Cause(c.r.Context()), store.ErrClosed) }

// whyCancelled says why the context of the request has ended.
func (c *call) whyCancelled() string {
	if c.stopping() {
		return "the server is stopping, which ended the call; make it again in a moment"
	}
	return callerGone
}

// blame says why reading from the backend ended early: the name of the problem
// and a sentence for people.
func (c *call) blame(ctx context.Context, err error) (problem, message string) {
	cause := context.Cause(ctx)
	switch {
	case c.r.Context().Err() != nil:
		return semconv.ProblemCancelled, c.whyCancelled()
	case errors.Is(cause, errFirstByte):
		return semconv.ProblemUpstreamTimeout, fmt.Sprintf("the backend of model %q at %s sent nothing within %s, the limit that --upstream-timeout sets",
			c.backend.Name, c.backend.Endpoint, c.p.cfg.UpstreamTimeout)
	case errors.Is(cause, errIdle):
		return semconv.ProblemUpstreamTimeout, fmt.Sprintf("the backend of model %q at %s sent no more of its answer for %s, the limit that --upstream-idle-timeout sets",
			c.backend.Name, c.backend.Endpoint, c.p.cfg.UpstreamIdleTimeout)
	case isUnreachable(err):
		problem = semconv.ProblemUpstreamError
		if isTimeout(err) {
			problem = semconv.ProblemUpstreamTimeout
		}
		return problem, c.unreachable(err)
	case errors.Is(err, errAnswerTooLong):
		return semconv.ProblemUpstreamError, fmt.Sprintf("the backend of model %q at %s: %v", c.backend.Name, c.backend.Endpoint, err)
	case c.status != 0:
		return semconv.ProblemTruncated, fmt.Sprintf("the backend of model %q at %s ended its answer early: %v", c.backend.Name, c.backend.Endpoint, err)
	}
	return semconv.ProblemUpstreamError, fmt.Sprintf("the backend of model %q at %s gave no answer: %v", c.backend.Name, c.backend.Endpoint, err)
}

// fail records the call and answers it with an error of our own.
func (c *call) fail(problem string, status int, e *openai.Error) {
	c.problem, c.message = problem, e.Message
	if err := c.record(); err != nil {
		c.storeFailed(err)
		return
	}
	switch {
	case problem != semconv.ProblemCancelled:
		c.dialect.writeError(c.w, status, e)
	case c.stopping():
		e.Type, e.Code = openai.TypeServer, "stopping"
		c.dialect.writeError(c.w, http.StatusServiceUnavailable, e)
	}
}

// storeFailed answers a call that could not be recorded. The caller is told,
// since a call that is silently missing would be missed in training.
func (c *call) storeFailed(err error) {
	if c.r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return
	}
	status, e := c.storeError(err)
	c.dialect.writeError(c.w, status, e)
}

func (c *call) storeError(err error) (int, *openai.Error) {
	c.p.cfg.Logger.ErrorContext(c.r.Context(), "call is not recorded",
		"rollout_id", c.at.RolloutID, "attempt_id", c.at.AttemptID, "err", err)
	if errors.Is(err, store.ErrNotFound) {
		c.p.rollouts.forget(c.at.RolloutID)
		return http.StatusNotFound, &openai.Error{
			Message: fmt.Sprintf("attempt %q of rollout %q is gone, so its call could not be recorded", c.at.AttemptID, c.at.RolloutID),
			Type:    openai.TypeInvalidRequest, Code: "attempt_not_found",
		}
	}
	return http.StatusInternalServerError, &openai.Error{
		Message: "the call could not be recorded in the store; the server's log says why", Type: openai.TypeServer, Code: "not_recorded",
	}
}

// record stores the span of the call. The caller may be gone; the span is
// stored all the same.
func (c *call) record() error {
	took := c.p.cfg.Now().Sub(c.start)
	c.p.metrics.count(c, took)
	c.observe(took)
	if c.problem != "" {
		c.logProblem()
	}
	if !c.recorded() {
		return nil
	}
	end := c.p.cfg.Now()
	seq, err := c.seq.wait()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), patience)
	defer cancel()
	spans := []agl.Span{c.span(seq, end)}
	if c.p.cfg.LiteLLMSpans {
		if s := c.companion(&spans[0]); s != nil {
			spans = append(spans, *s)
		}
	}
	keys := c.secrets()
	for i := range spans {
		c.p.privacy.cleanSpan(&spans[i], keys)
	}
	added, err := c.p.cfg.Sink.AddSpans(ctx, spans)
	for i := range added {
		err = errors.Join(err, added[i].Err)
	}
	if err != nil {
		return fmt.Errorf("store the span of a model call: %w", err)
	}
	return nil
}

// logProblem says what is wrong with a call: loudly, unless callers do it all
// the time, as with going away, or all calls of a backend have it, as with
// token ids that it does not know of.
func (c *call) logProblem() {
	endpoint, level := "", slog.LevelWarn
	if c.backend != nil {
		endpoint = c.backend.Endpoint
		if c.problem == semconv.ProblemTokenIDsMissing && c.backend.warned.Swap(true) {
			level = slog.LevelDebug
		}
	}
	if c.problem == semconv.ProblemCancelled {
		level = slog.LevelDebug
	}
	reason, _ := c.p.privacy.clean(c.message, semconv.CallMessage, c.secrets())
	c.p.cfg.Logger.Log(c.r.Context(), level, "model call has a problem", "problem", c.problem, "model", c.req.Model,
		"backend", endpoint, "rollout_id", c.at.RolloutID, "attempt_id", c.at.AttemptID, "reason", reason)
}

// readAll reads a body whose length is known or -1.
func readAll(r io.Reader, length int64) ([]byte, error) {
	const most = 1 << 20     // a length that is only claimed costs no more
	const unknown = 12 << 10 // holds most answers
	if length <= 0 || length > most {
		length = unknown
	}
	buf := bytes.NewBuffer(make([]byte, 0, length+bytes.MinRead))
	_, err := buf.ReadFrom(r)
	return buf.Bytes(), err
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout()
}
