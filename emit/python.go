package emit

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// The texts in attributes are those that Python's json.dumps and repr write,
// because readers compare them as texts.

// appendPython appends v as json.dumps does.
func appendPython(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case bool:
		return strconv.AppendBool(dst, v)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case float64:
		return appendPythonFloat(dst, v, "NaN", "Infinity")
	case json.Number:
		return append(dst, v...)
	case string:
		return appendASCII(dst, v)
	case []any:
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = appendPython(dst, e)
		}
		return append(dst, ']')
	case object:
		dst = append(dst, '{')
		for i, m := range v.members {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = append(appendASCII(dst, m.key), ": "...)
			dst = appendPython(dst, m.value)
		}
		return append(dst, '}')
	}
	panic("emit: value was not brought into the common form") //nolint:forbidigo // a broken invariant
}

// appendPythonFloat appends the shortest digits that read back as f, a point
// always, and an exponent of at least two digits from 1e16 and below 1e-4.
func appendPythonFloat(dst []byte, f float64, nan, inf string) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, nan...)
	case math.IsInf(f, 1):
		return append(dst, inf...)
	case math.IsInf(f, -1):
		return append(append(dst, '-'), inf...)
	}
	if abs := math.Abs(f); abs != 0 && (abs < 1e-4 || abs >= 1e16) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	from := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	if slices.Contains(dst[from:], '.') {
		return dst
	}
	return append(dst, ".0"...)
}

// appendASCII appends a JSON string in which everything but printable ASCII is
// escaped.
func appendASCII(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	unit := func(u uint16) {
		dst = append(dst, '\\', 'u', hex[u>>12], hex[u>>8&15], hex[u>>4&15], hex[u&15])
	}
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, '\\', 'n')
		case r == '\r':
			dst = append(dst, '\\', 'r')
		case r == '\t':
			dst = append(dst, '\\', 't')
		case r == '\b':
			dst = append(dst, '\\', 'b')
		case r == '\f':
			dst = append(dst, '\\', 'f')
		case r >= ' ' && r < utf8.RuneSelf-1:
			dst = append(dst, byte(r))
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			unit(uint16(high))
			unit(uint16(low))
		default:
			unit(uint16(r))
		}
	}
	return append(dst, '"')
}
