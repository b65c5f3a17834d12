package storehttp

import (
	"bytes"
	"slices"
	"strconv"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
)

var statusCodes = []agl.StatusCode{agl.StatusUnset, agl.StatusOK, agl.StatusError}

// spanReader reads spans. In a request an attribute that is null is refused; in
// an answer it stands for a float that is not finite.
type spanReader struct{ nullIsNaN bool }

// span reads a span. Its declared members must all be there; others are kept.
func (r spanReader) span(v value) agl.Span {
	o, isObject := v.object("model_attributes_type")
	if !isObject {
		return agl.Span{}
	}
	var s agl.Span
	s.RolloutID = o.needString("rollout_id")
	s.AttemptID = o.needString("attempt_id")
	if m, given := o.need("sequence_id"); given {
		s.SequenceID = m.int()
	}
	s.TraceID = o.needString("trace_id")
	s.SpanID = o.needString("span_id")
	if _, given := o.need("parent_id"); given {
		s.ParentID = o.stringOrNull("parent_id")
	}
	s.Name = o.needString("name")
	if m, given := o.need("status"); given {
		s.Status = m.traceStatus()
	}
	if m, given := o.need("attributes"); given {
		s.Attributes = r.attributes(m)
	}
	if m, given := o.need("events"); given {
		for _, e := range m.elements() {
			s.Events = append(s.Events, r.event(e))
		}
	}
	if m, given := o.need("links"); given {
		for _, e := range m.elements() {
			s.Links = append(s.Links, r.link(e))
		}
	}
	if _, given := o.need("start_time"); given {
		s.StartTime = o.floatOrNull("start_time")
	}
	if _, given := o.need("end_time"); given {
		s.EndTime = o.floatOrNull("end_time")
	}
	if m, given := o.need("context"); given && !m.null() {
		c := m.spanContext()
		s.Context = &c
	}
	if m, given := o.need("parent"); given && !m.null() {
		c := m.spanContext()
		s.Parent = &c
	}
	if m, given := o.need("resource"); given {
		s.Resource = r.resource(m)
	}
	s.Extra = o.extra(isSpanMember)
	return s
}

func isSpanMember(name string) bool { return slices.Contains(spanFields, name) }

func (o object) needString(name string) string {
	if m, given := o.need(name); given {
		return m.string()
	}
	return ""
}

// extra returns the members that are not declared.
func (o object) extra(declared func(string) bool) []agl.Member {
	var out []agl.Member
	for _, m := range o.members {
		if !declared(m.Key) {
			out = append(out, agl.Member{Key: m.Key, Value: jsonx.AppendNormal(nil, m.Value)})
		}
	}
	return out
}

func (v value) traceStatus() agl.TraceStatus {
	o, isObject := v.object("model_attributes_type")
	if !isObject {
		return agl.TraceStatus{}
	}
	var s agl.TraceStatus
	if m, given := o.need("status_code"); given {
		s.StatusCode = literal(m, statusCodes)
	}
	s.Description = o.stringOrNull("description")
	s.Extra = o.extra(func(name string) bool { return name == "status_code" || name == "description" })
	return s
}

func (r spanReader) event(v value) agl.Event {
	o, isObject := v.object("model_attributes_type")
	if !isObject {
		return agl.Event{}
	}
	e := agl.Event{Name: o.needString("name")}
	if m, given := o.need("attributes"); given {
		e.Attributes = r.attributes(m)
	}
	e.Timestamp = o.floatOrNull("timestamp")
	e.Extra = o.extra(func(name string) bool {
		return name == "name" || name == "attributes" || name == "timestamp"
	})
	return e
}

func (r spanReader) link(v value) agl.Link {
	o, isObject := v.object("model_attributes_type")
	if !isObject {
		return agl.Link{}
	}
	var l agl.Link
	if m, given := o.need("context"); given {
		l.Context = m.spanContext()
	}
	if m, given := o.given("attributes"); given {
		l.Attributes = r.attributes(m)
	}
	l.Extra = o.extra(func(name string) bool { return name == "context" || name == "attributes" })
	return l
}

func (v value) spanContext() agl.SpanContext {
	o, isObject := v.object("model_attributes_type")
	if !isObject {
		return agl.SpanContext{}
	}
	c := agl.SpanContext{TraceID: o.needString("trace_id"), SpanID: o.needString("span_id")}
	if m, given := o.need("is_remote"); given {
		c.IsRemote = m.bool()
	}
	if m, given := o.need("trace_state"); given {
		if entries, isObject := m.object("dict_type"); isObject {
			for _, e := range entries.members {
				text := value{o.form, e.Value, entries.at.member(e.Key)}.string()
				c.TraceState = append(c.TraceState, agl.TraceStateEntry{Key: e.Key, Value: text})
			}
		}
	}
	c.Extra = o.extra(func(name string) bool {
		return name == "trace_id" || name == "span_id" || name == "is_remote" || name == "trace_state"
	})
	return c
}

func (r spanReader) resource(v value) agl.OtelResource {
	o, isObject := v.object("model_attributes_type")
	if !isObject {
		return agl.OtelResource{}
	}
	var res agl.OtelResource
	if m, given := o.need("attributes"); given {
		res.Attributes = r.attributes(m)
	}
	res.SchemaURL = o.needString("schema_url")
	return res
}

// attributes reads attributes; the result is never nil.
func (r spanReader) attributes(v value) agl.Attributes {
	o, isObject := v.object("dict_type")
	if !isObject {
		return nil
	}
	out := make(agl.Attributes, len(o.members))
	for i, m := range o.members {
		out[i].Key = m.Key
		raw := m.Value
		if r.nullIsNaN {
			raw = nullToNaN(raw)
		}
		parsed, err := agl.ParseAttributeValue(raw)
		if err != nil {
			value{o.form, m.Value, o.at.member(m.Key)}.refuseAttribute()
			continue
		}
		out[i].Value = parsed
	}
	return out
}

// nullToNaN puts the token NaN in the place of null.
func nullToNaN(raw jsonx.Raw) jsonx.Raw {
	switch jsonx.KindOf(raw) {
	case jsonx.Null:
		return []byte("NaN")
	case jsonx.Array:
		if !bytes.Contains(raw, []byte("null")) {
			return raw
		}
		elements, _ := jsonx.Elements(raw)
		for i := range elements {
			elements[i] = nullToNaN(elements[i])
		}
		return append(append([]byte{'['}, bytes.Join(elements, []byte(","))...), ']')
	default:
		return raw
	}
}

// attributeKinds are the types that an attribute may have, in the order in
// which they are tried, each with its scalar reader.
var attributeKinds = [...]struct {
	name string
	read func(value)
}{
	{"str", func(v value) { v.string() }},
	{"bool", func(v value) { v.bool() }},
	{"int", func(v value) { v.int() }},
	{"float", func(v value) { v.float() }},
}

// refuseAttribute reports why the value is none of the types that an attribute
// may have, one entry for each type, as the protocol does.
func (v value) refuseAttribute() {
	for _, k := range attributeKinds {
		k.read(value{v.form, v.raw, v.at.member(k.name)})
	}
	for _, k := range attributeKinds {
		at := v.at.member("json-or-python[json=list[" + k.name +
			"],python=chain[is-instance[Sequence],function-wrap[sequence_validator()]]]")
		if jsonx.KindOf(v.raw) != jsonx.Array {
			v.problems = append(v.problems, problem{
				kind: "is_instance_of", at: at,
				msg: "Input should be an instance of Sequence", input: v.raw, ctx: []byte(`{"class":"Sequence"}`),
			})
			continue
		}
		elements, _ := jsonx.Elements(v.raw)
		for i, e := range elements {
			k.read(value{v.form, e, at.element(i)})
		}
	}
	if len(v.problems) == 0 { // no type of the above was the reason
		v.report("value_error", v.at, "Input should be an attribute: "+strconv.Itoa(len(v.raw))+" bytes that are none", v.raw)
	}
}
