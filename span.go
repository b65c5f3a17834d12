package agl

import (
	"encoding/json"

	"agentlightning/internal/jsonx"
)

// StatusCode is the outcome of a span.
type StatusCode string

// The outcomes of a span.
const (
	StatusUnset StatusCode = "UNSET"
	StatusOK    StatusCode = "OK"
	StatusError StatusCode = "ERROR"
)

// Member is a member of an object that the protocol does not declare. It is
// kept and written after the declared ones.
type Member struct {
	Key   string
	Value json.RawMessage
}

// TraceStatus is the outcome of a span with its description.
type TraceStatus struct {
	StatusCode  StatusCode
	Description *string
	Extra       []Member
}

// SpanContext identifies a span, here or in another process.
type SpanContext struct {
	TraceID    string
	SpanID     string
	IsRemote   bool
	TraceState []TraceStateEntry
	Extra      []Member
}

// TraceStateEntry is one vendor entry of a trace state.
type TraceStateEntry struct{ Key, Value string }

// Event is something that happened at one moment of a span.
type Event struct {
	Name       string
	Attributes Attributes
	Timestamp  *float64
	Extra      []Member
}

// Link points from a span to another one. Nil attributes are null.
type Link struct {
	Context    SpanContext
	Attributes Attributes
	Extra      []Member
}

// OtelResource describes what emitted a span.
type OtelResource struct {
	Attributes Attributes
	SchemaURL  string
}

// Span is one traced operation of an attempt. Its key is (RolloutID,
// AttemptID, SpanID); SequenceID orders the spans of a rollout and need not be
// unique. Times are Unix seconds.
type Span struct {
	RolloutID  string
	AttemptID  string
	SequenceID int64
	TraceID    string
	SpanID     string
	ParentID   *string
	Name       string
	Status     TraceStatus
	Attributes Attributes
	Events     []Event
	Links      []Link
	StartTime  *float64
	EndTime    *float64
	Context    *SpanContext
	Parent     *SpanContext
	Resource   OtelResource
	Extra      []Member
}

// SpanCore is what an emitter returns and what an agent may return in place of
// whole spans: the parts that do not depend on where the span is stored.
type SpanCore struct {
	Name       string
	Status     TraceStatus
	Attributes Attributes
	StartTime  *float64
	EndTime    *float64
}

// Span builds a whole span around the core: fresh ids, no parent, and now (Unix
// seconds) where the start is missing.
func (c SpanCore) Span(rolloutID, attemptID string, sequenceID int64, now float64) Span {
	s := Span{
		RolloutID: rolloutID, AttemptID: attemptID, SequenceID: sequenceID,
		TraceID: NewTraceID(), SpanID: NewSpanID(), Name: c.Name, Status: c.Status,
		Attributes: c.Attributes, StartTime: c.StartTime, EndTime: c.EndTime,
	}
	if s.StartTime == nil {
		s.StartTime = &now
	}
	s.Context = &SpanContext{TraceID: s.TraceID, SpanID: s.SpanID}
	return s
}

func appendExtra(dst []byte, extra []Member) []byte {
	for _, m := range extra {
		dst = append(dst, ',')
		dst = append(jsonx.AppendString(dst, m.Key), ':')
		dst = jsonx.AppendRaw(dst, m.Value)
	}
	return append(dst, '}')
}

func (s TraceStatus) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"status_code":`...)
	dst = jsonx.AppendString(dst, string(s.StatusCode))
	dst = append(dst, `,"description":`...)
	dst = jsonx.AppendOptionalString(dst, s.Description)
	return appendExtra(dst, s.Extra)
}

func (c *SpanContext) appendJSON(dst []byte) []byte {
	if c == nil {
		return append(dst, "null"...)
	}
	dst = append(dst, `{"trace_id":`...)
	dst = jsonx.AppendString(dst, c.TraceID)
	dst = append(dst, `,"span_id":`...)
	dst = jsonx.AppendString(dst, c.SpanID)
	dst = append(dst, `,"is_remote":`...)
	dst = appendAttributeValue(dst, c.IsRemote)
	dst = append(dst, `,"trace_state":{`...)
	for i, e := range c.TraceState {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(jsonx.AppendString(dst, e.Key), ':')
		dst = jsonx.AppendString(dst, e.Value)
	}
	dst = append(dst, '}')
	return appendExtra(dst, c.Extra)
}

// AppendJSON appends the JSON of the span.
func (s *Span) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"rollout_id":`...)
	dst = jsonx.AppendString(dst, s.RolloutID)
	dst = append(dst, `,"attempt_id":`...)
	dst = jsonx.AppendString(dst, s.AttemptID)
	dst = append(dst, `,"sequence_id":`...)
	dst = appendInt(dst, s.SequenceID)
	dst = append(dst, `,"trace_id":`...)
	dst = jsonx.AppendString(dst, s.TraceID)
	dst = append(dst, `,"span_id":`...)
	dst = jsonx.AppendString(dst, s.SpanID)
	dst = append(dst, `,"parent_id":`...)
	dst = jsonx.AppendOptionalString(dst, s.ParentID)
	dst = append(dst, `,"name":`...)
	dst = jsonx.AppendString(dst, s.Name)
	dst = append(dst, `,"status":`...)
	dst = s.Status.appendJSON(dst)
	dst = append(dst, `,"attributes":`...)
	dst = s.Attributes.AppendJSON(dst)
	dst = append(dst, `,"events":[`...)
	for i, e := range s.Events {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"name":`...)
		dst = jsonx.AppendString(dst, e.Name)
		dst = append(dst, `,"attributes":`...)
		dst = e.Attributes.AppendJSON(dst)
		dst = append(dst, `,"timestamp":`...)
		dst = jsonx.AppendOptional(dst, e.Timestamp)
		dst = appendExtra(dst, e.Extra)
	}
	dst = append(dst, `],"links":[`...)
	for i, l := range s.Links {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"context":`...)
		dst = l.Context.appendJSON(dst)
		dst = append(dst, `,"attributes":`...)
		if l.Attributes == nil {
			dst = append(dst, "null"...)
		} else {
			dst = l.Attributes.AppendJSON(dst)
		}
		dst = appendExtra(dst, l.Extra)
	}
	dst = append(dst, `],"start_time":`...)
	dst = jsonx.AppendOptional(dst, s.StartTime)
	dst = append(dst, `,"end_time":`...)
	dst = jsonx.AppendOptional(dst, s.EndTime)
	dst = append(dst, `,"context":`...)
	dst = s.Context.appendJSON(dst)
	dst = append(dst, `,"parent":`...)
	dst = s.Parent.appendJSON(dst)
	dst = append(dst, `,"resource":{"attributes":`...)
	dst = s.Resource.Attributes.AppendJSON(dst)
	dst = append(dst, `,"schema_url":`...)
	dst = jsonx.AppendString(dst, s.Resource.SchemaURL)
	dst = append(dst, '}')
	return appendExtra(dst, s.Extra)
}

// MarshalJSON implements [json.Marshaler].
func (s Span) MarshalJSON() ([]byte, error) { return s.AppendJSON(nil), nil }
