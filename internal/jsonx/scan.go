// Package jsonx reads and writes JSON where the protocol fixes more than
// encoding/json keeps: the order of members, the difference between 1 and 1.0,
// integers of any size, and the non-finite tokens that Python writes.
package jsonx

import (
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Raw is one JSON value as text.
type Raw = []byte

// MaxDepth is how deeply arrays and objects may be nested.
const MaxDepth = 1000

// Kind is the type of a JSON value.
type Kind uint8

// The kinds of JSON values. Number covers the tokens NaN, Infinity and -Infinity.
const (
	Invalid Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

// SyntaxError says where a text stops being JSON.
type SyntaxError struct {
	Offset int
	Msg    string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("%s at byte %d", e.Msg, e.Offset) }

// KindOf returns the kind of the value that begins in raw, without checking the rest.
func KindOf(raw Raw) Kind {
	i := skipSpace(raw, 0)
	if i >= len(raw) {
		return Invalid
	}
	switch c := raw[i]; {
	case c == 'n':
		return Null
	case c == 't' || c == 'f':
		return Bool
	case c == '"':
		return String
	case c == '[':
		return Array
	case c == '{':
		return Object
	case c == '-' || c == 'N' || c == 'I' || c >= '0' && c <= '9':
		return Number
	}
	return Invalid
}

// Check returns an error unless src is exactly one JSON value, spaces around it allowed.
func Check(src []byte) error {
	end, err := skipValue(src, skipSpace(src, 0), 0)
	if err != nil {
		return err
	}
	if end = skipSpace(src, end); end != len(src) {
		return &SyntaxError{end, "extra data"}
	}
	return nil
}

// Member is one member of an object.
type Member struct {
	Key   string
	Value Raw
}

// Members splits an object. Values are parts of src, so they stay valid as
// long as src is not changed. Of members with one name the last value wins and
// the first place is kept.
func Members(src Raw) ([]Member, error) {
	i := skipSpace(src, 0)
	if i >= len(src) || src[i] != '{' {
		return nil, &SyntaxError{i, "expected an object"}
	}
	var seen map[string]int
	i = skipSpace(src, i+1)
	if i < len(src) && src[i] == '}' {
		return nil, endOfText(src, i+1)
	}
	// As many as fit without growing for a span, fewer for what is short.
	out := make([]Member, 0, min(16, 1+len(src)/24))
	for {
		keyEnd, err := skipString(src, i)
		if err != nil {
			return nil, err
		}
		key := unescape(src[i+1 : keyEnd-1])
		i = skipSpace(src, keyEnd)
		if i >= len(src) || src[i] != ':' {
			return nil, &SyntaxError{i, "expected ':'"}
		}
		start := skipSpace(src, i+1)
		end, err := skipValue(src, start, 1)
		if err != nil {
			return nil, err
		}
		at, twice := find(out, seen, key)
		if twice {
			out[at].Value = src[start:end]
		} else {
			out = append(out, Member{key, src[start:end]})
			if len(out) > 16 {
				seen = index(seen, out)
			}
		}
		i = skipSpace(src, end)
		if i < len(src) && src[i] == ',' {
			i = skipSpace(src, i+1)
			continue
		}
		if i < len(src) && src[i] == '}' {
			return out, endOfText(src, i+1)
		}
		return nil, &SyntaxError{i, "expected ',' or '}'"}
	}
}

// Get returns the value of a member, nil when there is none.
func Get(members []Member, key string) Raw {
	for _, m := range members {
		if m.Key == key {
			return m.Value
		}
	}
	return nil
}

func find(out []Member, seen map[string]int, key string) (int, bool) {
	if seen != nil {
		at, ok := seen[key]
		return at, ok
	}
	for i := range out {
		if out[i].Key == key {
			return i, true
		}
	}
	return 0, false
}

// index keeps objects with many members linear.
func index(seen map[string]int, out []Member) map[string]int {
	if seen == nil {
		seen = make(map[string]int, 2*len(out))
		for i := range out {
			seen[out[i].Key] = i
		}
	}
	seen[out[len(out)-1].Key] = len(out) - 1
	return seen
}

// Elements splits an array; the values are parts of src.
func Elements(src Raw) ([]Raw, error) {
	i := skipSpace(src, 0)
	if i >= len(src) || src[i] != '[' {
		return nil, &SyntaxError{i, "expected an array"}
	}
	var out []Raw
	i = skipSpace(src, i+1)
	if i < len(src) && src[i] == ']' {
		return out, endOfText(src, i+1)
	}
	for {
		end, err := skipValue(src, i, 1)
		if err != nil {
			return nil, err
		}
		out = append(out, src[i:end])
		i = skipSpace(src, end)
		if i < len(src) && src[i] == ',' {
			i = skipSpace(src, i+1)
			continue
		}
		if i < len(src) && src[i] == ']' {
			return out, endOfText(src, i+1)
		}
		return nil, &SyntaxError{i, "expected ',' or ']'"}
	}
}

// Text returns the string that raw spells.
func Text(raw Raw) (string, error) {
	i := skipSpace(raw, 0)
	end, err := skipString(raw, i)
	if err != nil {
		return "", err
	}
	return unescape(raw[i+1 : end-1]), endOfText(raw, end)
}

// IsFloat reports whether a number is spelled as a float: with a point, an
// exponent, or as one of the non-finite tokens.
func IsFloat(raw Raw) bool {
	for _, c := range raw {
		switch c {
		case '.', 'e', 'E', 'N', 'I':
			return true
		}
	}
	return false
}

func endOfText(src []byte, i int) error {
	if i = skipSpace(src, i); i != len(src) {
		return &SyntaxError{i, "extra data"}
	}
	return nil
}

func skipSpace(src []byte, i int) int {
	for i < len(src) {
		switch src[i] {
		case ' ', '\t', '\n', '\r':
			i++
		default:
			return i
		}
	}
	return i
}

func skipValue(src []byte, i, depth int) (int, error) {
	if i >= len(src) {
		return i, &SyntaxError{i, "expected a value"}
	}
	switch c := src[i]; {
	case c == '"':
		return skipString(src, i)
	case c == '{' || c == '[':
		return skipNested(src, i, depth)
	case c == '-' || c >= '0' && c <= '9':
		return skipNumber(src, i)
	}
	for _, word := range [...]string{"null", "true", "false", "NaN", "Infinity"} {
		if len(src)-i >= len(word) && string(src[i:i+len(word)]) == word {
			return i + len(word), nil
		}
	}
	return i, &SyntaxError{i, "expected a value"}
}

func skipNested(src []byte, i, depth int) (int, error) {
	if depth >= MaxDepth {
		return i, &SyntaxError{i, fmt.Sprintf("nested deeper than %d", MaxDepth)}
	}
	object := src[i] == '{'
	last := byte(']')
	if object {
		last = '}'
	}
	i = skipSpace(src, i+1)
	if i < len(src) && src[i] == last {
		return i + 1, nil
	}
	for {
		if object {
			end, err := skipString(src, i)
			if err != nil {
				return i, err
			}
			i = skipSpace(src, end)
			if i >= len(src) || src[i] != ':' {
				return i, &SyntaxError{i, "expected ':'"}
			}
			i = skipSpace(src, i+1)
		}
		end, err := skipValue(src, i, depth+1)
		if err != nil {
			return i, err
		}
		i = skipSpace(src, end)
		if i >= len(src) {
			return i, &SyntaxError{i, "unexpected end"}
		}
		if src[i] == last {
			return i + 1, nil
		}
		if src[i] != ',' {
			return i, &SyntaxError{i, "expected ',' or '" + string(last) + "'"}
		}
		i = skipSpace(src, i+1)
	}
}

func skipString(src []byte, i int) (int, error) {
	if i >= len(src) || src[i] != '"' {
		return i, &SyntaxError{i, "expected a string"}
	}
	start := i
	for i++; i < len(src); i++ {
		if i = skipPlain(src, i); i == len(src) {
			break
		}
		switch c := src[i]; {
		case c == '"':
			return i + 1, nil
		case c < 0x20:
			return i, &SyntaxError{i, "control character in a string"}
		case c == '\\':
			i++
			if i >= len(src) {
				return i, &SyntaxError{start, "unterminated string"}
			}
			switch src[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				if _, ok := hex4(src, i+1); !ok {
					return i, &SyntaxError{i - 1, "invalid \\u escape"}
				}
				i += 4
			default:
				return i, &SyntaxError{i - 1, "invalid escape"}
			}
		}
	}
	return i, &SyntaxError{start, "unterminated string"}
}

func skipNumber(src []byte, i int) (int, error) {
	start := i
	if src[i] == '-' {
		i++
		if len(src)-i >= 8 && string(src[i:i+8]) == "Infinity" {
			return i + 8, nil
		}
	}
	digits := func() bool {
		from := i
		for i < len(src) && src[i] >= '0' && src[i] <= '9' {
			i++
		}
		return i > from
	}
	switch {
	case i < len(src) && src[i] == '0':
		i++
	case !digits():
		return i, &SyntaxError{start, "invalid number"}
	}
	if i < len(src) && src[i] == '.' {
		i++
		if !digits() {
			return i, &SyntaxError{start, "invalid number"}
		}
	}
	if i < len(src) && (src[i] == 'e' || src[i] == 'E') {
		i++
		if i < len(src) && (src[i] == '+' || src[i] == '-') {
			i++
		}
		if !digits() {
			return i, &SyntaxError{start, "invalid number"}
		}
	}
	return i, nil
}

func hex4(src []byte, i int) (rune, bool) {
	if i+4 > len(src) {
		return 0, false
	}
	var r rune
	for _, c := range src[i : i+4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// unescape decodes the inside of a checked string. Bytes that are not UTF-8
// and lone surrogates become U+FFFD.
func unescape(src []byte) string {
	i := 0
	for i < len(src) && src[i] != '\\' && src[i] < utf8.RuneSelf {
		i = skipPlain(src, i+1)
	}
	if i == len(src) {
		return string(src)
	}
	var b strings.Builder
	b.Grow(len(src))
	b.Write(src[:i])
	for i < len(src) {
		if src[i] != '\\' {
			r, n := utf8.DecodeRune(src[i:])
			b.WriteRune(r)
			i += n
			continue
		}
		i++
		switch c := src[i]; c {
		case 'b':
			b.WriteByte('\b')
		case 'f':
			b.WriteByte('\f')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case 'u':
			r, _ := hex4(src, i+1)
			i += 4
			if utf16.IsSurrogate(r) && i+2 < len(src) && src[i+1] == '\\' && src[i+2] == 'u' {
				low, _ := hex4(src, i+3)
				if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
					r = both
					i += 6
				}
			}
			b.WriteRune(r)
		default:
			b.WriteByte(c)
		}
		i++
	}
	return b.String()
}
