package native

import (
	"bytes"
	"encoding/json"
	"net/http"
)

// eventWriter writes server-sent events.
type eventWriter struct {
	w       http.ResponseWriter
	flusher *http.ResponseController
	buf     bytes.Buffer
	started bool
}

func newEventWriter(w http.ResponseWriter) *eventWriter {
	return &eventWriter{w: w, flusher: http.NewResponseController(w)}
}

// send writes one event. Errors mean that the client has gone; the sampling loop
// learns that from its context.
func (e *eventWriter) send(v any) {
	if !e.started {
		e.started = true
		e.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		e.w.Header().Set("Cache-Control", "no-cache")
		e.w.WriteHeader(http.StatusOK)
	}
	e.buf.Reset()
	e.buf.WriteString("data: ")
	enc := json.NewEncoder(&e.buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return
	}
	e.buf.WriteByte('\n')
	_, _ = e.w.Write(e.buf.Bytes())
	_ = e.flusher.Flush()
}

func (e *eventWriter) done() {
	_, _ = e.w.Write([]byte("data: [DONE]\n\n"))
	_ = e.flusher.Flush()
}

// chatStream is the state of one streamed chat completion. Tokens whose text
// cannot be shown yet are held and go out with the chunk that shows it, so that
// every token is in exactly one chunk.
type chatStream struct {
	c    *chatCall
	ev   *eventWriter
	out  *textOut
	held []Token
	// call is set while the text may still become a tool call.
	call bool
}

func (c *chatCall) stream(w http.ResponseWriter, r *http.Request) error {
	c.head.Object = "chat.completion.chunk"
	s := &chatStream{c: c, ev: newEventWriter(w), out: c.newText(), call: len(c.tools) > 0}
	var result *Result
	for t, err := range c.s.m.Stream(r.Context(), c.req, func(res *Result) { result = res }) {
		if err != nil {
			return c.s.streamBroken(s.ev, r, err)
		}
		if !s.ev.started {
			s.open()
		}
		s.add(t)
	}
	s.finish(result)
	return nil
}

// streamBroken reports an error: as an answer if nothing was sent, else as an
// event.
func (s *Server) streamBroken(ev *eventWriter, r *http.Request, err error) error {
	if !ev.started {
		return err
	}
	if status, detail := s.explain(r.Context(), err); status != 0 {
		ev.send(errorBody{detail})
		ev.done()
	}
	return nil
}

func (s *chatStream) open() {
	first := s.c.head
	text := ""
	first.Choices = []chatChoice{{Delta: &delta{Role: RoleAssistant, Content: &text}}}
	if s.c.wire.ReturnTokenIDs {
		first.PromptTokenIDs = s.c.req.Prompt
	}
	s.ev.send(first)
}

func (s *chatStream) add(t Token) {
	s.held = append(s.held, t)
	s.out.add(t.ID)
	if s.call {
		if s.call = mayBecomeCall(validText(s.out.raw.String()), s.c.tools); s.call {
			return
		}
	}
	// The end token comes with the finish reason.
	if t.ID == EndToken {
		return
	}
	if text := s.out.take(false); text != "" {
		s.send(chatChoice{Delta: &delta{Content: &text}}, s.held)
		s.held = s.held[:0]
	}
}

func (s *chatStream) finish(res *Result) {
	_, calls, reason := s.c.settle(res, s.out)
	if len(calls) > 0 {
		index := 0
		calls[0].Index = &index
		last := len(s.held) - 1 // the end token
		s.send(chatChoice{Delta: &delta{ToolCalls: calls}}, s.held[:last])
		s.send(chatChoice{Delta: &delta{}, FinishReason: &reason}, s.held[last:])
	} else {
		d := &delta{}
		if text := s.out.take(true); text != "" {
			d.Content = &text
		}
		s.send(chatChoice{Delta: d, FinishReason: &reason, StopReason: stopReason(s.out)}, s.held)
	}
	if o := s.c.wire.StreamOptions; o != nil && o.IncludeUsage {
		last := s.c.head
		last.Choices, last.Usage = []chatChoice{}, usageOf(s.c.req, res)
		s.ev.send(last)
	}
	s.ev.done()
}

func (s *chatStream) send(choice chatChoice, tokens []Token) {
	s.c.describe(&choice, tokens)
	chunk := s.c.head
	chunk.Choices = []chatChoice{choice}
	s.ev.send(chunk)
}
