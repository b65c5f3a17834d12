package storehttp

import (
	"encoding/json"
	"math"
	"slices"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
)

// JSON has no NaN and no infinities. The protocol takes them in requests as the
// tokens that Python writes, refuses null in their place, and answers null.

// appendSpelled appends a span as requests have it.
func appendSpelled(s *agl.Span, dst []byte) []byte {
	out := *s
	out.Attributes = spelled(s.Attributes)
	out.Resource.Attributes = spelled(s.Resource.Attributes)
	out.Events = slices.Clone(s.Events)
	for i := range out.Events {
		out.Events[i].Attributes = spelled(out.Events[i].Attributes)
	}
	out.Links = slices.Clone(s.Links)
	for i := range out.Links {
		out.Links[i].Attributes = spelled(out.Links[i].Attributes)
	}
	return out.AppendJSON(dst)
}

// spelled returns attributes whose values that are not finite are spelled out;
// mostly there are none, and the attributes are returned as they are.
func spelled(in agl.Attributes) agl.Attributes {
	out := in
	for i, a := range in {
		var raw []byte
		switch v := a.Value.(type) {
		case float64:
			if finite(v) {
				continue
			}
			raw = appendToken(nil, v)
		case []float64:
			if !slices.ContainsFunc(v, func(f float64) bool { return !finite(f) }) {
				continue
			}
			raw = appendItems(nil, v, func(f *float64, dst []byte) []byte { return appendToken(dst, *f) })
		default:
			continue
		}
		if &out[0] == &in[0] {
			out = slices.Clone(in)
		}
		out[i].Value = json.Number(raw) // which is written as it is
	}
	return out
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

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
