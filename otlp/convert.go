package otlp

import (
	"encoding/hex"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/semconv"
)

// Spans are the spans of one export with what could not be read from it.
type Spans struct {
	// Spans belong to a rollout and an attempt each.
	Spans []agl.Span
	// Unnumbered lists the spans, by index, that came without a sequence id.
	Unnumbered []int
	// Strays counts spans that name no rollout or no attempt.
	Strays int
}

// Unmarshal reads an export request in protobuf, which is what traces are too.
// Ids that are shorter than those of OpenTelemetry, which its decoders refuse and
// the store's protocol takes, are filled up with zeros on the left.
func Unmarshal(raw []byte) (ptrace.Traces, error) {
	var decoder ptrace.ProtoUnmarshaler
	traces, err := decoder.UnmarshalTraces(raw)
	if err == nil {
		return traces, nil
	}
	padded, err := padIDs(raw)
	if err != nil {
		return ptrace.Traces{}, err
	}
	return decoder.UnmarshalTraces(padded)
}

// FromTraces converts traces, in their order.
func FromTraces(traces ptrace.Traces) Spans {
	var out Spans
	for i := range traces.ResourceSpans().Len() {
		rs := traces.ResourceSpans().At(i)
		resource := agl.OtelResource{Attributes: attributes(rs.Resource().Attributes()), SchemaURL: rs.SchemaUrl()}
		for j := range rs.ScopeSpans().Len() {
			spans := rs.ScopeSpans().At(j).Spans()
			for k := range spans.Len() {
				out.add(spans.At(k), resource)
			}
		}
	}
	return out
}

func (s *Spans) add(in ptrace.Span, resource agl.OtelResource) {
	span := agl.Span{
		TraceID:    traceID(in.TraceID()),
		SpanID:     spanID(in.SpanID()),
		Name:       in.Name(),
		Status:     status(in.Status()),
		Attributes: attributes(in.Attributes()),
		StartTime:  seconds(in.StartTimestamp()),
		EndTime:    seconds(in.EndTimestamp()),
		Resource:   resource,
	}
	lookup := func(key string) (any, bool) {
		if v, ok := span.Attributes.Get(key); ok {
			return v, true
		}
		return resource.Attributes.Get(key)
	}
	rollout, named := lookup(semconv.RolloutID)
	attempt, both := lookup(semconv.AttemptID)
	if !named || !both {
		s.Strays++
		return
	}
	span.RolloutID, span.AttemptID = text(rollout), text(attempt)
	if !in.ParentSpanID().IsEmpty() {
		id := spanID(in.ParentSpanID())
		span.ParentID = &id
	}
	span.Context = &agl.SpanContext{TraceID: span.TraceID, SpanID: span.SpanID}
	for i := range in.Events().Len() {
		e := in.Events().At(i)
		event := agl.Event{Name: e.Name(), Attributes: attributes(e.Attributes()), Timestamp: seconds(e.Timestamp())}
		span.Events = append(span.Events, event)
	}
	for i := range in.Links().Len() {
		l := in.Links().At(i)
		link := agl.Link{Context: agl.SpanContext{TraceID: traceID(l.TraceID()), SpanID: spanID(l.SpanID())}}
		if l.Attributes().Len() > 0 {
			link.Attributes = attributes(l.Attributes())
		}
		span.Links = append(span.Links, link)
	}
	v, _ := lookup(semconv.SpanSequenceID)
	n, numbered := sequence(v)
	if !numbered {
		s.Unnumbered = append(s.Unnumbered, len(s.Spans))
	}
	span.SequenceID = n
	s.Spans = append(s.Spans, span)
}

// sequence reads a sequence id; floats, text that is no integer and negative
// numbers count as none.
func sequence(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return max(v, 0), v >= 0
	case string:
		n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		return max(n, 0), err == nil && n >= 0
	}
	return 0, false
}

// text writes an id that was sent as something else than a string.
func text(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	raw := agl.Attributes{{Value: v}}.AppendJSON(nil)
	return string(raw[len(`{"":`) : len(raw)-1])
}

func traceID(id pcommon.TraceID) string { return hex.EncodeToString(id[:]) }

func spanID(id pcommon.SpanID) string { return hex.EncodeToString(id[:]) }

func status(in ptrace.Status) agl.TraceStatus {
	out := agl.TraceStatus{StatusCode: agl.StatusUnset}
	switch in.Code() {
	case ptrace.StatusCodeOk:
		out.StatusCode = agl.StatusOK
	case ptrace.StatusCodeError:
		out.StatusCode = agl.StatusError
	case ptrace.StatusCodeUnset:
	}
	if m := in.Message(); m != "" {
		out.Description = &m
	}
	return out
}

// seconds converts a time. Exporters that send seconds in the place of
// nanoseconds exist; their numbers are too small for a date.
func seconds(t pcommon.Timestamp) *float64 {
	const nanosecondsFrom = 1_000_000_000_000
	var f float64
	switch n := uint64(t); {
	case n == 0:
		return nil
	case n <= nanosecondsFrom:
		f = float64(n)
	default:
		// Through decimal text, as a double does not hold the nanoseconds and
		// dividing one would round twice.
		text := strconv.AppendUint(make([]byte, 0, 24), n/1e9, 10)
		text = append(text, '.')
		frac := strconv.AppendUint(nil, 1e9+n%1e9, 10)
		f, _ = strconv.ParseFloat(string(append(text, frac[1:]...)), 64)
	}
	return &f
}

// attributes converts attributes; of several with one key the last value counts.
func attributes(in pcommon.Map) agl.Attributes {
	out := make(agl.Attributes, 0, in.Len())
	var at map[string]int
	if in.Len() > 16 {
		at = make(map[string]int, in.Len())
	}
	for key, v := range in.All() {
		value, ok := attribute(v)
		if !ok {
			continue
		}
		if at == nil {
			out.Set(key, value)
			continue
		}
		if i, twice := at[key]; twice {
			out[i].Value = value
			continue
		}
		at[key] = len(out)
		out = append(out, agl.Attribute{Key: key, Value: value})
	}
	return out
}

// attribute converts a value. An attribute of the store is a scalar or a list
// of one type: what is neither is kept as its JSON text, and nothing is left out.
func attribute(v pcommon.Value) (any, bool) {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		return v.Str(), true
	case pcommon.ValueTypeBool:
		return v.Bool(), true
	case pcommon.ValueTypeInt:
		return v.Int(), true
	case pcommon.ValueTypeDouble:
		return v.Double(), true
	case pcommon.ValueTypeBytes:
		return hex.EncodeToString(v.Bytes().AsRaw()), true
	case pcommon.ValueTypeSlice:
		return list(v), true
	case pcommon.ValueTypeMap:
		return string(appendValue(nil, v)), true
	case pcommon.ValueTypeEmpty:
	}
	return nil, false
}

// list converts a list. The common ones, of one type, take the short way; the
// rest is made alike as the protocol does with JSON.
func list(v pcommon.Value) any {
	in := v.Slice()
	if in.Len() > 0 {
		kind := in.At(0).Type()
		same := true
		for i := range in.Len() {
			same = same && in.At(i).Type() == kind
		}
		if same {
			switch kind {
			case pcommon.ValueTypeStr:
				return collect(in, pcommon.Value.Str)
			case pcommon.ValueTypeBool:
				return collect(in, pcommon.Value.Bool)
			case pcommon.ValueTypeInt:
				return collect(in, pcommon.Value.Int)
			case pcommon.ValueTypeDouble:
				return collect(in, pcommon.Value.Double)
			case pcommon.ValueTypeBytes, pcommon.ValueTypeMap, pcommon.ValueTypeSlice, pcommon.ValueTypeEmpty:
			}
		}
	}
	raw := appendValue(nil, v)
	alike, err := agl.ParseAttributeValue(raw)
	if err != nil {
		return string(raw)
	}
	return alike
}

func collect[T any](in pcommon.Slice, one func(pcommon.Value) T) []T {
	out := make([]T, in.Len())
	for i := range out {
		out[i] = one(in.At(i))
	}
	return out
}

// appendValue appends a value as JSON.
func appendValue(dst []byte, v pcommon.Value) []byte {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		return jsonx.AppendString(dst, v.Str())
	case pcommon.ValueTypeBool:
		return strconv.AppendBool(dst, v.Bool())
	case pcommon.ValueTypeInt:
		return strconv.AppendInt(dst, v.Int(), 10)
	case pcommon.ValueTypeDouble:
		return jsonx.AppendFloat(dst, v.Double())
	case pcommon.ValueTypeBytes:
		return jsonx.AppendString(dst, hex.EncodeToString(v.Bytes().AsRaw()))
	case pcommon.ValueTypeSlice:
		dst = append(dst, '[')
		for i := range v.Slice().Len() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendValue(dst, v.Slice().At(i))
		}
		return append(dst, ']')
	case pcommon.ValueTypeMap:
		dst = append(dst, '{')
		first := true
		for key, e := range v.Map().All() {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = append(jsonx.AppendString(dst, key), ':')
			dst = appendValue(dst, e)
		}
		return append(dst, '}')
	case pcommon.ValueTypeEmpty:
	}
	return append(dst, "null"...)
}
