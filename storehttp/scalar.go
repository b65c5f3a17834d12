package storehttp

import (
	"math"
	"strconv"
	"strings"

	"agentlightning/internal/jsonx"
)

// string accepts strings only.
func (v value) string() string {
	if jsonx.KindOf(v.raw) != jsonx.String {
		v.report("string_type", v.at, "Input should be a valid string", v.raw)
		return ""
	}
	s, _ := jsonx.Text(v.raw)
	return s
}

// int accepts integers, floats without a fraction, decimal text and bools.
func (v value) int() int64 {
	switch jsonx.KindOf(v.raw) {
	case jsonx.Bool:
		if v.raw[0] == 't' {
			return 1
		}
		return 0
	case jsonx.String:
		s, _ := jsonx.Text(v.raw)
		if n, ok := intText(s); ok {
			return n
		}
		v.report("int_parsing", v.at, "Input should be a valid integer, unable to parse string as an integer", v.raw)
		return 0
	case jsonx.Number:
		if !jsonx.IsFloat(v.raw) {
			n, err := strconv.ParseInt(string(v.raw), 10, 64)
			if err != nil {
				v.report("int_parsing_size", v.at, "Unable to parse input string as an integer, exceeded maximum size", v.raw)
			}
			return n
		}
		f, ok := floatToken(v.raw)
		switch {
		case !ok || math.IsNaN(f) || math.IsInf(f, 0):
			v.report("finite_number", v.at, "Input should be a finite number", v.raw)
		case f != math.Trunc(f):
			v.report("int_from_float", v.at, "Input should be a valid integer, got a number with a fractional part", v.raw)
		case math.Abs(f) >= 1<<63:
			v.report("int_parsing_size", v.at, "Unable to parse input string as an integer, exceeded maximum size", v.raw)
		default:
			return int64(f)
		}
		return 0
	default:
		v.report("int_type", v.at, "Input should be a valid integer", v.raw)
		return 0
	}
}

// intText reads decimal text, spaces around it and a sign allowed, also
// with a fraction of zeros ("2.0") and with underscores between digits.
func intText(s string) (int64, bool) {
	s, ok := withoutUnderscores(strings.TrimSpace(s))
	if !ok {
		return 0, false
	}
	if whole, fraction, ok := strings.Cut(s, "."); ok && whole != "" && strings.Trim(fraction, "0") == "" && fraction != "" {
		s = whole
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// float accepts numbers, numeric text and bools.
func (v value) float() float64 {
	switch jsonx.KindOf(v.raw) {
	case jsonx.Bool:
		if v.raw[0] == 't' {
			return 1
		}
		return 0
	case jsonx.Number:
		f, _ := floatToken(v.raw)
		return f
	case jsonx.String:
		s, _ := jsonx.Text(v.raw)
		if f, ok := floatText(s); ok {
			return f
		}
		v.report("float_parsing", v.at, "Input should be a valid number, unable to parse string as a number", v.raw)
		return 0
	default:
		v.report("float_type", v.at, "Input should be a valid number", v.raw)
		return 0
	}
}

// floatToken reads a number of a checked text; beyond the range it is infinite.
func floatToken(raw jsonx.Raw) (float64, bool) {
	f, err := strconv.ParseFloat(string(raw), 64)
	return f, err == nil || math.IsInf(f, 0)
}

// floatText reads what Python's float() reads.
func floatText(s string) (float64, bool) {
	s, ok := withoutUnderscores(strings.TrimSpace(s))
	if !ok || strings.ContainsAny(s, "xXpP") { // Go reads hexadecimal floats, Python does not
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil || math.IsInf(f, 0)
}

// withoutUnderscores drops underscores, which may only stand between two digits.
func withoutUnderscores(s string) (string, bool) {
	if !strings.Contains(s, "_") {
		return s, true
	}
	digit := func(i int) bool { return i >= 0 && i < len(s) && s[i] >= '0' && s[i] <= '9' }
	for i := range s {
		if s[i] == '_' && (!digit(i-1) || !digit(i+1)) {
			return "", false
		}
	}
	return strings.ReplaceAll(s, "_", ""), true
}

// bool accepts bools, 0 and 1, and the usual words.
func (v value) bool() bool {
	const cannot = "Input should be a valid boolean, unable to interpret input"
	switch jsonx.KindOf(v.raw) {
	case jsonx.Bool:
		return v.raw[0] == 't'
	case jsonx.Number:
		if f, _ := floatToken(v.raw); f == 0 || f == 1 {
			return f == 1
		}
		v.report("bool_parsing", v.at, cannot, v.raw)
		return false
	case jsonx.String:
		s, _ := jsonx.Text(v.raw)
		if b, ok := boolText(s); ok {
			return b
		}
		v.report("bool_parsing", v.at, cannot, v.raw)
		return false
	default:
		v.report("bool_type", v.at, "Input should be a valid boolean", v.raw)
		return false
	}
}

func boolText(s string) (b, ok bool) {
	switch strings.ToLower(s) {
	case "true", "yes", "on", "t", "y", "1":
		return true, true
	case "false", "no", "off", "f", "n", "0":
		return false, true
	}
	return false, false
}

// stringOrNull reads a member that may be left out or null.
func (o object) stringOrNull(name string) *string {
	v, ok := o.given(name)
	if !ok {
		return nil
	}
	s := v.string()
	return &s
}

// floatOrNull reads a member that may be left out or null.
func (o object) floatOrNull(name string) *float64 {
	v, ok := o.given(name)
	if !ok {
		return nil
	}
	f := v.float()
	return &f
}
