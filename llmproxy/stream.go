package llmproxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"agentlightning/llm/openai"
	"agentlightning/semconv"
)

// streamRelay passes a stream on as it comes and gathers the answer from it.
type streamRelay struct {
	*call
	out    *streamWriter
	events *openai.EventReader
	gather gatherer
	buf    []byte // for what a translator writes
	rest   []byte // of an event in which the stream ended
	size   int64  // of the events so far
	stored bool
	ended  bool // the caller was told the end by a translator

	failure        string // problem that the stream itself tells of
	failureMessage string
}

// relayStream brings back a stream. The event that ends it waits until the call
// is recorded.
func (c *call) relayStream(ctx context.Context, resp *http.Response) {
	s := &streamRelay{call: c, out: c.beginStream(resp), events: openai.NewEventReader(resp.Body), gather: c.plan.gather()}
	for {
		event, err := s.events.Next()
		if err != nil {
			s.end(ctx, err)
			return
		}
		if s.size += int64(len(event.Raw)); s.size > s.p.cfg.MaxAnswerBytes {
			s.end(ctx, tooLong(s.p.cfg.MaxAnswerBytes))
			return
		}
		var chunk openai.Chunk
		if len(event.Data) > 0 && !s.stored {
			chunk = s.take(event)
		}
		// An error is the end as well, to a caller that is handed it as it is.
		if chunk.Last || chunk.Error != "" && s.plan.translate == nil {
			s.out.flush() // storing must not hold back what came before
			if err := s.store("", ""); err != nil {
				s.report(s.storeError(err))
				return
			}
		}
		if hide := chunk.UsageOnly && !s.req.IncludeUsage; !hide || s.plan.translate != nil {
			s.pass(event, chunk)
		}
		if !s.events.Ready() {
			s.out.flush()
		}
		if s.ended && s.failure != "" {
			return // the caller was told, and waits for nothing more
		}
		if s.out.err != nil {
			s.end(ctx, s.out.err)
			return
		}
	}
}

// pass writes an event to the caller, or what a translator makes of it. What
// is left of one at the end has to wait for the reason why there is no more.
func (s *streamRelay) pass(event openai.Event, chunk openai.Chunk) {
	if t := s.plan.translate; t != nil {
		s.translate(t, event, chunk)
		return
	}
	if event.Partial {
		s.rest = bytes.Clone(event.Raw)
		return
	}
	s.out.write(event.Raw)
}

// translate writes what the caller reads of an event. After a failure that the
// stream tells of there is nothing more to say.
func (s *streamRelay) translate(t translator, event openai.Event, chunk openai.Chunk) {
	s.buf = s.buf[:0]
	switch {
	case s.ended || len(event.Data) == 0 || event.Partial:
		return
	case s.failure != "":
		s.out.flush()
		if err := s.store("", ""); err != nil {
			s.report(s.storeError(err))
			return
		}
		s.report(http.StatusBadGateway, &openai.Error{Message: s.failureMessage, Type: openai.TypeServer, Code: "backend_error"})
		return
	case chunk.Last:
		s.ended = true
		s.buf = t.AppendEnd(s.buf)
	default:
		var err error
		if s.buf, err = t.AppendChunk(s.buf, event.Data); err != nil {
			s.failure, s.failureMessage = semconv.ProblemUpstreamError, err.Error()
			s.translate(t, event, chunk)
			return
		}
	}
	s.out.write(s.buf)
}

// take gathers the answer from an event.
func (s *streamRelay) take(event openai.Event) openai.Chunk {
	if s.firstByte.IsZero() {
		s.firstByte = s.p.cfg.Now()
	}
	chunk, err := s.gather.Add(event.Data)
	switch {
	case chunk.Error != "":
		s.failure, s.failureMessage = semconv.ProblemUpstreamError, chunk.Error
		if openai.IsContextOverflow(event.Data) {
			s.failure = semconv.ProblemContextOverflow
		}
	case err != nil && !event.Partial:
		s.failure, s.failureMessage = semconv.ProblemUpstreamError, err.Error()
	}
	return chunk
}

// store records the call. What the stream told of a failure is closer to the
// cause than the way in which it ended.
func (s *streamRelay) store(problem, message string) error {
	s.stored = true
	s.answer, s.chunks = s.gather.Answer(), s.gather.Chunks()
	switch {
	case s.failure != "":
		s.problem, s.message = s.failure, s.failureMessage
	case problem != "":
		s.problem, s.message = problem, message
	default:
		s.checkAnswer()
	}
	return s.record()
}

// end closes a stream of which no more comes or can be sent. When it broke the
// caller is told, in place of the rest that came of an event.
func (s *streamRelay) end(ctx context.Context, err error) {
	broken := !errors.Is(err, io.EOF)
	problem, message := "", ""
	if broken {
		problem, message = s.blame(ctx, err)
		if s.out.err != nil {
			problem, message = semconv.ProblemCancelled, callerGone
		}
		// A caller need not wait for what comes after the finish reason.
		if problem == semconv.ProblemCancelled && s.gather.Finished() {
			problem, message = "", ""
		}
	}
	if !s.stored {
		if err := s.store(problem, message); err != nil {
			s.report(s.storeError(err))
			return
		}
		if problem != "" && (problem != semconv.ProblemCancelled || s.stopping()) {
			s.report(s.streamBroken())
		}
	}
	if s.plan.translate != nil {
		s.endTranslated()
	} else if !broken {
		s.out.begin()
		s.out.write(s.rest)
	}
}

// endTranslated closes a translated stream whose end did not come.
func (s *streamRelay) endTranslated() {
	switch {
	case s.ended, s.problem == semconv.ProblemCancelled:
	case s.gather.Finished():
		s.ended = true
		s.out.write(s.plan.translate.AppendEnd(nil))
	default:
		s.report(s.streamBroken())
	}
}

// report ends the stream with an error in place of the end that the caller
// waits for.
func (s *streamRelay) report(status int, e *openai.Error) {
	if !s.ended {
		s.ended = true
		s.out.report(status, e)
	}
}

// passThrough hands a stream through that is not recorded.
func (c *call) passThrough(ctx context.Context, resp *http.Response) {
	out := c.beginStream(resp)
	buf := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buf)
		out.write(buf[:n])
		if err != nil {
			if !errors.Is(err, io.EOF) {
				c.problem, c.message = c.blame(ctx, err)
			}
			break
		}
		out.flush()
		if out.err != nil {
			c.problem, c.message = semconv.ProblemCancelled, callerGone
			break
		}
	}
	if c.problem == "" {
		out.begin()
	}
	_ = c.record() // counts it; a call that is not attributed is not stored
	if c.problem != "" && (c.problem != semconv.ProblemCancelled || c.stopping()) {
		if out.begun {
			out.write([]byte("\n\n")) // it may have broken inside an event
		}
		out.report(c.streamBroken())
	}
}

func (c *call) streamBroken() (int, *openai.Error) {
	e := &openai.Error{Message: c.message, Type: openai.TypeServer, Code: "stream_broken"}
	if c.problem == semconv.ProblemUpstreamTimeout {
		e.Type = openai.TypeTimeout
		return http.StatusGatewayTimeout, e
	}
	if c.problem == semconv.ProblemCancelled {
		return http.StatusServiceUnavailable, e
	}
	return http.StatusBadGateway, e
}

func isStream(resp *http.Response) bool {
	return strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
}

func (c *call) beginStream(resp *http.Response) *streamWriter {
	s := &streamWriter{w: c.w, resp: resp, control: http.NewResponseController(c.w), dialect: c.dialect, event: c.dialect.appendErrorEvent}
	if t := c.plan.translate; t != nil {
		s.event = t.AppendError
		resp.Header.Set("Content-Type", eventStream)
	}
	return s
}

// streamWriter writes to the caller until it is gone. The status goes out with
// the first bytes: a stream that fails before them is answered as any call is.
type streamWriter struct {
	w       http.ResponseWriter
	resp    *http.Response
	control *http.ResponseController
	dialect *dialect
	event   func(dst []byte, status int, e *openai.Error) []byte // reports an error
	begun   bool
	dirty   bool
	err     error
}

func (s *streamWriter) begin() {
	if !s.begun {
		s.begun = true
		copyHeaders(s.w.Header(), s.resp.Header, responseOnly)
		s.w.WriteHeader(s.resp.StatusCode)
	}
}

func (s *streamWriter) write(b []byte) {
	if s.err != nil || len(b) == 0 {
		return
	}
	s.begin()
	_, s.err = s.w.Write(b)
	s.dirty = true
}

func (s *streamWriter) flush() {
	if s.err == nil && s.dirty {
		s.err = s.control.Flush()
		s.dirty = false
	}
}

// report writes an error: in an event, or as the answer when nothing went out.
func (s *streamWriter) report(status int, e *openai.Error) {
	if !s.begun {
		s.dialect.writeError(s.w, status, e)
		return
	}
	s.write(s.event(nil, status, e))
	s.flush()
}
