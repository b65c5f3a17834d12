package storehttp

import (
	"bytes"
	"math"
	"strconv"

	"agentlightning/internal/jsonx"
	"agentlightning/store"
)

// encodeSpan reads a span whose members are all there, once, and of the declared
// types, as clients send them, and writes it in the form of the protocol in the
// same go. It reports false for everything else, wrong or not, which is read by
// way of [spanReader]: both come to the same. The text must be UTF-8. Next to
// building a span and writing it again this takes a third of the time.
func encodeSpan(raw jsonx.Raw) (store.EncodedSpan, bool) {
	var s store.EncodedSpan
	var members [spanMembers]jsonx.Raw
	seen := 0
	ok := jsonx.Walk(raw, func(name []byte, value jsonx.Raw) bool {
		m := spanMember(name)
		if m < 0 || members[m] != nil {
			return false
		}
		members[m] = value
		seen++
		return true
	})
	if !ok || seen != spanMembers {
		return s, false
	}
	// The form of the protocol has no spaces, but floats may get longer.
	e := &encoder{dst: make([]byte, 0, len(raw)+len(raw)/16)}
	e.text(`{"rollout_id":`)
	s.RolloutID = e.stringValue(members[memberRolloutID])
	e.text(`,"attempt_id":`)
	s.AttemptID = e.stringValue(members[memberAttemptID])
	e.text(`,"sequence_id":`)
	s.SequenceID = e.integer(members[memberSequenceID])
	e.text(`,"trace_id":`)
	s.TraceID = e.stringValue(members[memberTraceID])
	e.text(`,"span_id":`)
	s.SpanID = e.stringValue(members[memberSpanID])
	e.text(`,"parent_id":`)
	if !e.null(members[memberParentID]) {
		s.ParentID = new(e.stringValue(members[memberParentID]))
	}
	e.text(`,"name":`)
	s.Name = e.stringValue(members[memberName])
	e.text(`,"status":`)
	e.status(members[memberStatus])
	e.text(`,"attributes":`)
	e.attributes(members[memberAttributes])
	e.text(`,"events":`)
	e.empty(members[memberEvents])
	e.text(`,"links":`)
	e.empty(members[memberLinks])
	e.text(`,"start_time":`)
	s.StartTime = e.time(members[memberStartTime])
	e.text(`,"end_time":`)
	s.EndTime = e.time(members[memberEndTime])
	e.text(`,"context":`)
	e.context(members[memberContext])
	e.text(`,"parent":`)
	e.context(members[memberParent])
	e.text(`,"resource":`)
	e.resource(members[memberResource])
	e.text(`}`)
	s.JSON = e.dst
	return s, !e.failed
}

// The members of a span, in the order in which they are written.
const (
	memberRolloutID = iota
	memberAttemptID
	memberSequenceID
	memberTraceID
	memberSpanID
	memberParentID
	memberName
	memberStatus
	memberAttributes
	memberEvents
	memberLinks
	memberStartTime
	memberEndTime
	memberContext
	memberParent
	memberResource
	spanMembers
)

func spanMember(name []byte) int {
	switch string(name) {
	case "rollout_id":
		return memberRolloutID
	case "attempt_id":
		return memberAttemptID
	case "sequence_id":
		return memberSequenceID
	case "trace_id":
		return memberTraceID
	case "span_id":
		return memberSpanID
	case "parent_id":
		return memberParentID
	case "name":
		return memberName
	case "status":
		return memberStatus
	case "attributes":
		return memberAttributes
	case "events":
		return memberEvents
	case "links":
		return memberLinks
	case "start_time":
		return memberStartTime
	case "end_time":
		return memberEndTime
	case "context":
		return memberContext
	case "parent":
		return memberParent
	case "resource":
		return memberResource
	}
	return -1
}

// encoder writes the parts of a span. What it does not take makes it fail for
// good; what it has written is of no use then.
type encoder struct {
	dst    []byte
	failed bool
}

func (e *encoder) text(s string) { e.dst = append(e.dst, s...) }

// comma separates element i from the one before.
func (e *encoder) comma(i int) {
	if i > 0 {
		e.text(",")
	}
}

func (e *encoder) require(ok bool) { e.failed = e.failed || !ok }

func (e *encoder) string(v jsonx.Raw) {
	var ok bool
	e.dst, ok = jsonx.AppendPlain(e.dst, v)
	e.require(ok)
}

// stringValue writes a string and returns its value, which must be plain.
func (e *encoder) stringValue(v jsonx.Raw) string {
	e.string(v)
	if e.failed || bytes.IndexByte(v, '\\') >= 0 {
		e.failed = true
		return ""
	}
	return string(v[1 : len(v)-1])
}

func (e *encoder) null(v jsonx.Raw) bool {
	if string(v) != "null" {
		return false
	}
	e.text("null")
	return true
}

func (e *encoder) integer(v jsonx.Raw) int64 {
	e.require(jsonx.Integer(v))
	e.dst = append(e.dst, v...)
	n, err := strconv.ParseInt(string(v), 10, 64)
	e.require(err == nil)
	return n
}

func (e *encoder) time(v jsonx.Raw) *float64 {
	if e.null(v) {
		return nil
	}
	f, ok := e.float(v)
	e.require(ok)
	return &f
}

// float writes a number as a float, if it is one that JSON has.
func (e *encoder) float(v jsonx.Raw) (float64, bool) {
	if jsonx.KindOf(v) != jsonx.Number {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, false
	}
	e.dst = jsonx.AppendFloat(e.dst, f)
	return f, true
}

func (e *encoder) empty(v jsonx.Raw) {
	e.require(string(v) == "[]")
	e.text("[]")
}

// object calls f for the members of an object, of which there must be n or any
// number for a negative one.
func (e *encoder) object(v jsonx.Raw, n int, f func(name []byte, value jsonx.Raw) bool) {
	seen := 0
	ok := jsonx.Walk(v, func(name []byte, value jsonx.Raw) bool {
		seen++
		return f(name, value)
	})
	e.require(ok && (n < 0 || seen == n))
}

func (e *encoder) status(v jsonx.Raw) {
	var code, description jsonx.Raw
	e.object(v, 2, func(name []byte, value jsonx.Raw) bool {
		switch {
		case string(name) == "status_code" && code == nil:
			code = value
		case string(name) == "description" && description == nil:
			description = value
		default:
			return false
		}
		return true
	})
	switch string(code) {
	case `"OK"`, `"UNSET"`, `"ERROR"`:
	default:
		e.failed = true
		return
	}
	e.text(`{"status_code":`)
	e.dst = append(e.dst, code...)
	e.text(`,"description":`)
	if !e.null(description) {
		e.string(description)
	}
	e.text(`}`)
}

func (e *encoder) context(v jsonx.Raw) {
	if e.null(v) {
		return
	}
	var trace, span, remote, state jsonx.Raw
	e.object(v, 4, func(name []byte, value jsonx.Raw) bool {
		to := &trace
		switch string(name) {
		case "trace_id":
		case "span_id":
			to = &span
		case "is_remote":
			to = &remote
		case "trace_state":
			to = &state
		default:
			return false
		}
		once := *to == nil
		*to = value
		return once
	})
	e.text(`{"trace_id":`)
	e.string(trace)
	e.text(`,"span_id":`)
	e.string(span)
	e.text(`,"is_remote":`)
	e.require(string(remote) == "true" || string(remote) == "false")
	e.dst = append(e.dst, remote...)
	e.require(string(state) == "{}")
	e.text(`,"trace_state":{}}`)
}

func (e *encoder) resource(v jsonx.Raw) {
	var attributes, schema jsonx.Raw
	e.object(v, 2, func(name []byte, value jsonx.Raw) bool {
		switch {
		case string(name) == "attributes" && attributes == nil:
			attributes = value
		case string(name) == "schema_url" && schema == nil:
			schema = value
		default:
			return false
		}
		return true
	})
	e.text(`{"attributes":`)
	e.attributes(attributes)
	e.text(`,"schema_url":`)
	e.string(schema)
	e.text(`}`)
}

// maxPlainAttributes is up to how many names are compared with one another.
const maxPlainAttributes = 64

func (e *encoder) attributes(v jsonx.Raw) {
	var names [maxPlainAttributes][]byte
	n := 0
	e.text("{")
	e.object(v, -1, func(name []byte, value jsonx.Raw) bool {
		if n == len(names) {
			return false
		}
		for _, other := range names[:n] {
			if string(other) == string(name) {
				return false
			}
		}
		e.comma(n)
		names[n] = name
		n++
		e.dst = append(append(append(e.dst, '"'), name...), '"', ':')
		return e.attribute(value)
	})
	e.text("}")
}

func (e *encoder) attribute(v jsonx.Raw) bool {
	switch jsonx.KindOf(v) {
	case jsonx.String:
		e.string(v)
		return !e.failed
	case jsonx.Bool:
		e.dst = append(e.dst, v...)
		return true
	case jsonx.Number:
		return e.number(v)
	case jsonx.Array:
		return e.list(v)
	case jsonx.Null, jsonx.Object, jsonx.Invalid:
	}
	return false
}

func (e *encoder) number(v jsonx.Raw) bool {
	if jsonx.Integer(v) || jsonx.ShortFloat(v) {
		e.dst = append(e.dst, v...)
		return true
	}
	if !jsonx.IsFloat(v) {
		return false
	}
	_, ok := e.float(v)
	return ok
}

// list writes a list of values of one kind. Long ones are token ids and
// probabilities.
func (e *encoder) list(v jsonx.Raw) bool {
	if ints, floats, ok := jsonx.Numbers(v); ok {
		e.text("[")
		for i, n := range ints {
			if floats != nil {
				break
			}
			e.comma(i)
			e.dst = strconv.AppendInt(e.dst, n, 10)
		}
		for i, f := range floats {
			e.comma(i)
			e.dst = jsonx.AppendFloat(e.dst, f)
		}
		e.text("]")
		return true
	}
	elements, err := jsonx.Elements(v)
	if err != nil {
		return false
	}
	e.text("[")
	for i, element := range elements {
		kind := jsonx.KindOf(element)
		if kind != jsonx.KindOf(elements[0]) || kind != jsonx.String && kind != jsonx.Bool {
			return false
		}
		e.comma(i)
		if !e.attribute(element) {
			return false
		}
	}
	e.text("]")
	return true
}
