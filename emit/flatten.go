package emit

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	agl "agentlightning"
)

// kind tells the primitives of an attribute apart; 0 is none of them.
type kind uint8

const (
	kindString kind = iota + 1
	kindBool
	kindInt
	kindFloat
)

func kindOf(v any) kind {
	switch v.(type) {
	case string:
		return kindString
	case bool:
		return kindBool
	case int64, json.Number:
		return kindInt
	case float64:
		return kindFloat
	}
	return 0
}

// flatten turns nested objects and lists into dotted paths. A list of
// primitives of one kind stays a list, unless expand is set. Empty objects and
// lists leave nothing; of two values with one path the later one wins.
func flatten(v any, expand bool) (object, error) {
	out := object{}
	return out, flattenInto(&out, "", v, expand)
}

func flattenInto(out *object, path string, v any, expand bool) error {
	switch v := v.(type) {
	case object:
		if v.oddKey != "" {
			return fmt.Errorf("only strings are allowed as keys, got %s in %q", v.oddKey, path)
		}
		for _, m := range v.members {
			if err := flattenInto(out, join(path, m.key), m.value, expand); err != nil {
				return err
			}
		}
	case []any:
		if !expand && path != "" && len(v) > 0 && uniform(v) {
			out.set(path, v)
			return nil
		}
		for i, e := range v {
			if err := flattenInto(out, join(path, strconv.Itoa(i)), e, expand); err != nil {
				return err
			}
		}
	default:
		out.set(path, v)
	}
	return nil
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// uniform reports whether all elements are primitives of one kind.
func uniform(list []any) bool {
	for _, e := range list {
		if k := kindOf(e); k == 0 || k != kindOf(list[0]) {
			return false
		}
	}
	return true
}

var errNull = errors.New("null is not a value of an attribute")

// attributes flattens an object and makes its values fit. In the strict form,
// which annotations use, null is an error; otherwise it is the text "null".
func attributes(o object, strict bool) (agl.Attributes, error) {
	flat, err := flatten(o, false)
	if err != nil {
		return nil, err
	}
	out := make(agl.Attributes, 0, len(flat.members))
	for _, m := range flat.members {
		if strict && m.value == nil {
			return nil, fmt.Errorf("attribute %q: %w", m.key, errNull)
		}
		out = append(out, agl.Attribute{Key: m.key, Value: sanitize(m.value)})
	}
	return out, nil
}

// sanitize returns the value that an attribute can hold: primitives as they
// are, lists of one kind typed, everything else as JSON text.
func sanitize(v any) any {
	if kindOf(v) != 0 {
		return v
	}
	list, ok := v.([]any)
	if !ok {
		return string(appendPython(nil, v))
	}
	strings, bools, ints, floats, large := 0, 0, 0, 0, false
	for _, e := range list {
		switch kindOf(e) {
		case kindString:
			strings++
		case kindBool:
			bools++
		case kindInt:
			ints++
			_, isNumber := e.(json.Number)
			large = large || isNumber
		case kindFloat:
			floats++
		}
	}
	switch n := len(list); {
	case strings == n:
		return convert(list, func(e any) string { return e.(string) })
	case bools == n:
		return convert(list, func(e any) bool { return e.(bool) })
	case ints+bools == n && !large:
		return convert(list, func(e any) int64 { return int64(number(e)) })
	case ints+floats+bools == n && floats > 0:
		return convert(list, number)
	}
	return string(appendPython(nil, v))
}

func convert[T any](list []any, as func(any) T) []T {
	out := make([]T, len(list))
	for i, e := range list {
		out[i] = as(e)
	}
	return out
}

func number(v any) float64 {
	switch v := v.(type) {
	case bool:
		if v {
			return 1
		}
	case int64:
		return float64(v)
	case float64:
		return v
	case json.Number:
		if f, err := v.Float64(); err == nil {
			return f
		}
		return math.NaN()
	}
	return 0
}
