package agl

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"agentlightning/internal/jsonx"
)

// Attribute is one attribute of a span, event, link or resource.
//
// Value is a string, bool, int64, float64, []string, []bool, []int64,
// []float64, or a [json.Number] for an integer beyond 64 bits. A []json.Number
// is a list of integers of which one is. Nil is null, which is what a stored NaN
// or infinity comes back as.
type Attribute struct {
	Key   string
	Value any
}

// Attributes are attributes in the order in which they were set. Integers and
// floats stay distinct through storage, as readers in other languages tell
// them apart.
type Attributes []Attribute

// Get returns the value of an attribute.
func (a Attributes) Get(key string) (any, bool) {
	for i := range a {
		if a[i].Key == key {
			return a[i].Value, true
		}
	}
	return nil, false
}

// Set adds an attribute or replaces its value.
func (a *Attributes) Set(key string, value any) {
	for i := range *a {
		if (*a)[i].Key == key {
			(*a)[i].Value = value
			return
		}
	}
	*a = append(*a, Attribute{key, value})
}

// String returns an attribute that is a string.
func (a Attributes) String(key string) (string, bool) {
	v, _ := a.Get(key)
	s, ok := v.(string)
	return s, ok
}

// Ints returns an attribute that is a list of integers. An empty list of any
// kind counts, since JSON does not say what it would have held.
func (a Attributes) Ints(key string) ([]int64, bool) {
	v, _ := a.Get(key)
	switch v := v.(type) {
	case []int64:
		return v, true
	case []string:
		return nil, len(v) == 0
	}
	return nil, false
}

// Float returns an attribute that is a number.
func (a Attributes) Float(key string) (float64, bool) {
	v, _ := a.Get(key)
	switch v := v.(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	case json.Number:
		f, err := v.Float64()
		return f, err == nil
	}
	return 0, false
}

// HasPrefix reports whether any key starts with prefix.
func (a Attributes) HasPrefix(prefix string) bool {
	for i := range a {
		if strings.HasPrefix(a[i].Key, prefix) {
			return true
		}
	}
	return false
}

// AppendJSON appends the attributes as an object.
func (a Attributes) AppendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	for i := range a {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(jsonx.AppendString(dst, a[i].Key), ':')
		dst = appendAttributeValue(dst, a[i].Value)
	}
	return append(dst, '}')
}

func appendAttributeValue(dst []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		return jsonx.AppendString(dst, v)
	case bool:
		return strconv.AppendBool(dst, v)
	case int64:
		return appendInt(dst, v)
	case int:
		return appendInt(dst, int64(v))
	case float64:
		return jsonx.AppendFloat(dst, v)
	case json.Number:
		return append(dst, v...)
	case []string:
		return appendList(dst, v, jsonx.AppendString)
	case []bool:
		return appendList(dst, v, strconv.AppendBool)
	case []int64:
		return appendList(dst, v, appendInt)
	case []float64:
		return appendList(dst, v, jsonx.AppendFloat)
	case []json.Number:
		return appendList(dst, v, func(dst []byte, n json.Number) []byte { return append(dst, n...) })
	case nil:
		return append(dst, "null"...)
	}
	return jsonx.AppendString(dst, fmt.Sprint(v))
}

func appendList[T any](dst []byte, list []T, one func([]byte, T) []byte) []byte {
	dst = append(dst, '[')
	for i, v := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = one(dst, v)
	}
	return append(dst, ']')
}

// MarshalJSON implements [json.Marshaler].
func (a Attributes) MarshalJSON() ([]byte, error) { return a.AppendJSON(nil), nil }

// UnmarshalJSON implements [json.Unmarshaler]. null is no attributes at all. It
// reads everything that AppendJSON writes, null in place of a number included;
// who has to refuse that uses [ParseAttributeValue].
func (a *Attributes) UnmarshalJSON(data []byte) error {
	*a = nil
	if jsonx.KindOf(data) == jsonx.Null {
		return nil
	}
	members, err := jsonx.Members(data)
	if err != nil {
		return err
	}
	out := make(Attributes, len(members))
	for i, m := range members {
		v, err := parseAttributeValue(m.Value, true)
		if err != nil {
			return fmt.Errorf("attribute %q: %w", m.Key, err)
		}
		out[i] = Attribute{m.Key, v}
	}
	*a = out
	return nil
}

// ParseAttributeValue reads the JSON of one attribute value. Null, objects and
// nested lists are refused. Lists of mixed kinds become lists of one kind: ints
// beside floats become floats; otherwise the first of bool, int and float that
// fits every element is taken, as the protocol does.
func ParseAttributeValue(raw []byte) (any, error) {
	if err := jsonx.Check(raw); err != nil {
		return nil, err
	}
	return parseAttributeValue(raw, false)
}

// parseAttributeValue reads a value that is known to be JSON.
func parseAttributeValue(raw []byte, nulls bool) (any, error) {
	kind := jsonx.KindOf(raw)
	if kind == jsonx.Null && nulls {
		return nil, nil
	}
	switch kind {
	case jsonx.String:
		return jsonx.Text(raw)
	case jsonx.Bool:
		return strings.TrimSpace(string(raw)) == "true", nil
	case jsonx.Number:
		return parseNumber(raw)
	case jsonx.Array:
		return parseAttributeList(raw, nulls)
	}
	return nil, fmt.Errorf("%s: must be a string, bool, number or a list of one of these", clip(raw))
}

func parseNumber(raw []byte) (any, error) {
	text := strings.TrimSpace(string(raw))
	if jsonx.IsFloat([]byte(text)) {
		switch text {
		case "NaN":
			return math.NaN(), nil
		case "Infinity", "-Infinity":
			return math.Inf(len("Infinity") - len(text)), nil
		}
		f, err := strconv.ParseFloat(text, 64)
		if err != nil && !math.IsInf(f, 0) {
			return nil, fmt.Errorf("%s: %w", clip(raw), err)
		}
		return f, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	return json.Number(text), nil
}

func parseAttributeList(raw []byte, nulls bool) (any, error) {
	if ints, floats, ok := jsonx.Numbers(raw); ok {
		if floats != nil {
			return floats, nil
		}
		return ints, nil
	}
	elements, err := jsonx.Elements(raw)
	if err != nil {
		return nil, err
	}
	values := make([]any, len(elements))
	strs, bools, ints, floats := 0, 0, 0, 0
	for i, e := range elements {
		switch kind := jsonx.KindOf(e); {
		case kind == jsonx.Null && nulls:
			values[i] = math.NaN()
			floats++
			continue
		case kind != jsonx.String && kind != jsonx.Bool && kind != jsonx.Number:
			return nil, fmt.Errorf("%s: a list holds strings, bools or numbers only", clip(e))
		}
		if values[i], err = parseAttributeValue(e, false); err != nil {
			return nil, err
		}
		switch values[i].(type) {
		case string:
			strs++
		case bool:
			bools++
		case float64:
			floats++
		default:
			ints++
		}
	}
	n := len(values)
	switch {
	case strs == n:
		return collect(values, func(v any) (string, bool) { return v.(string), true }), nil
	case bools == n:
		return collect(values, func(v any) (bool, bool) { return v.(bool), true }), nil
	case ints == n:
		if list := collect(values, asInt); list != nil {
			return list, nil
		}
		return collect(values, asNumber), nil
	case floats+ints == n:
		return collect(values, asFloat), nil
	}
	if list := collect(values, asBool); list != nil {
		return list, nil
	}
	if list := collect(values, asInt); list != nil {
		return list, nil
	}
	if list := collect(values, asFloat); list != nil {
		return list, nil
	}
	return nil, fmt.Errorf("%s: the elements of a list must share one type", clip(raw))
}

// collect converts every element, or returns nil when one does not fit.
func collect[T any](values []any, as func(any) (T, bool)) []T {
	out := make([]T, len(values))
	for i, v := range values {
		t, ok := as(v)
		if !ok {
			return nil
		}
		out[i] = t
	}
	return out
}

func asBool(v any) (bool, bool) {
	switch v := v.(type) {
	case bool:
		return v, true
	case int64:
		return v == 1, v == 0 || v == 1
	case float64:
		return v == 1, v == 0 || v == 1
	case string:
		switch strings.ToLower(v) {
		case "true", "yes", "on", "t", "y", "1":
			return true, true
		case "false", "no", "off", "f", "n", "0":
			return false, true
		}
	}
	return false, false
}

func asInt(v any) (int64, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case int64:
		return v, true
	case float64:
		return int64(v), v == math.Trunc(v) && math.Abs(v) < 1<<62
	case string:
		n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		return n, err == nil
	}
	return 0, false
}

func asNumber(v any) (json.Number, bool) {
	switch v := v.(type) {
	case json.Number:
		return v, true
	case int64:
		return json.Number(strconv.FormatInt(v, 10)), true
	}
	return "", false
}

func asFloat(v any) (float64, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case int64:
		return float64(v), true
	case float64:
		return v, true
	case json.Number:
		f, err := v.Float64()
		return f, err == nil
	case string:
		f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		return f, err == nil
	}
	return 0, false
}

// clip shortens a value for an error message.
func clip(raw []byte) string {
	const most = 60
	if len(raw) > most {
		return string(raw[:most]) + "…"
	}
	return string(raw)
}
