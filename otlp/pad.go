package otlp

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers on the way from an export request to the ids in it.
const (
	requestResourceSpans = 1
	resourceScopeSpans   = 2
	scopeSpans           = 2
	spanTraceID          = 1
	spanSpanID           = 2
	spanParentSpanID     = 4
	spanLinks            = 13
	linkTraceID          = 1
	linkSpanID           = 2
)

// errWire has the words of the Python protobuf library.
var errWire = errors.New("Error parsing message with type " +
	"'opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest': Wire format was corrupt")

// rewrite is what to do with the length-delimited fields of a message: nested
// messages by their own rules, ids by padding them to a width.
type rewrite struct {
	nested map[protowire.Number]*rewrite
	width  map[protowire.Number]int
}

var idRewrite = &rewrite{nested: map[protowire.Number]*rewrite{
	requestResourceSpans: {nested: map[protowire.Number]*rewrite{
		resourceScopeSpans: {nested: map[protowire.Number]*rewrite{
			scopeSpans: {
				width: map[protowire.Number]int{spanTraceID: 16, spanSpanID: 8, spanParentSpanID: 8},
				nested: map[protowire.Number]*rewrite{
					spanLinks: {width: map[protowire.Number]int{linkTraceID: 16, linkSpanID: 8}},
				},
			},
		}},
	}},
}}

// padIDs returns an export request, as protobuf, with short ids filled up with
// zeros on the left.
func padIDs(raw []byte) ([]byte, error) { return idRewrite.message(nil, raw) }

func (r *rewrite) message(dst, raw []byte) ([]byte, error) {
	for len(raw) > 0 {
		num, typ, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return nil, errWire
		}
		size := protowire.ConsumeFieldValue(num, typ, raw[n:])
		if size < 0 {
			return nil, errWire
		}
		field := raw[:n+size]
		raw = raw[n+size:]
		inner, width := r.nested[num], r.width[num]
		if typ != protowire.BytesType || inner == nil && width == 0 {
			dst = append(dst, field...)
			continue
		}
		value, _ := protowire.ConsumeBytes(field[n:])
		if inner != nil {
			var err error
			if value, err = inner.message(nil, value); err != nil {
				return nil, err
			}
		} else if 0 < len(value) && len(value) < width {
			value = append(make([]byte, width-len(value), width), value...)
		}
		dst = protowire.AppendTag(dst, num, typ)
		dst = protowire.AppendBytes(dst, value)
	}
	return dst, nil
}
