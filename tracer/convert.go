package tracer

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	agl "agentlightning"
)

// convert makes a span of the protocol from one of the SDK. The root is not
// recorded, so its children have no parent.
func convert(s sdktrace.ReadOnlySpan, rolloutID, attemptID string, root trace.SpanID) agl.Span {
	sc := s.SpanContext()
	out := agl.Span{
		RolloutID:  rolloutID,
		AttemptID:  attemptID,
		TraceID:    sc.TraceID().String(),
		SpanID:     sc.SpanID().String(),
		Name:       s.Name(),
		Status:     convertStatus(s.Status()),
		Attributes: convertAttributes(s.Attributes()),
		StartTime:  seconds(s.StartTime()),
		EndTime:    seconds(s.EndTime()),
		Context:    convertContext(sc),
	}
	if parent := s.Parent(); parent.IsValid() && parent.SpanID() != root {
		out.Parent = convertContext(parent)
		out.ParentID = &out.Parent.SpanID
	}
	for _, e := range s.Events() {
		out.Events = append(out.Events, agl.Event{
			Name: e.Name, Attributes: convertAttributes(e.Attributes), Timestamp: seconds(e.Time),
		})
	}
	for _, l := range s.Links() {
		link := agl.Link{Context: *convertContext(l.SpanContext)}
		if len(l.Attributes) > 0 {
			link.Attributes = convertAttributes(l.Attributes)
		}
		out.Links = append(out.Links, link)
	}
	if r := s.Resource(); r != nil {
		out.Resource = agl.OtelResource{Attributes: convertAttributes(r.Attributes()), SchemaURL: r.SchemaURL()}
	}
	return out
}

func convertStatus(s sdktrace.Status) agl.TraceStatus {
	out := agl.TraceStatus{StatusCode: agl.StatusUnset}
	switch s.Code {
	case codes.Ok:
		out.StatusCode = agl.StatusOK
	case codes.Error:
		out.StatusCode = agl.StatusError
	case codes.Unset:
	}
	if s.Description != "" {
		out.Description = &s.Description
	}
	return out
}

func convertContext(sc trace.SpanContext) *agl.SpanContext {
	out := &agl.SpanContext{TraceID: sc.TraceID().String(), SpanID: sc.SpanID().String(), IsRemote: sc.IsRemote()}
	sc.TraceState().Walk(func(key, value string) bool {
		out.TraceState = append(out.TraceState, agl.TraceStateEntry{Key: key, Value: value})
		return true
	})
	return out
}

func convertAttributes(kvs []attribute.KeyValue) agl.Attributes {
	out := make(agl.Attributes, 0, len(kvs))
	for _, kv := range kvs {
		if v := convertValue(kv.Value); v != nil {
			out = append(out, agl.Attribute{Key: string(kv.Key), Value: v})
		}
	}
	return out
}

// convertValue returns nil for an empty value, which the protocol has no word
// for. Bytes are written as in OTLP, nested values as text.
func convertValue(v attribute.Value) any {
	switch v.Type() {
	case attribute.BOOL:
		return v.AsBool()
	case attribute.INT64:
		return v.AsInt64()
	case attribute.FLOAT64:
		return v.AsFloat64()
	case attribute.STRING:
		return v.AsString()
	case attribute.BOOLSLICE:
		return v.AsBoolSlice()
	case attribute.INT64SLICE:
		return v.AsInt64Slice()
	case attribute.FLOAT64SLICE:
		return v.AsFloat64Slice()
	case attribute.STRINGSLICE:
		return v.AsStringSlice()
	case attribute.BYTESLICE:
		return hex.EncodeToString(v.AsByteSlice())
	case attribute.EMPTY:
		return nil
	case attribute.SLICE, attribute.MAP:
	}
	return v.String()
}

// seconds returns Unix seconds as the float nearest to the nanoseconds, nil for
// the zero time. Dividing an int64 of nanoseconds would round twice.
func seconds(t time.Time) *float64 {
	if t.IsZero() {
		return nil
	}
	f, err := strconv.ParseFloat(fmt.Sprintf("%d.%09d", t.Unix(), t.Nanosecond()), 64)
	if err != nil {
		return nil
	}
	return &f
}

// KeyValues puts attributes as OpenTelemetry has them. An integer beyond 64
// bits, for which it has no type, becomes its digits.
func KeyValues(attributes agl.Attributes) []attribute.KeyValue {
	out := make([]attribute.KeyValue, len(attributes))
	for i, a := range attributes {
		out[i] = attribute.KeyValue{Key: attribute.Key(a.Key), Value: otelValue(a.Value)}
	}
	return out
}

func otelValue(v any) attribute.Value {
	switch v := v.(type) {
	case string:
		return attribute.StringValue(v)
	case bool:
		return attribute.BoolValue(v)
	case int64:
		return attribute.Int64Value(v)
	case float64:
		return attribute.Float64Value(v)
	case []string:
		return attribute.StringSliceValue(v)
	case []bool:
		return attribute.BoolSliceValue(v)
	case []int64:
		return attribute.Int64SliceValue(v)
	case []float64:
		return attribute.Float64SliceValue(v)
	case json.Number:
		return attribute.StringValue(v.String())
	}
	return attribute.StringValue(fmt.Sprint(v))
}
