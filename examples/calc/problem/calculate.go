package problem

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Calculate evaluates an expression of decimal numbers, the four signs,
// parentheses and unary minus, with the usual precedence. The result is
// rounded to two decimals and written without trailing zeros.
func Calculate(expression string) (string, error) {
	p := calculation{rest: strings.ReplaceAll(expression, " ", "")}
	v, err := p.sum(0)
	if err == nil && p.rest != "" {
		err = fmt.Errorf("unexpected %q", p.rest)
	}
	if err != nil {
		return "", fmt.Errorf("calculate %q: %w", expression, err)
	}
	return format(v), nil
}

func format(v float64) string {
	v = math.Round(v*100) / 100
	if v == 0 {
		v = 0 // no "-0"
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// maxNesting bounds the recursion that parentheses and signs can cause.
const maxNesting = 64

// maxResult keeps every result exact in a float64 and short in print.
const maxResult = 1e12

var (
	errDivisionByZero = errors.New("division by zero")
	errTooDeep        = errors.New("too many nested parentheses or signs")
	errTooLarge       = errors.New("result is too large")
)

// calculation is a recursive-descent parser that evaluates as it reads.
type calculation struct{ rest string }

func (p *calculation) take(signs string) byte {
	if p.rest != "" && strings.IndexByte(signs, p.rest[0]) >= 0 {
		c := p.rest[0]
		p.rest = p.rest[1:]
		return c
	}
	return 0
}

func (p *calculation) sum(depth int) (float64, error) {
	v, err := p.product(depth)
	for err == nil {
		sign := p.take("+-")
		if sign == 0 {
			return v, nil
		}
		var w float64
		if w, err = p.product(depth); err != nil {
			break
		}
		if sign == '-' {
			w = -w
		}
		v, err = finite(v + w)
	}
	return 0, err
}

func (p *calculation) product(depth int) (float64, error) {
	v, err := p.factor(depth)
	for err == nil {
		sign := p.take("*/")
		if sign == 0 {
			return v, nil
		}
		var w float64
		if w, err = p.factor(depth); err != nil {
			break
		}
		if sign == '/' {
			if w == 0 {
				return 0, errDivisionByZero
			}
			v, err = finite(v / w)
		} else {
			v, err = finite(v * w)
		}
	}
	return 0, err
}

func (p *calculation) factor(depth int) (float64, error) {
	if depth > maxNesting {
		return 0, errTooDeep
	}
	if p.take("-") != 0 {
		v, err := p.factor(depth + 1)
		return -v, err
	}
	if p.take("(") != 0 {
		v, err := p.sum(depth + 1)
		if err == nil && p.take(")") == 0 {
			err = errors.New("missing closing parenthesis")
		}
		return v, err
	}
	n := len(p.rest) - len(strings.TrimLeft(p.rest, "0123456789."))
	if n == 0 {
		if p.rest == "" {
			return 0, errors.New("number expected at the end")
		}
		return 0, fmt.Errorf("number expected before %q", p.rest)
	}
	v, err := strconv.ParseFloat(p.rest[:n], 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", p.rest[:n])
	}
	p.rest = p.rest[n:]
	return finite(v)
}

func finite(v float64) (float64, error) {
	if !(math.Abs(v) <= maxResult) {
		return 0, errTooLarge
	}
	return v, nil
}
