package jsonx

import "bytes"

// Walk calls f with the members of an object in their order: names without their
// quotes, values as parts of src. It is for readers that have another way for
// the unusual: besides what f refuses it reports false for a name with escapes
// in it, and for what is not exactly one object. It does not look for names that
// come twice.
func Walk(src Raw, f func(name []byte, value Raw) bool) bool {
	i := skipSpace(src, 0)
	if i >= len(src) || src[i] != '{' {
		return false
	}
	i = skipSpace(src, i+1)
	if i < len(src) && src[i] == '}' {
		return skipSpace(src, i+1) == len(src)
	}
	for {
		end, err := skipString(src, i)
		if err != nil {
			return false
		}
		name := src[i+1 : end-1]
		i = skipSpace(src, end)
		if bytes.IndexByte(name, '\\') >= 0 || i >= len(src) || src[i] != ':' {
			return false
		}
		from := skipSpace(src, i+1)
		end, err = skipValue(src, from, 1)
		if err != nil || !f(name, src[from:end]) {
			return false
		}
		i = skipSpace(src, end)
		if i < len(src) && src[i] == '}' {
			return skipSpace(src, i+1) == len(src)
		}
		if i >= len(src) || src[i] != ',' {
			return false
		}
		i = skipSpace(src, i+1)
	}
}

// AppendPlain appends a string as [AppendNormal] does, and reports false for
// what is no string. The text must be UTF-8. Most strings are in their normal
// form already and are copied.
func AppendPlain(dst []byte, src Raw) ([]byte, bool) {
	if len(src) < 2 || src[0] != '"' {
		return dst, false
	}
	end, err := skipString(src, 0)
	if err != nil || end != len(src) {
		return dst, false
	}
	return appendNormalString(dst, src), true
}

// appendNormalString appends a checked string.
func appendNormalString(dst []byte, src Raw) []byte {
	for i := 1; ; i += 2 {
		at := bytes.IndexByte(src[i:], '\\')
		if at < 0 {
			return append(dst, src...)
		}
		i += at
		switch src[i+1] {
		case '"', '\\', 'n', 'r', 't', 'b', 'f': // as AppendString writes them
		default:
			return AppendString(dst, unescape(src[1:len(src)-1]))
		}
	}
}

// Integer reports whether a number is an integer of 64 bits in the spelling that
// it would be written in.
func Integer(raw Raw) bool {
	digits := raw
	if len(digits) > 0 && digits[0] == '-' {
		if digits = digits[1:]; len(digits) == 1 && digits[0] == '0' {
			return false
		}
	}
	if len(digits) == 0 || len(digits) > 18 || digits[0] == '0' && len(digits) > 1 {
		return false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// ShortFloat reports whether a checked number is a float in the spelling that
// [AppendFloat] gives it. It misses some, such as those of 17 digits.
func ShortFloat(raw Raw) bool {
	digits := raw
	if len(digits) > 0 && digits[0] == '-' {
		digits = digits[1:]
	}
	whole, fraction, found := bytes.Cut(digits, []byte("."))
	// Up to 15 digits are what the float nearest to them is written as.
	if !found || len(digits) > 16 || len(whole) == 0 || len(fraction) == 0 {
		return false
	}
	if len(whole) > 1 && whole[0] == '0' || len(fraction) > 1 && fraction[len(fraction)-1] == '0' {
		return false
	}
	if whole[0] == '0' && (len(fraction) > 3 && bytes.HasPrefix(fraction, []byte("0000"))) {
		return false // written with an exponent
	}
	for _, c := range whole {
		if c < '0' || c > '9' {
			return false
		}
	}
	for _, c := range fraction {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}
