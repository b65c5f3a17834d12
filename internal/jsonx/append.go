package jsonx

import (
	"math"
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
			i++
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
	switch KindOf(src) {
	case Object:
		members, _ := Members(src)
		dst = append(dst, '{')
		for i, m := range members {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(AppendString(dst, m.Key), ':')
			dst = AppendNormal(dst, m.Value)
		}
		return append(dst, '}')
	case Array:
		elements, _ := Elements(src)
		dst = append(dst, '[')
		for i, e := range elements {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = AppendNormal(dst, e)
		}
		return append(dst, ']')
	case String:
		s, _ := Text(src)
		return AppendString(dst, s)
	case Number:
		src = src[skipSpace(src, 0):]
		if c := src[len(src)-1]; c == 'N' || c == 'y' {
			return append(dst, "null"...)
		}
	}
	from := skipSpace(src, 0)
	to := len(src)
	for to > from && src[to-1] <= ' ' {
		to--
	}
	return append(dst, src[from:to]...)
}
