package storehttp

import (
	"strconv"
	"strings"

	"agentlightning/internal/jsonx"
)

// place is where a value stands in a request. It is a list from the inside out,
// so that reading a request without a problem costs nothing for it.
type place struct {
	outer *place
	name  string
	index int // used when name is empty and outer is not nil
	list  bool
}

func (p *place) member(name string) *place { return &place{outer: p, name: name} }

func (p *place) element(i int) *place { return &place{outer: p, index: i, list: true} }

func (p *place) appendJSON(dst []byte) []byte {
	if p.outer != nil {
		dst = append(p.outer.appendJSON(dst), ',')
	}
	if p.list {
		return strconv.AppendInt(dst, int64(p.index), 10)
	}
	return jsonx.AppendString(dst, p.name)
}

// problem is one entry of a 422 answer.
type problem struct {
	kind  string
	at    *place
	msg   string
	input jsonx.Raw
	ctx   []byte // an object, or nil for none
}

// form reads a request and collects what is wrong with it, in the order in
// which members are declared.
type form struct {
	problems []problem
}

func (f *form) report(kind string, at *place, msg string, input jsonx.Raw) {
	f.problems = append(f.problems, problem{kind: kind, at: at, msg: msg, input: input})
}

// appendJSON appends the body of the 422 answer.
func (f *form) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"detail":[`...)
	for i, p := range f.problems {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"type":`...)
		dst = jsonx.AppendString(dst, p.kind)
		dst = append(dst, `,"loc":[`...)
		dst = p.at.appendJSON(dst)
		dst = append(dst, `],"msg":`...)
		dst = jsonx.AppendString(dst, p.msg)
		dst = append(dst, `,"input":`...)
		if len(p.input) == 0 {
			dst = append(dst, "null"...)
		} else {
			dst = jsonx.AppendNormal(dst, p.input)
		}
		if p.ctx != nil {
			dst = append(dst, `,"ctx":`...)
			dst = append(dst, p.ctx...)
		}
		dst = append(dst, '}')
	}
	return append(dst, "]}"...)
}

// value is a part of a request at its place. Its methods return what the value
// means under the lenient typing of the protocol, or report a problem and
// return the zero value.
type value struct {
	*form
	raw jsonx.Raw
	at  *place
}

func (v value) null() bool { return jsonx.KindOf(v.raw) == jsonx.Null }

// object is a value that was split into its members.
type object struct {
	value
	members []jsonx.Member
	// missing is what a missing member reports as its input: the object, and
	// null in a query string.
	missing jsonx.Raw
}

// object splits the value; kind is what to report when it is something else:
// "model_attributes_type" where members are declared, "dict_type" for free ones.
func (v value) object(kind string) (object, bool) {
	if jsonx.KindOf(v.raw) != jsonx.Object {
		msg := "Input should be a valid dictionary"
		if kind == "model_attributes_type" {
			msg += " or object to extract fields from"
		}
		v.report(kind, v.at, msg, v.raw)
		return object{}, false
	}
	members, err := jsonx.Members(v.raw)
	if err != nil { // the whole request was checked before
		v.report(kind, v.at, err.Error(), v.raw)
		return object{}, false
	}
	return object{value: v, members: members, missing: v.raw}, true
}

// get returns a member that may be left out.
func (o object) get(name string) (value, bool) {
	for i := range o.members {
		if o.members[i].Key == name {
			return value{o.form, o.members[i].Value, o.at.member(name)}, true
		}
	}
	return value{}, false
}

// given returns a member that may be left out or null; null counts as left out.
func (o object) given(name string) (value, bool) {
	v, ok := o.get(name)
	return v, ok && !v.null()
}

// need returns a member that must be there.
func (o object) need(name string) (value, bool) {
	v, ok := o.get(name)
	if !ok {
		o.report("missing", o.at.member(name), "Field required", o.missing)
	}
	return v, ok
}

// elements splits a list.
func (v value) elements() []value {
	if jsonx.KindOf(v.raw) != jsonx.Array {
		v.report("list_type", v.at, "Input should be a valid list", v.raw)
		return nil
	}
	raw, err := jsonx.Elements(v.raw)
	if err != nil {
		v.report("list_type", v.at, err.Error(), v.raw)
		return nil
	}
	out := make([]value, len(raw))
	for i, e := range raw {
		out[i] = value{v.form, e, v.at.element(i)}
	}
	return out
}

// strings reads a list of strings; the result is never nil.
func (v value) strings() []string {
	out := []string{}
	for _, e := range v.elements() {
		out = append(out, e.string())
	}
	return out
}

// literals reads a list of words out of allowed; the result is never nil.
func literals[T ~string](v value, allowed []T) []T {
	out := []T{}
	for _, e := range v.elements() {
		out = append(out, literal(e, allowed))
	}
	return out
}

// literal reads one word out of allowed.
func literal[T ~string](v value, allowed []T) T {
	if jsonx.KindOf(v.raw) == jsonx.String {
		s, _ := jsonx.Text(v.raw)
		for _, a := range allowed {
			if s == string(a) {
				return a
			}
		}
	}
	expected := wordList(allowed)
	v.problems = append(v.problems, problem{
		kind: "literal_error", at: v.at, msg: "Input should be " + expected, input: v.raw,
		ctx: append(jsonx.AppendString([]byte(`{"expected":`), expected), '}'),
	})
	return ""
}

// wordList writes 'a', 'b' or 'c'.
func wordList[T ~string](words []T) string {
	var b strings.Builder
	for i, w := range words {
		switch {
		case i == 0:
		case i == len(words)-1:
			b.WriteString(" or ")
		default:
			b.WriteString(", ")
		}
		b.WriteString("'" + string(w) + "'")
	}
	return b.String()
}

// free returns free-form JSON in its normal form.
func (v value) free() []byte { return jsonx.AppendNormal(make([]byte, 0, len(v.raw)), v.raw) }

// freeObject returns a free-form object in its normal form.
func (v value) freeObject() []byte {
	if _, ok := v.object("dict_type"); !ok {
		return nil
	}
	return v.free()
}
