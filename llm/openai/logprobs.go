package openai

import (
	"strconv"
	"unicode/utf8"

	"agentlightning/internal/jsonx"
)

// AppendLogprobs appends a list of log-probabilities, as an answer has it,
// without what says nothing: the bytes of a token where they are those of its
// text, and the other candidates where there are none. That is most of the list
// of engines that write both. What is no list is appended as it is.
func AppendLogprobs(dst, raw []byte) []byte {
	w, ok := list(raw)
	if !ok {
		return append(dst, raw...)
	}
	dst = append(dst, '[')
	for i := 0; ; i++ {
		element, ok := w.element()
		if !ok {
			return append(dst, ']')
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendLogprob(dst, element)
	}
}

func appendLogprob(dst, raw []byte) []byte {
	w, ok := object(raw)
	if !ok {
		return append(dst, raw...)
	}
	var token, spelled []byte // spelled are the bytes, where they come before the token
	dst = append(dst, '{')
	begin := len(dst)
	for key, value, ok := w.member(); ok; key, value, ok = w.member() {
		switch string(key) {
		case "token":
			token = value
		case "bytes":
			spelled = value
			continue
		case "top_logprobs":
			if !present(value) || empty(value) {
				continue
			}
			dst = AppendLogprobs(appendKey(dst, begin, key), value)
			continue
		}
		dst = append(appendKey(dst, begin, key), value...)
	}
	if present(spelled) && !spells(spelled, token) {
		dst = append(appendKey(dst, begin, []byte("bytes")), spelled...)
	}
	return append(dst, '}')
}

// appendKey appends the key of a member of an object whose members begin at
// begin.
func appendKey(dst []byte, begin int, key []byte) []byte {
	if len(dst) > begin {
		dst = append(dst, ',')
	}
	return append(jsonx.AppendString(dst, string(key)), ':')
}

// spells reports whether raw is the list of the bytes of the text of a token.
func spells(raw, token []byte) bool {
	w, ok := list(raw)
	if !ok || jsonx.KindOf(token) != jsonx.String {
		return false
	}
	text, err := jsonx.Text(token)
	if err != nil || !utf8.ValidString(text) {
		return false
	}
	for i := 0; ; i++ {
		element, ok := w.element()
		if !ok {
			return i == len(text)
		}
		n, err := strconv.ParseUint(string(element), 10, 8)
		if err != nil || i == len(text) || byte(n) != text[i] {
			return false
		}
	}
}
