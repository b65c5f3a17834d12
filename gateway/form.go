package gateway

import (
	"bytes"
	"errors"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"agentlightning/internal/jsonx"
)

// form collects what is wrong with a request, so that all of it is told at
// once, in the shape that clients of the Python server know.
type form struct{ problems []problem }

// problem is one entry of a 422 answer.
type problem struct {
	kind, msg string
	loc       []byte // a JSON array
	input     jsonx.Raw
	ctx       []byte // an object; empty for none
}

func (f *form) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"detail":[`...)
	for i, p := range f.problems {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"type":`...)
		dst = jsonx.AppendString(dst, p.kind)
		dst = append(append(dst, `,"loc":`...), p.loc...)
		dst = jsonx.AppendString(append(dst, `,"msg":`...), p.msg)
		dst = jsonx.AppendRaw(append(dst, `,"input":`...), p.input)
		if len(p.ctx) > 0 {
			dst = append(append(dst, `,"ctx":`...), p.ctx...)
		}
		dst = append(dst, '}')
	}
	return append(dst, "]}"...)
}

// field is a value of a request with the way to it.
type field struct {
	form *form
	loc  []byte // without the bracket at the end
	raw  jsonx.Raw
}

// body returns the field of a request's body, which is JSON that was checked.
func (f *form) body(raw jsonx.Raw) field { return field{f, []byte(`["body"`), raw} }

// readBody is body for bytes that were not checked yet; ok is false when they
// are no JSON, which is then a problem.
func (f *form) readBody(text []byte) (field, bool) {
	top := f.body(nil)
	if len(bytes.TrimSpace(text)) == 0 {
		top.wrong("missing", "Field required")
		return top, false
	}
	if err := jsonx.Check(text); err != nil {
		at, why := 0, err.Error()
		if e, ok := errors.AsType[*jsonx.SyntaxError](err); ok {
			at, why = e.Offset, e.Msg
		}
		top.raw = []byte("{}")
		top.loc = strconv.AppendInt(append(top.loc, ','), int64(at), 10)
		ctx := append(jsonx.AppendString([]byte(`{"error":`), why), '}')
		f.problems = append(f.problems, problem{"json_invalid", "JSON decode error", append(top.loc, ']'), top.raw, ctx})
		return top, false
	}
	top.raw = text
	return top, true
}

func (v field) wrong(kind, msg string) { v.wrongly(kind, msg, nil) }

func (v field) wrongly(kind, msg string, ctx []byte) {
	input := jsonx.Raw("null")
	if v.raw != nil {
		input = jsonx.AppendNormal(nil, v.raw)
	}
	v.form.problems = append(v.form.problems, problem{kind, msg, append(bytes.Clone(v.loc), ']'), input, ctx})
}

// under returns a member or element with its name added to the way.
func (v field) under(name []byte, raw jsonx.Raw) field {
	return field{v.form, slices.Concat(v.loc, []byte(","), name), raw}
}

func (v field) null() bool { return jsonx.KindOf(v.raw) == jsonx.Null }

// object is a value that must have members.
type object struct {
	field
	members []jsonx.Member
}

// model reads an object that the protocol gives members to.
func (v field) model() (object, bool) {
	return v.object("model_attributes_type", "Input should be a valid dictionary or object to extract fields from")
}

// dict reads a free-form object.
func (v field) dict() (object, bool) {
	return v.object("dict_type", "Input should be a valid dictionary")
}

func (v field) object(kind, msg string) (object, bool) {
	if jsonx.KindOf(v.raw) != jsonx.Object {
		v.wrong(kind, msg)
		return object{}, false
	}
	members, err := jsonx.Members(v.raw)
	if err != nil { // the text was checked before
		v.wrong(kind, msg)
		return object{}, false
	}
	return object{v, members}, true
}

// get returns a member; its raw value is nil when there is none.
func (o object) get(name string) field {
	return o.under(jsonx.AppendString(nil, name), jsonx.Get(o.members, name))
}

// need is get for a member that must be there.
func (o object) need(name string) (field, bool) {
	v := o.get(name)
	if v.raw == nil {
		v.raw = o.raw // what the member is missing in
		v.wrong("missing", "Field required")
		return v, false
	}
	return v, true
}

// list reads an array.
func (v field) list() []field {
	if jsonx.KindOf(v.raw) != jsonx.Array {
		v.wrong("list_type", "Input should be a valid list")
		return nil
	}
	elements, err := jsonx.Elements(v.raw)
	if err != nil { // the text was checked before
		return nil
	}
	out := make([]field, len(elements))
	for i, e := range elements {
		out[i] = v.under(strconv.AppendInt(nil, int64(i), 10), e)
	}
	return out
}

func (v field) text() string {
	if jsonx.KindOf(v.raw) == jsonx.String {
		if s, err := jsonx.Text(v.raw); err == nil {
			return s
		}
	}
	v.wrong("string_type", "Input should be a valid string")
	return ""
}

// optionalText reads a string or null; absent is null.
func (v field) optionalText() *string {
	if v.raw == nil || v.null() {
		return nil
	}
	return new(v.text())
}

// integer reads an int as leniently as the protocol: also from a float without
// a fraction, from text and from a truth value.
func (v field) integer() int64 {
	switch kind := jsonx.KindOf(v.raw); kind {
	case jsonx.Bool:
		if v.raw[0] == 't' {
			return 1
		}
		return 0
	case jsonx.Number:
		return v.number(string(v.raw))
	case jsonx.String:
		s, err := jsonx.Text(v.raw)
		if err == nil {
			if n, ok := textInteger(s); ok {
				return n
			}
		}
		v.wrong("int_parsing", "Input should be a valid integer, unable to parse string as an integer")
	case jsonx.Invalid, jsonx.Null, jsonx.Array, jsonx.Object:
		v.wrong("int_type", "Input should be a valid integer")
	}
	return 0
}

func (v field) number(text string) int64 {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || math.IsNaN(f) || math.IsInf(f, 0):
		v.wrong("finite_number", "Input should be a finite number")
	case f != math.Trunc(f):
		v.wrong("int_from_float", "Input should be a valid integer, got a number with a fractional part")
	case math.Abs(f) >= 1<<63:
		v.wrong("int_parsing_size", "Unable to parse input string as an integer, exceeded maximum size")
	default:
		return int64(f)
	}
	return 0
}

// textInteger reads an int from text: digits, or those with zeros after a point.
func textInteger(s string) (int64, bool) {
	s = strings.TrimSpace(s)
	if whole, fraction, ok := strings.Cut(s, "."); ok && strings.Trim(fraction, "0") == "" && whole != "" {
		s = whole
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// boolean reads a truth value as leniently as the protocol.
func (v field) boolean() bool {
	switch jsonx.KindOf(v.raw) {
	case jsonx.Bool:
		return v.raw[0] == 't'
	case jsonx.Number:
		if f, err := strconv.ParseFloat(string(v.raw), 64); err == nil && (f == 0 || f == 1) {
			return f == 1
		}
	case jsonx.String:
		if s, err := jsonx.Text(v.raw); err == nil {
			if b, ok := textTruth(s); ok {
				return b
			}
		}
	case jsonx.Invalid, jsonx.Null, jsonx.Array, jsonx.Object:
		v.wrong("bool_type", "Input should be a valid boolean")
		return false
	}
	v.wrong("bool_parsing", "Input should be a valid boolean, unable to interpret input")
	return false
}

func textTruth(s string) (truth, ok bool) {
	switch strings.ToLower(s) {
	case "1", "on", "t", "true", "y", "yes":
		return true, true
	case "0", "off", "f", "false", "n", "no":
		return false, true
	}
	return false, false
}

// seconds reads a time span that is not negative.
func (v field) seconds() float64 {
	if jsonx.KindOf(v.raw) == jsonx.Number {
		if f, err := strconv.ParseFloat(string(v.raw), 64); err == nil && f >= 0 && f <= maxSeconds {
			return f
		}
	}
	v.wrong("float_type", "Input should be a number of seconds from 0 to "+strconv.Itoa(maxSeconds))
	return 0
}

// maxSeconds bounds what a caller may ask for in seconds: some thirty years.
const maxSeconds = 1_000_000_000

// query reads the parameters of a request.
type query struct {
	form   *form
	values url.Values
}

func (q query) field(name string) field {
	v := field{form: q.form, loc: jsonx.AppendString([]byte(`["query",`), name)}
	if list, ok := q.values[name]; ok {
		v.raw = jsonx.AppendString(nil, list[len(list)-1])
	}
	return v
}

// integer returns a parameter, standard when it is not given.
func (q query) integer(name string, standard int64) int64 {
	if v := q.field(name); v.raw != nil {
		return v.integer()
	}
	return standard
}

func (q query) boolean(name string, standard bool) bool {
	if v := q.field(name); v.raw != nil {
		return v.boolean()
	}
	return standard
}

// text returns the last value of a parameter and whether there is one.
func (q query) text(name string) (string, bool) {
	list := q.values[name]
	if len(list) == 0 {
		return "", false
	}
	return list[len(list)-1], true
}
