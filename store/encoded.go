package store

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
)

// EncodedSpans is what a [Store] may offer besides [SpanStore]: spans come and
// go as their JSON, so that a server neither builds nor takes apart a value that
// it only passes on. The rules are those of the methods with plain spans. Use
// [Encoded] to have it of any store.
type EncodedSpans interface {
	// AddEncodedSpans is [SpanStore] AddSpans. It keeps the JSON of the spans,
	// which nobody may change any more.
	AddEncodedSpans(ctx context.Context, spans []EncodedSpan) ([]SpanOutcome, error)
	// QueryEncodedSpans is [SpanStore] QuerySpans. What it returns may be shared
	// and must not be changed.
	QueryEncodedSpans(ctx context.Context, q SpanQuery) (Page[SpanJSON], error)
}

// SpanOutcome is what became of one span: see [AddedSpan].
type SpanOutcome struct {
	Stored bool
	Err    error
}

// EncodedSpan is a span as its JSON, together with the members that a store
// looks at. Make one with [EncodeSpan], or with all members as the JSON has them.
type EncodedSpan struct {
	RolloutID, AttemptID, SpanID string
	TraceID, Name                string
	SequenceID                   int64
	ParentID                     *string
	StartTime, EndTime           *float64 // Unix seconds
	JSON                         SpanJSON
}

// EncodeSpan encodes a span.
func EncodeSpan(s *agl.Span) EncodedSpan {
	return EncodedSpan{
		RolloutID: s.RolloutID, AttemptID: s.AttemptID, SpanID: s.SpanID,
		TraceID: s.TraceID, Name: s.Name, SequenceID: s.SequenceID,
		ParentID: s.ParentID, StartTime: known(s.StartTime), EndTime: known(s.EndTime),
		JSON: appendSpan(make([]byte, 0, roughSize(s)), s),
	}
}

// roughSize is about how long the JSON of a span becomes. A model call leaves
// some ten kilobytes, which would grow, and be copied, again and again.
func roughSize(s *agl.Span) int {
	const fixed, value = 640, 16
	n := fixed
	for i := range s.Attributes {
		a := &s.Attributes[i]
		n += len(a.Key) + value
		switch v := a.Value.(type) {
		case string:
			n += len(v) + len(v)/4 // quotes and line breaks take two bytes
		case []int64:
			n += len(v) * len("123456,")
		case []float64:
			n += len(v) * len("-0.12345678901234567,")
		case []string:
			for _, text := range v {
				n += len(text) + len(text)/4 + len(`"",`)
			}
		}
	}
	return n
}

// known drops a time that is no number, as its JSON does.
func known(t *float64) *float64 {
	if t != nil && math.IsNaN(*t) {
		return nil
	}
	return t
}

// SpanJSON is a span in the form in which stores keep it: that of
// [agl.Span.AppendJSON], except that NaN and the infinities among its attributes
// keep their Python spelling, which is read back as what it was. Further down, in
// events, links and the resource, they are null.
type SpanJSON []byte

// MarshalJSON implements [json.Marshaler].
func (j SpanJSON) MarshalJSON() ([]byte, error) { return j.Wire(), nil }

// Span decodes the span.
func (j SpanJSON) Span() (agl.Span, error) {
	var s agl.Span
	if err := s.UnmarshalJSON(j); err != nil {
		return s, fmt.Errorf("stored span: %w", err)
	}
	return s, nil
}

// Wire returns the span in the form of the protocol: itself, if it can be.
func (j SpanJSON) Wire() []byte {
	if j.finite() {
		return j
	}
	return jsonx.AppendNormal(nil, j)
}

// AppendJSON appends the span in the form of the protocol, which has null for
// numbers that JSON lacks.
func (j SpanJSON) AppendJSON(dst []byte) []byte {
	if j.finite() {
		return append(dst, j...)
	}
	return jsonx.AppendNormal(dst, j)
}

// finite reports whether no number needs another form. It may miss that where a
// text has one of the words, in which normalizing changes nothing.
func (j SpanJSON) finite() bool {
	return !bytes.Contains(j, []byte("NaN")) && !bytes.Contains(j, []byte("Infinity"))
}

// appendSpan appends a span. Values of attributes that JSON lacks are replaced by
// their text.
func appendSpan(dst []byte, s *agl.Span) []byte {
	out := s
	for i := range s.Attributes {
		token, ok := jsonx.Spelled(s.Attributes[i].Value)
		if !ok {
			continue
		}
		if out == s {
			c := *s
			c.Attributes = slices.Clone(s.Attributes)
			out = &c
		}
		out.Attributes[i].Value = token
	}
	return out.AppendJSON(dst)
}

// Encoded returns the store itself when it offers [EncodedSpans], and otherwise
// one that encodes and decodes around it.
func Encoded(s Store) EncodedSpans {
	if e, ok := s.(EncodedSpans); ok {
		return e
	}
	return encoding{s}
}

type encoding struct{ s Store }

func (e encoding) AddEncodedSpans(ctx context.Context, spans []EncodedSpan) ([]SpanOutcome, error) {
	plain := make([]agl.Span, len(spans))
	for i := range spans {
		var err error
		if plain[i], err = spans[i].JSON.Span(); err != nil {
			return nil, err
		}
	}
	added, err := e.s.AddSpans(ctx, plain)
	if err != nil {
		return nil, err
	}
	out := make([]SpanOutcome, len(added))
	for i := range added {
		out[i] = SpanOutcome{added[i].Stored, added[i].Err}
	}
	return out, nil
}

func (e encoding) QueryEncodedSpans(ctx context.Context, q SpanQuery) (Page[SpanJSON], error) {
	found, err := e.s.QuerySpans(ctx, q)
	if err != nil {
		return Page[SpanJSON]{}, err
	}
	page := Page[SpanJSON]{Items: make([]SpanJSON, len(found.Items)), Total: found.Total}
	for i := range found.Items {
		page.Items[i] = appendSpan(nil, &found.Items[i])
	}
	return page, nil
}
