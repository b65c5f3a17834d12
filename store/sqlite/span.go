package sqlite

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/store"
)

func (r reader) QuerySpans(q store.SpanQuery) (store.Page[agl.Span], error) {
	var f filter
	f.scope(ofRollout, q.RolloutID)
	if q.AttemptID != nil {
		f.scope("attempt_id = ?", *q.AttemptID)
	}
	f.equal("trace_id", q.TraceID)
	f.contains("trace_id", q.TraceIDContains)
	f.equal("span_id", q.SpanID)
	f.contains("span_id", q.SpanIDContains)
	f.equal("parent_id", q.ParentID)
	f.contains("parent_id", q.ParentIDContains)
	f.equal("name", q.Name)
	f.contains("name", q.NameContains)
	f.noneUnderOr = true
	return fetch(r.c, f.selection("spans", q.Paging, spanSorts), "body",
		func(row row) (agl.Span, error) { return decodeSpan(row.text(0)) })
}

func (t *tx) InsertSpans(spans []agl.Span) ([]bool, error) {
	if err := t.write(); err != nil {
		return nil, err
	}
	stored := make([]bool, len(spans))
	for i := range spans {
		s := &spans[i]
		rollout, err := t.seqOf(s.RolloutID)
		if err != nil {
			return nil, fmt.Errorf("insert span %s: %w", s.SpanID, err)
		}
		t.body = appendSpan(t.body[:0], s)
		n, err := t.c.exec(insertSpan, rollout, s.AttemptID, s.SpanID, s.SequenceID, s.TraceID, orNull(s.ParentID),
			s.Name, orNull(s.StartTime), orNull(s.EndTime), string(t.body))
		if err != nil {
			return nil, fmt.Errorf("insert span %s: %w", s.SpanID, err)
		}
		stored[i] = n > 0
	}
	return stored, nil
}

func decodeSpan(body string) (agl.Span, error) {
	var s agl.Span
	if err := s.UnmarshalJSON([]byte(body)); err != nil {
		return s, fmt.Errorf("stored span: %w", err)
	}
	return s, nil
}

// appendSpan appends the text in which a span is stored: its JSON, except that
// NaN and the infinities among its attributes keep their Python spelling, which
// is read back as what it was. The protocol's JSON makes them null; so they are
// further down, in events, links and the resource.
func appendSpan(dst []byte, s *agl.Span) []byte {
	if finite(s.Attributes) {
		return s.AppendJSON(dst)
	}
	c := *s
	c.Attributes = spell(c.Attributes)
	return c.AppendJSON(dst)
}

func finite(attrs agl.Attributes) bool {
	for i := range attrs {
		if !finiteValue(attrs[i].Value) {
			return false
		}
	}
	return true
}

func finiteValue(v any) bool {
	switch v := v.(type) {
	case float64:
		return !math.IsNaN(v) && !math.IsInf(v, 0)
	case []float64:
		return !slices.ContainsFunc(v, func(f float64) bool { return math.IsNaN(f) || math.IsInf(f, 0) })
	}
	return true
}

// spell replaces values that JSON lacks by their text, as a [json.Number] because
// that is written as it is.
func spell(attrs agl.Attributes) agl.Attributes {
	out := slices.Clone(attrs)
	for i, a := range out {
		if finiteValue(a.Value) {
			continue
		}
		switch v := a.Value.(type) {
		case float64:
			out[i].Value = json.Number(appendToken(nil, v))
		case []float64:
			list := []byte{'['}
			for j, f := range v {
				if j > 0 {
					list = append(list, ',')
				}
				list = appendToken(list, f)
			}
			out[i].Value = json.Number(append(list, ']'))
		}
	}
	return out
}

// appendToken appends a number as Python's JSON does.
func appendToken(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "NaN"...)
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	}
	return jsonx.AppendFloat(dst, f)
}
