package otlp

import (
	"encoding/hex"
	"encoding/json"
	"math/big"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	agl "agentlightning"
	"agentlightning/semconv"
)

// Marshal encodes spans as an export request in protobuf, for any OTLP
// receiver. The ids of the store go along as attributes, so that a store that
// receives them knows where they belong. Members that OTLP has no place for are
// left out.
func Marshal(spans []agl.Span) ([]byte, error) {
	var encoder ptrace.ProtoMarshaler
	return encoder.MarshalTraces(ToTraces(spans))
}

// ToTraces converts spans. Neighbours that share a resource stay together.
func ToTraces(spans []agl.Span) ptrace.Traces {
	traces := ptrace.NewTraces()
	var current string
	var into ptrace.SpanSlice
	for i := range spans {
		s := &spans[i]
		if key := string(s.Resource.Attributes.AppendJSON([]byte(s.Resource.SchemaURL))); i == 0 || key != current {
			current = key
			rs := traces.ResourceSpans().AppendEmpty()
			rs.SetSchemaUrl(s.Resource.SchemaURL)
			putAttributes(rs.Resource().Attributes(), s.Resource.Attributes)
			into = rs.ScopeSpans().AppendEmpty().Spans()
		}
		putSpan(into.AppendEmpty(), s)
	}
	return traces
}

func putSpan(out ptrace.Span, s *agl.Span) {
	out.SetTraceID(toTraceID(s.TraceID))
	out.SetSpanID(toSpanID(s.SpanID))
	if s.ParentID != nil {
		out.SetParentSpanID(toSpanID(*s.ParentID))
	}
	out.SetName(s.Name)
	out.SetKind(ptrace.SpanKindInternal)
	switch s.Status.StatusCode {
	case agl.StatusOK:
		out.Status().SetCode(ptrace.StatusCodeOk)
	case agl.StatusError:
		out.Status().SetCode(ptrace.StatusCodeError)
	case agl.StatusUnset:
	}
	if s.Status.Description != nil {
		out.Status().SetMessage(*s.Status.Description)
	}
	out.SetStartTimestamp(timestamp(s.StartTime))
	out.SetEndTimestamp(timestamp(s.EndTime))
	putAttributes(out.Attributes(), s.Attributes)
	out.Attributes().PutStr(semconv.RolloutID, s.RolloutID)
	out.Attributes().PutStr(semconv.AttemptID, s.AttemptID)
	out.Attributes().PutInt(semconv.SpanSequenceID, s.SequenceID)
	for _, e := range s.Events {
		to := out.Events().AppendEmpty()
		to.SetName(e.Name)
		to.SetTimestamp(timestamp(e.Timestamp))
		putAttributes(to.Attributes(), e.Attributes)
	}
	for _, l := range s.Links {
		to := out.Links().AppendEmpty()
		to.SetTraceID(toTraceID(l.Context.TraceID))
		to.SetSpanID(toSpanID(l.Context.SpanID))
		putAttributes(to.Attributes(), l.Attributes)
	}
}

// toTraceID reads 32 hex digits; OTLP has no room for ids of another kind.
func toTraceID(s string) (id pcommon.TraceID) {
	if len(s) == hex.EncodedLen(len(id)) {
		_, _ = hex.Decode(id[:], []byte(s))
	}
	return id
}

func toSpanID(s string) (id pcommon.SpanID) {
	if len(s) == hex.EncodedLen(len(id)) {
		_, _ = hex.Decode(id[:], []byte(s))
	}
	return id
}

// timestamp converts seconds to the nearest nanosecond, which a product of
// doubles would miss.
func timestamp(seconds *float64) pcommon.Timestamp {
	if seconds == nil || !(*seconds > 0) || *seconds > 1<<33 {
		return 0
	}
	exact := new(big.Rat).SetFloat64(*seconds)
	exact.Mul(exact, big.NewRat(1e9, 1)).Add(exact, big.NewRat(1, 2))
	return pcommon.Timestamp(new(big.Int).Quo(exact.Num(), exact.Denom()).Uint64())
}

func putAttributes(out pcommon.Map, in agl.Attributes) {
	out.EnsureCapacity(len(in))
	for _, a := range in {
		putValue(out.PutEmpty(a.Key), a.Value)
	}
}

func putValue(out pcommon.Value, v any) {
	switch v := v.(type) {
	case string:
		out.SetStr(v)
	case bool:
		out.SetBool(v)
	case int:
		out.SetInt(int64(v))
	case int64:
		out.SetInt(v)
	case float64:
		out.SetDouble(v)
	case json.Number: // an integer that has no room in OTLP
		out.SetStr(v.String())
	case []string:
		putList(out, v)
	case []bool:
		putList(out, v)
	case []int64:
		putList(out, v)
	case []float64:
		putList(out, v)
	}
}

func putList[T any](out pcommon.Value, list []T) {
	to := out.SetEmptySlice()
	to.EnsureCapacity(len(list))
	for _, v := range list {
		putValue(to.AppendEmpty(), v)
	}
}
