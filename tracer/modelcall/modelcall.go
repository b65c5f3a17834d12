// Package modelcall records the model calls of a Go program in the program
// itself, for agents whose calls do not go through the model proxy. It sits in
// the HTTP client, so it serves the official clients of OpenAI and Anthropic
// and everything else that posts to their routes:
//
//	recorder := modelcall.New(modelcall.Config{})
//	client := openai.NewClient(option.WithMiddleware(recorder.Middleware))
//
// Every call becomes one span, as it would in the proxy: whole or streamed, good
// or bad, with what was asked and answered and the token ids that the engine
// returned. Bodies and streams reach the program as they come.
//
// A call that goes through the proxy is recorded there, with nothing to set up;
// when both record it, readers count it once.
package modelcall

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	agl "agentlightning"
	"agentlightning/llm/genai"
	"agentlightning/llm/openai"
	"agentlightning/semconv"
	"agentlightning/tracer"
)

// Config configures a [Recorder].
type Config struct {
	// Provider makes the spans. The default, [tracer.Provider], records calls
	// whose context belongs to an attempt and leaves all others alone. A program
	// that exports its spans itself gives its own.
	Provider trace.TracerProvider
	// TokenIDs asks the engine for token ids and log-probabilities, which is
	// what weights are trained on, and for the usage of streams. Engines such as
	// vLLM know the members return_token_ids and logprobs; services that do not
	// refuse the call, and the program sees that. It applies to chat completions
	// and completions, the only routes where engines return ids.
	TokenIDs bool
	// MaxAnswerBytes is how much of one answer is read into its span. A longer
	// one reaches the program all the same. Default 64 MiB.
	MaxAnswerBytes int64
}

// Recorder records model calls. It is safe for concurrent use.
type Recorder struct{ cfg Config }

// New returns a recorder.
func New(cfg Config) *Recorder {
	if cfg.Provider == nil {
		cfg.Provider = tracer.Provider()
	}
	cfg.MaxAnswerBytes = cmp.Or(cfg.MaxAnswerBytes, 64<<20)
	return &Recorder{cfg}
}

// Transport returns a transport that records the model calls it carries, for
// clients that take an [http.Client]. Nil means [http.DefaultTransport].
func (r *Recorder) Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return transport{r, base}
}

type transport struct {
	r    *Recorder
	base http.RoundTripper
}

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	return t.r.Middleware(req, t.base.RoundTrip)
}

// Middleware records the call that a request makes, if it makes one. Its
// signature is that of the middleware of openai-go and anthropic-sdk-go. A call
// that their clients try again is a span each time.
func (r *Recorder) Middleware(req *http.Request, next func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	d := dialectOf(req)
	if d == nil || req.Body == nil {
		return next(req)
	}
	ctx, span := r.cfg.Provider.Tracer(tracer.Scope).Start(req.Context(), semconv.SpanModelCall)
	if !span.IsRecording() {
		span.End()
		return next(req)
	}
	c := &call{gone: ctx.Err, span: span, dialect: d, limit: r.cfg.MaxAnswerBytes, start: time.Now()}
	sent, err := c.read(ctx, req, r.cfg.TokenIDs)
	if err != nil {
		c.fail(semconv.ProblemUpstreamError, err)
		return nil, err
	}
	resp, err := next(sent)
	if err != nil {
		c.fail(c.problemOf(err), err)
		return resp, err
	}
	c.status = resp.StatusCode
	if resp.StatusCode < 300 && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		resp.Body = newStream(c, resp.Body)
		return resp, nil
	}
	c.whole(resp)
	return resp, nil
}

// call is a model call on its way.
type call struct {
	gone    func() error // the Err of the program's context
	span    trace.Span
	dialect *dialect
	limit   int64
	start   time.Time
	status  int
	extra   agl.Attributes
}

// read takes in the request and returns the one to send, which is the same
// unless token ids are asked for.
func (c *call) read(ctx context.Context, req *http.Request, tokenIDs bool) (*http.Request, error) {
	body, err := io.ReadAll(req.Body)
	_ = req.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("reading the body of the request: %w", err)
	}
	asked, err := openai.ParseRequest(body)
	if err == nil {
		if tokenIDs && c.dialect.capture != nil {
			body = asked.Edit(c.dialect.capture(asked)...)
		}
		if c.dialect.chat != nil {
			// Whoever answers says what is wrong with a call that cannot be put
			// as a chat completion; the span shows what can be.
			asked, _ = c.dialect.chat(asked)
		}
		c.set(genai.AppendRequest(nil, c.dialect.operation, asked))
	}
	if c.dialect.route != chatRoute {
		c.set(agl.Attributes{{Key: semconv.CallDialect, Value: strings.TrimPrefix(c.dialect.route, "/")}})
	}
	sent := req.Clone(ctx)
	sent.Body = io.NopCloser(bytes.NewReader(body))
	sent.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	sent.ContentLength = int64(len(body))
	if sent.Header.Get("Content-Length") != "" {
		sent.Header.Set("Content-Length", strconv.Itoa(len(body)))
	}
	return sent, nil
}

// whole records an answer that comes in one piece and leaves its body as it was.
func (c *call) whole(resp *http.Response) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, c.limit))
	rest := resp.Body
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), then(rest, err)), rest}
	switch {
	case err != nil:
		c.fail(c.problemOf(err), err)
		return
	case c.status >= 300:
		problem := semconv.ProblemUpstreamError
		if c.status < 500 && openai.IsContextOverflow(body) {
			problem = semconv.ProblemContextOverflow
		}
		c.fail(problem, fmt.Errorf("the answer is %d: %s", c.status, openai.ErrorMessage(body)))
		return
	}
	gather := c.dialect.gather()
	if err := gather.AddWhole(body); err != nil {
		if int64(len(body)) == c.limit {
			err = fmt.Errorf("the answer is longer than the %d bytes that are recorded", c.limit)
		}
		c.fail(semconv.ProblemUpstreamError, err)
		return
	}
	c.done(gather)
}

// then is what is left of a body after err.
func then(rest io.Reader, err error) io.Reader {
	if err != nil {
		return failing{err}
	}
	return rest
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// done ends the span of an answer that came to its end.
func (c *call) done(gather gatherer) {
	answer := gather.Answer()
	c.set(genai.AppendAnswer(nil, answer))
	if !answer.Finished() {
		c.fail(semconv.ProblemTruncated, errors.New("the answer ended without a finish reason"))
		return
	}
	c.span.SetStatus(codes.Ok, "")
	c.end(genai.CheckTokenIDs(answer))
}

// fail ends the span of a call whose answer is not the one asked for.
func (c *call) fail(problem string, err error) {
	c.span.SetStatus(codes.Error, err.Error())
	c.end(problem, err.Error())
}

func (c *call) end(problem, message string) {
	if c.status != 0 {
		c.extra = append(c.extra, agl.Attribute{Key: semconv.CallStatus, Value: int64(c.status)})
	}
	if problem != "" {
		c.extra = append(c.extra, agl.Attribute{Key: semconv.CallProblem, Value: problem},
			agl.Attribute{Key: semconv.CallMessage, Value: message})
	}
	c.set(c.extra)
	c.span.End()
}

func (c *call) set(attributes agl.Attributes) {
	c.span.SetAttributes(tracer.KeyValues(attributes)...)
}

// problemOf names what went wrong on the way.
func (c *call) problemOf(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, context.Canceled), errors.Is(c.gone(), context.Canceled):
		return semconv.ProblemCancelled
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return semconv.ProblemUpstreamTimeout
	}
	return semconv.ProblemUpstreamError
}
