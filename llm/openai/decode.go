package openai

import (
	"bytes"
	"math"
	"strconv"

	"agentlightning/internal/jsonx"
)

// parseLogprob reads an element of the log-probabilities; not one whose number
// is missing or not finite.
func parseLogprob(raw []byte) (token []byte, logprob float64, ok bool) {
	token, number, _ := logprobMembers(raw)
	logprob, ok = parseFloat(number)
	return token, logprob, ok
}

// parseFloat reads a finite number.
func parseFloat(raw []byte) (float64, bool) {
	f, err := strconv.ParseFloat(string(raw), 64)
	return f, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
}

// joinLists appends the elements of a JSON list to those of another.
func joinLists(list, more []byte) []byte {
	if list == nil {
		return bytes.Clone(more)
	}
	if empty(more) {
		return list
	}
	if empty(list) {
		return append(list[:0], more...)
	}
	list = bytes.TrimRight(list, " \t\r\n")
	list = append(list[:len(list)-1], ", "...)
	return append(list, bytes.TrimLeft(more, " \t\r\n")[1:]...)
}

// setText sets *to to the string that raw spells, when it spells one.
func setText(to *string, raw []byte) {
	if jsonx.KindOf(raw) != jsonx.String {
		return
	}
	if text, err := jsonx.Text(raw); err == nil {
		*to = text
	}
}

// addText appends the string that raw spells. An empty one makes dst empty, not nil.
func addText(dst, raw []byte) []byte {
	if jsonx.KindOf(raw) != jsonx.String {
		return dst
	}
	text, err := jsonx.Text(raw)
	if err != nil {
		return dst
	}
	if dst == nil {
		dst = []byte{}
	}
	return append(dst, text...)
}

func present(raw []byte) bool {
	kind := jsonx.KindOf(raw)
	return kind != jsonx.Invalid && kind != jsonx.Null
}

// empty reports whether raw is a list without elements.
func empty(raw []byte) bool {
	inner := bytes.TrimSpace(raw)
	return len(inner) >= 2 && inner[0] == '[' && len(bytes.TrimSpace(inner[1:len(inner)-1])) == 0
}

func parseInt(raw []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil
}

// parseInts reads a list of integers.
func parseInts(raw []byte) ([]int64, bool) {
	if jsonx.KindOf(raw) != jsonx.Array {
		return nil, false
	}
	out := make([]int64, 0, 1+bytes.Count(raw, []byte{','}))
	inner := bytes.TrimSpace(raw)
	inner = bytes.TrimSpace(inner[1 : len(inner)-1])
	for len(inner) > 0 {
		one, rest, more := bytes.Cut(inner, []byte{','})
		n, ok := parseInt(bytes.TrimSpace(one))
		if !ok {
			return nil, false
		}
		out = append(out, n)
		if !more {
			break
		}
		inner = rest
	}
	return out, true
}
