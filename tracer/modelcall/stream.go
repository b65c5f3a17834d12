package modelcall

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	agl "agentlightning"
	"agentlightning/llm/genai"
	"agentlightning/llm/openai"
	"agentlightning/semconv"
)

// stream is the body of a streamed answer, which passes through as it comes.
// The span ends with the event that ends the stream, before the program sees it.
type stream struct {
	*call
	src    io.ReadCloser
	events *openai.EventReader
	rest   []byte // of the current event, not yet read by the program
	err    error  // once there are no more

	mu     sync.Mutex // Close may come while Read waits
	gather gatherer
	size   int64
	closed bool // the span has ended
}

func newStream(c *call, src io.ReadCloser) *stream {
	return &stream{call: c, src: src, events: openai.NewEventReader(src), gather: c.dialect.gather()}
}

func (s *stream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		if s.err != nil {
			return 0, s.err
		}
		event, err := s.events.Next()
		if err != nil {
			s.err = err
			s.finish(err)
			return 0, err
		}
		s.rest = event.Raw
		if len(event.Data) > 0 {
			s.take(event)
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// Close ends the call where the program stops reading.
func (s *stream) Close() error {
	s.finish(errStopped)
	return s.src.Close()
}

var errStopped = errors.New("the program stopped reading the answer")

// take gathers the answer from an event.
func (s *stream) take(event openai.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if s.size == 0 {
		s.extra = append(s.extra, agl.Attribute{Key: semconv.GenAIFirstToken, Value: time.Since(s.start).Seconds()})
	}
	if s.size += int64(len(event.Data)); s.size > s.limit {
		s.broken(semconv.ProblemUpstreamError, fmt.Errorf("the answer is longer than the %d bytes that are recorded", s.limit))
		return
	}
	chunk, err := s.gather.Add(event.Data)
	switch {
	case chunk.Error != "":
		problem := semconv.ProblemUpstreamError
		if openai.IsContextOverflow(event.Data) {
			problem = semconv.ProblemContextOverflow
		}
		s.broken(problem, errors.New(chunk.Error))
	case err != nil && !event.Partial:
		s.broken(semconv.ProblemUpstreamError, err)
	case chunk.Last:
		s.count()
		s.done(s.gather)
		s.closed = true
	}
}

// finish ends the span of a stream of which no more is read.
func (s *stream) finish(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
	case errors.Is(err, io.EOF), s.gather.Finished():
		// A program need not wait for what comes after the finish reason.
		s.count()
		s.done(s.gather)
		s.closed = true
	case errors.Is(err, errStopped):
		s.broken(semconv.ProblemCancelled, err)
	default:
		s.broken(s.problemOf(err), err)
	}
}

// broken ends the span with what came before.
func (s *stream) broken(problem string, err error) {
	s.count()
	s.set(genai.AppendAnswer(nil, s.gather.Answer()))
	s.fail(problem, err)
	s.closed = true
}

func (s *stream) count() {
	s.extra = append(s.extra, agl.Attribute{Key: "llm.openai.stream.chunk_count", Value: int64(s.gather.Chunks())})
}
