package llmproxy

import (
	"strings"
	"time"

	agl "agentlightning"
	"agentlightning/llm/genai"
	"agentlightning/semconv"
)

// span builds the span of the call as far as it got.
func (c *call) span(seq int64, end time.Time) agl.Span {
	start, stop := agl.Seconds(c.start), agl.Seconds(end)
	s := agl.Span{
		RolloutID: c.at.RolloutID, AttemptID: c.at.AttemptID, SequenceID: seq,
		TraceID: agl.NewTraceID(), SpanID: agl.NewSpanID(),
		Name:      semconv.SpanModelCall,
		Status:    agl.TraceStatus{StatusCode: agl.StatusOK},
		StartTime: &start, EndTime: &stop,
		Resource: agl.OtelResource{Attributes: agl.Attributes{{Key: "service.name", Value: "agentlightning-proxy"}}},
	}
	if parent := parentOf(c.r.Header); parent != nil {
		s.TraceID, s.ParentID, s.Parent = parent.TraceID, &parent.SpanID, parent
	}
	s.Context = &agl.SpanContext{TraceID: s.TraceID, SpanID: s.SpanID}
	if c.failed() {
		s.Status = agl.TraceStatus{StatusCode: agl.StatusError, Description: &c.message}
	}
	asked, _ := c.said()
	a := attributes(genai.AppendRequest(make(agl.Attributes, 0, 64), c.dialect.operation, asked))
	if c.answer != nil {
		a = attributes(genai.AppendAnswer(agl.Attributes(a), c.answer))
	}
	c.circumstances(&a)
	a = append(a, c.extra...)
	s.Attributes = agl.Attributes(a)
	return s
}

// failed reports whether the caller did not get the answer it asked for. An
// answer without token ids is a good one to the caller.
func (c *call) failed() bool {
	switch c.problem {
	case "", semconv.ProblemTokenIDsMissing, semconv.ProblemTokenIDsIncomplete:
		return false
	}
	return true
}

// circumstances adds what only the proxy knows.
func (c *call) circumstances(a *attributes) {
	if c.agent != "" {
		a.add(semconv.GenAIAgentName, c.agent)
		a.add("agent.name", c.agent) // where readers of older traces look
	}
	if c.dialect != chatCompletions {
		a.add(semconv.CallDialect, strings.TrimPrefix(c.dialect.route, "/"))
	}
	if c.backend != nil {
		a.add(semconv.CallBackend, c.backend.Endpoint)
		a.add(semconv.CallVersion, c.backend.Version)
	}
	if c.status != 0 {
		a.add(semconv.CallStatus, int64(c.status))
	}
	if !c.firstByte.IsZero() {
		a.add(semconv.GenAIFirstToken, c.firstByte.Sub(c.start).Seconds())
	}
	if c.chunks > 0 {
		a.add("llm.openai.stream.chunk_count", int64(c.chunks))
	}
	if c.failover != "" {
		a.add(semconv.CallFailover, c.failover)
	}
	if c.retries > 0 {
		a.add(semconv.CallRetries, int64(c.retries))
		a.add(semconv.CallRetried, c.retried)
	}
	if len(c.refused) > 0 {
		a.add(semconv.CallRefused, c.refused)
	}
	if c.problem != "" {
		a.add(semconv.CallProblem, c.problem)
		a.add(semconv.CallMessage, c.message)
	}
}

// attributes are built in order and never looked up.
type attributes agl.Attributes

func (a *attributes) add(key string, value any) {
	*a = append(*a, agl.Attribute{Key: key, Value: value})
}

func (a *attributes) text(key, value string) {
	if value != "" {
		a.add(key, value)
	}
}
