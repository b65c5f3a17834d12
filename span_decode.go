package agl

import (
	"fmt"
	"math"

	"agentlightning/internal/jsonx"
)

// UnmarshalJSON implements [json.Unmarshaler]. Members that are not declared
// are kept; a member of the wrong type is an error that names it.
func (s *Span) UnmarshalJSON(data []byte) error {
	members, err := jsonx.Members(data)
	if err != nil {
		return err
	}
	var out Span
	for _, m := range members {
		if err := out.setMember(m); err != nil {
			return fmt.Errorf("span: %s: %w", m.Key, err)
		}
	}
	*s = out
	return nil
}

func (s *Span) setMember(m jsonx.Member) error {
	switch m.Key {
	case "rollout_id":
		return text(m.Value, &s.RolloutID)
	case "attempt_id":
		return text(m.Value, &s.AttemptID)
	case "sequence_id":
		return lenient(m.Value, asInt, &s.SequenceID)
	case "trace_id":
		return text(m.Value, &s.TraceID)
	case "span_id":
		return text(m.Value, &s.SpanID)
	case "parent_id":
		return optionalText(m.Value, &s.ParentID)
	case "name":
		return text(m.Value, &s.Name)
	case "status":
		return s.Status.UnmarshalJSON(m.Value)
	case "attributes":
		return s.Attributes.UnmarshalJSON(m.Value)
	case "events":
		return list(m.Value, &s.Events, (*Event).UnmarshalJSON)
	case "links":
		return list(m.Value, &s.Links, (*Link).UnmarshalJSON)
	case "start_time":
		return optionalFloat(m.Value, &s.StartTime)
	case "end_time":
		return optionalFloat(m.Value, &s.EndTime)
	case "context":
		return optionalContext(m.Value, &s.Context)
	case "parent":
		return optionalContext(m.Value, &s.Parent)
	case "resource":
		return s.Resource.unmarshal(m.Value)
	}
	return keep(&s.Extra, m)
}

// The helpers below read members without encoding/json, which does not know the
// non-finite numbers that Python writes.

// text reads a string; null leaves it alone, as it does in encoding/json.
func text[T ~string](raw []byte, to *T) error {
	if jsonx.KindOf(raw) == jsonx.Null {
		return nil
	}
	s, err := jsonx.Text(raw)
	if err != nil {
		return fmt.Errorf("%s: want a string", clip(raw))
	}
	*to = T(s)
	return nil
}

func optionalText(raw []byte, to **string) error {
	*to = nil
	if jsonx.KindOf(raw) == jsonx.Null {
		return nil
	}
	*to = new(string)
	return text(raw, *to)
}

// lenient reads a value as the protocol does: a number may also come as text, an
// integer as a float without a fraction.
func lenient[T any](raw []byte, as func(any) (T, bool), to *T) error {
	v, err := parseAttributeValue(raw, false)
	if err != nil {
		return err
	}
	t, ok := as(v)
	if !ok {
		return fmt.Errorf("%s: want a value of type %T", clip(raw), t)
	}
	*to = t
	return nil
}

// optionalFloat reads a float or null. A number that is not finite is null.
func optionalFloat(raw []byte, to **float64) error {
	*to = nil
	if jsonx.KindOf(raw) == jsonx.Null {
		return nil
	}
	var f float64
	if err := lenient(raw, asFloat, &f); err != nil {
		return err
	}
	if !math.IsNaN(f) && !math.IsInf(f, 0) {
		*to = &f
	}
	return nil
}

func optionalContext(raw []byte, to **SpanContext) error {
	*to = nil
	if jsonx.KindOf(raw) == jsonx.Null {
		return nil
	}
	c := new(SpanContext)
	*to = c
	return c.UnmarshalJSON(raw)
}

func list[T any](raw []byte, to *[]T, read func(*T, []byte) error) error {
	elements, err := jsonx.Elements(raw)
	if err != nil {
		return err
	}
	out := make([]T, len(elements))
	for i, e := range elements {
		if err := read(&out[i], e); err != nil {
			return fmt.Errorf("%d: %w", i, err)
		}
	}
	*to = out
	return nil
}

// unmarshal reads a resource; members that are not declared are dropped.
func (r *OtelResource) unmarshal(data []byte) error {
	members, err := jsonx.Members(data)
	if err != nil {
		return err
	}
	*r = OtelResource{}
	for _, m := range members {
		switch m.Key {
		case "attributes":
			err = r.Attributes.UnmarshalJSON(m.Value)
		case "schema_url":
			err = text(m.Value, &r.SchemaURL)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.Key, err)
		}
	}
	return nil
}

func keep(extra *[]Member, m jsonx.Member) error {
	raw, err := jsonx.Normalize(m.Value)
	if err != nil {
		return err
	}
	*extra = append(*extra, Member{m.Key, raw})
	return nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (s *TraceStatus) UnmarshalJSON(data []byte) error {
	members, err := jsonx.Members(data)
	if err != nil {
		return err
	}
	*s = TraceStatus{}
	for _, m := range members {
		switch m.Key {
		case "status_code":
			err = text(m.Value, &s.StatusCode)
		case "description":
			err = optionalText(m.Value, &s.Description)
		default:
			err = keep(&s.Extra, m)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.Key, err)
		}
	}
	return nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (c *SpanContext) UnmarshalJSON(data []byte) error {
	members, err := jsonx.Members(data)
	if err != nil {
		return err
	}
	*c = SpanContext{}
	for _, m := range members {
		switch m.Key {
		case "trace_id":
			err = text(m.Value, &c.TraceID)
		case "span_id":
			err = text(m.Value, &c.SpanID)
		case "is_remote":
			err = lenient(m.Value, asBool, &c.IsRemote)
		case "trace_state":
			c.TraceState, err = traceState(m.Value)
		default:
			err = keep(&c.Extra, m)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.Key, err)
		}
	}
	return nil
}

func traceState(raw []byte) ([]TraceStateEntry, error) {
	members, err := jsonx.Members(raw)
	if err != nil {
		return nil, err
	}
	var out []TraceStateEntry
	for _, m := range members {
		v, err := jsonx.Text(m.Value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Key, err)
		}
		out = append(out, TraceStateEntry{m.Key, v})
	}
	return out, nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (e *Event) UnmarshalJSON(data []byte) error {
	members, err := jsonx.Members(data)
	if err != nil {
		return err
	}
	*e = Event{}
	for _, m := range members {
		switch m.Key {
		case "name":
			err = text(m.Value, &e.Name)
		case "attributes":
			err = e.Attributes.UnmarshalJSON(m.Value)
		case "timestamp":
			err = optionalFloat(m.Value, &e.Timestamp)
		default:
			err = keep(&e.Extra, m)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.Key, err)
		}
	}
	return nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (l *Link) UnmarshalJSON(data []byte) error {
	members, err := jsonx.Members(data)
	if err != nil {
		return err
	}
	*l = Link{}
	for _, m := range members {
		switch m.Key {
		case "context":
			err = l.Context.UnmarshalJSON(m.Value)
		case "attributes":
			err = l.Attributes.UnmarshalJSON(m.Value)
		default:
			err = keep(&l.Extra, m)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.Key, err)
		}
	}
	return nil
}
