package jsonx

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string, escaping only what JSON requires.
// Bytes that are not UTF-8 become U+FFFD.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[from:i]...), "\uFFFD"...)
				from = i + 1
			}
			i += n
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			i = skipPlainText(s, i+1)
			continue
		}
		dst = append(dst, s[from:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		from = i
	}
	return append(append(dst, s[from:]...), '"')
}

// AppendFloat appends f so that it reads back as a float and as the same
// value: 5 is written 5.0. NaN and the infinities, which JSON lacks, are null.
func AppendFloat(dst []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(dst, "null"...)
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-4 || abs >= 1e16) {
		format = 'e'
	}
	from := len(dst)
	dst = strconv.AppendFloat(dst, f, format, -1, 64)
	for _, c := range dst[from:] {
		if c == '.' || c == 'e' {
			return dst
		}
	}
	return append(dst, '.', '0')
}

// AppendToken appends f as Python's JSON does, which has words for NaN and the
// infinities, and otherwise as [AppendFloat].
func AppendToken(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "NaN"...)
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	}
	return AppendFloat(dst, f)
}

// Spelled returns the JSON of a float64 or []float64 that is not finite, as
// [AppendToken] writes it; false for any other value. A [json.Number] is written
// as it is.
func Spelled(v any) (json.Number, bool) {
	finite := func(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }
	switch v := v.(type) {
	case float64:
		if !finite(v) {
			return json.Number(AppendToken(nil, v)), true
		}
	case []float64:
		if slices.ContainsFunc(v, func(f float64) bool { return !finite(f) }) {
			list := []byte{'['}
			for i, f := range v {
				if i > 0 {
					list = append(list, ',')
				}
				list = AppendToken(list, f)
			}
			return json.Number(append(list, ']')), true
		}
	}
	return "", false
}

// AppendOptional appends *f as [AppendFloat] does, or null.
func AppendOptional(dst []byte, f *float64) []byte {
	if f == nil {
		return append(dst, "null"...)
	}
	return AppendFloat(dst, *f)
}

// AppendOptionalString appends *s as [AppendString] does, or null.
func AppendOptionalString(dst []byte, s *string) []byte {
	if s == nil {
		return append(dst, "null"...)
	}
	return AppendString(dst, *s)
}

// AppendRaw appends a value that is already JSON, null when it is empty.
func AppendRaw(dst []byte, raw Raw) []byte {
	if len(raw) == 0 {
		return append(dst, "null"...)
	}
	return append(dst, raw...)
}

// Normalize checks src and returns it in the form that the protocol answers
// with: no spaces, minimal escapes, the last of members with one name, and
// null for NaN and the infinities. Numbers keep their spelling.
func Normalize(src []byte) (Raw, error) {
	if err := Check(src); err != nil {
		return nil, err
	}
	return AppendNormal(make([]byte, 0, len(src)), src), nil
}

// AppendNormal appends the normal form of a value that passed [Check].
func AppendNormal(dst []byte, src Raw) []byte {
	dst, _ = appendNormal(dst, src, skipSpace(src, 0))
	return dst
}

// appendNormal appends the value that begins at i and returns where it ends.
func appendNormal(dst []byte, src Raw, i int) ([]byte, int) {
	switch src[i] {
	case '{':
		return appendNormalObject(dst, src, i)
	case '[':
		dst = append(dst, '[')
		for i = skipSpace(src, i+1); src[i] != ']'; {
			dst, i = appendNormal(dst, src, i)
			if i = skipSpace(src, i); src[i] == ',' {
				dst = append(dst, ',')
				i = skipSpace(src, i+1)
			}
		}
		return append(dst, ']'), i + 1
	case '"':
		end, _ := skipString(src, i)
		if utf8.Valid(src[i:end]) {
			return appendNormalString(dst, src[i:end]), end
		}
		return AppendString(dst, unescape(src[i+1:end-1])), end
	}
	end, _ := skipValue(src, i, 0)
	if c := src[end-1]; c == 'N' || c == 'y' { // NaN, Infinity, -Infinity
		return append(dst, "null"...), end
	}
	return append(dst, src[i:end]...), end
}

// written is where a member stands in the output.
type written struct {
	key, colon, end int
	last            int // the member with the same name that counts
}

func appendNormalObject(dst []byte, src Raw, i int) ([]byte, int) {
	dst = append(dst, '{')
	open := len(dst)
	var few [8]written
	members := few[:0]
	var byName map[string]int
	twice := false
	for i = skipSpace(src, i+1); src[i] != '}'; {
		m := written{key: len(dst), last: len(members)}
		dst, i = appendNormal(dst, src, i)
		m.colon = len(dst)
		dst = append(dst, ':')
		dst, i = appendNormal(dst, src, skipSpace(src, skipSpace(src, i)+1))
		m.end = len(dst)
		if first, ok := sameName(dst, members, byName, dst[m.key:m.colon]); ok {
			members[first].last = m.last
			m.last = -1
			twice = true
		}
		members = append(members, m)
		if len(members) > cap(few[:]) {
			byName = indexNames(byName, dst, members)
		}
		if i = skipSpace(src, i); src[i] == ',' {
			dst = append(dst, ',')
			i = skipSpace(src, i+1)
		}
	}
	if twice {
		dst = withoutRepeats(dst, open, members)
	}
	return append(dst, '}'), i + 1
}

// sameName returns the first member with a name.
func sameName(dst []byte, members []written, byName map[string]int, name []byte) (int, bool) {
	if byName != nil {
		at, ok := byName[string(name)]
		return at, ok
	}
	for at, m := range members {
		if m.last >= 0 && string(dst[m.key:m.colon]) == string(name) {
			return at, true
		}
	}
	return 0, false
}

// indexNames keeps objects with many members linear.
func indexNames(byName map[string]int, dst []byte, members []written) map[string]int {
	from := len(members) - 1
	if byName == nil {
		byName = make(map[string]int, 2*len(members))
		from = 0
	}
	for at := from; at < len(members); at++ {
		if m := members[at]; m.last >= 0 {
			byName[string(dst[m.key:m.colon])] = at
		}
	}
	return byName
}

// withoutRepeats writes the members of an object again, each name at its first
// place with its last value.
func withoutRepeats(dst []byte, open int, members []written) []byte {
	kept := make([]byte, 0, len(dst)-open)
	for _, m := range members {
		if m.last < 0 {
			continue
		}
		if len(kept) > 0 {
			kept = append(kept, ',')
		}
		kept = append(kept, dst[m.key:m.colon]...)
		kept = append(kept, dst[members[m.last].colon:members[m.last].end]...)
	}
	return append(dst[:open], kept...)
}
