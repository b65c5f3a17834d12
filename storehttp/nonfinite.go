package storehttp

import (
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
		token, ok := jsonx.Spelled(a.Value)
		if !ok {
			continue
		}
		if &out[0] == &in[0] {
			out = slices.Clone(in)
		}
		out[i].Value = token
	}
	return out
}
