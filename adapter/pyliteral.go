package adapter

import (
	"errors"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Python's repr of a value, as LiteLLM writes lists and objects into
// attributes. Values become nil, bool, int64, float64, *big.Int, string, pyBytes,
// pyList, pyTuple, pyDict or pySet.
type (
	pyBytes string
	pyList  []any
	pyTuple []any
	pySet   []any
	pyDict  []pyItem
	pyItem  struct{ key, value any }
)

func (d pyDict) get(key string) (any, bool) {
	for _, v := range slices.Backward(d) { // the last of several holds
		if k, ok := v.key.(string); ok && k == key {
			return v.value, true
		}
	}
	return nil, false
}

var errLiteral = errors.New("not a Python literal")

// parseLiteral reads a literal as Python's ast.literal_eval does.
func parseLiteral(text string) (any, error) {
	p := &literalParser{src: text}
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if p.space(); p.at != len(p.src) {
		return nil, errLiteral
	}
	return v, nil
}

type literalParser struct {
	src string
	at  int
}

func (p *literalParser) space() {
	for p.at < len(p.src) && strings.IndexByte(" \t\r\n", p.src[p.at]) >= 0 {
		p.at++
	}
}

// take consumes c when it is next.
func (p *literalParser) take(c byte) bool {
	p.space()
	if p.at < len(p.src) && p.src[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *literalParser) value(depth int) (any, error) {
	const deepest = 200 // as Python's parser has a limit, too
	if depth > deepest {
		return nil, errLiteral
	}
	p.space()
	if p.at == len(p.src) {
		return nil, errLiteral
	}
	switch c := p.src[p.at]; {
	case c == '[':
		p.at++
		list, _, err := p.sequence(']', depth)
		return list, err
	case c == '(':
		p.at++
		list, comma, err := p.sequence(')', depth)
		if err == nil && len(list) == 1 && !comma {
			return list[0], nil // only parentheses
		}
		return pyTuple(list), err
	case c == '{':
		p.at++
		return p.braces(depth)
	case c == '\'' || c == '"':
		return p.str()
	case (c == 'b' || c == 'B') && p.at+1 < len(p.src) && (p.src[p.at+1] == '\'' || p.src[p.at+1] == '"'):
		p.at++
		text, err := p.str()
		if err != nil {
			return nil, err
		}
		return pyBytes(text.(string)), nil
	case c == '-' || c == '+':
		p.at++
		n, err := p.number()
		if c == '-' && err == nil {
			n = negate(n)
		}
		return n, err
	case c >= '0' && c <= '9' || c == '.':
		return p.number()
	}
	for word, v := range map[string]any{"None": nil, "True": true, "False": false} {
		if rest, ok := strings.CutPrefix(p.src[p.at:], word); ok && (rest == "" || !isWord(rest[0])) {
			p.at += len(word)
			return v, nil
		}
	}
	return nil, errLiteral
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= utf8.RuneSelf
}

func (p *literalParser) sequence(end byte, depth int) (list pyList, comma bool, err error) {
	list = pyList{}
	for !p.take(end) {
		if len(list) > 0 && !comma {
			return nil, false, errLiteral
		}
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, false, err
		}
		list = append(list, v)
		comma = p.take(',')
	}
	return list, comma, nil
}

// braces reads what follows a brace: a dict, or a set.
func (p *literalParser) braces(depth int) (any, error) {
	dict, set := pyDict{}, pySet{}
	for comma := true; !p.take('}'); comma = p.take(',') {
		if !comma {
			return nil, errLiteral
		}
		key, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if !p.take(':') {
			if len(dict) > 0 {
				return nil, errLiteral
			}
			set = append(set, key)
			continue
		}
		value, err := p.value(depth + 1)
		if err != nil || len(set) > 0 {
			return nil, errLiteral
		}
		dict = append(dict, pyItem{key, value})
	}
	if len(set) > 0 {
		return set, nil
	}
	return dict, nil
}

func (p *literalParser) number() (any, error) {
	p.space()
	start := p.at
	float := false
	for p.at < len(p.src) {
		c := p.src[p.at]
		switch {
		case c >= '0' && c <= '9' || c == '_':
		case c == '.' || c == 'e' || c == 'E':
			float = true
		case (c == '+' || c == '-') && p.at > start && (p.src[p.at-1] == 'e' || p.src[p.at-1] == 'E'):
		default:
			if isWord(c) {
				return nil, errLiteral
			}
			return parsePyNumber(p.src[start:p.at], float)
		}
		p.at++
	}
	return parsePyNumber(p.src[start:], float)
}

func parsePyNumber(text string, float bool) (any, error) {
	if strings.HasPrefix(text, "_") || strings.HasSuffix(text, "_") || strings.Contains(text, "__") {
		return nil, errLiteral
	}
	text = strings.ReplaceAll(text, "_", "")
	if float {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return nil, errLiteral
		}
		return f, nil
	}
	if len(text) > 1 && text[0] == '0' && strings.Trim(text, "0") != "" {
		return nil, errLiteral // Python refuses leading zeros
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	if n, ok := new(big.Int).SetString(text, 10); ok {
		return n, nil
	}
	return nil, errLiteral
}

func negate(n any) any {
	switch n := n.(type) {
	case int64:
		return -n
	case float64:
		return -n
	case *big.Int:
		return new(big.Int).Neg(n)
	}
	return n
}

var pyEscapes = map[byte]byte{'\\': '\\', '\'': '\'', '"': '"', 'n': '\n', 'r': '\r', 't': '\t', 'a': '\a', 'b': '\b', 'f': '\f', 'v': '\v'}

func (p *literalParser) str() (any, error) {
	quote := p.src[p.at]
	p.at++
	var out strings.Builder
	for p.at < len(p.src) {
		c := p.src[p.at]
		p.at++
		switch c {
		case quote:
			return out.String(), nil
		case '\n':
			return nil, errLiteral
		case '\\':
			if err := p.escape(&out); err != nil {
				return nil, err
			}
		default:
			out.WriteByte(c)
		}
	}
	return nil, errLiteral
}

func (p *literalParser) escape(out *strings.Builder) error {
	if p.at == len(p.src) {
		return errLiteral
	}
	c := p.src[p.at]
	p.at++
	digits := 0
	switch c {
	case '\n':
		return nil // a line that goes on
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	}
	if digits > 0 {
		if p.at+digits > len(p.src) {
			return errLiteral
		}
		n, err := strconv.ParseUint(p.src[p.at:p.at+digits], 16, 32)
		if err != nil || n > utf8.MaxRune {
			return errLiteral
		}
		p.at += digits
		out.WriteRune(rune(n))
		return nil
	}
	if e, ok := pyEscapes[c]; ok {
		out.WriteByte(e)
		return nil
	}
	if c >= '0' && c <= '7' {
		n := rune(c - '0')
		for i := 0; i < 2 && p.at < len(p.src) && p.src[p.at] >= '0' && p.src[p.at] <= '7'; i++ {
			n = n<<3 | rune(p.src[p.at]-'0')
			p.at++
		}
		out.WriteRune(n)
		return nil
	}
	out.WriteByte('\\')
	out.WriteByte(c)
	return nil
}
