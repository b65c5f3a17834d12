package openai

import (
	"bytes"

	"agentlightning/internal/jsonx"
)

// walker goes through an object or a list that is known to be JSON, without
// allocating: answers of a thousand tokens have tens of thousands of members.
type walker struct {
	src []byte
	at  int
}

// object returns a walker of the members of raw, which passed [jsonx.Check];
// false when it is no object.
func object(raw []byte) (walker, bool) { return enter(raw, '{') }

// list returns a walker of the elements of raw, which passed [jsonx.Check];
// false when it is no list.
func list(raw []byte) (walker, bool) { return enter(raw, '[') }

func enter(raw []byte, open byte) (walker, bool) {
	w := walker{src: raw}
	w.space()
	if w.at == len(raw) || raw[w.at] != open {
		return w, false
	}
	w.at++
	return w, true
}

// member returns the next member, false after the last one.
func (w *walker) member() (key, value []byte, ok bool) {
	raw, ok := w.element()
	if !ok {
		return nil, nil, false
	}
	key = raw[1 : len(raw)-1]
	if bytes.IndexByte(key, '\\') >= 0 {
		text, _ := jsonx.Text(raw)
		key = []byte(text)
	}
	value, _ = w.element()
	return key, value, true
}

// get returns the value of a member, nil when there is none. The walker is then
// at its end.
func (w *walker) get(name string) (found []byte) {
	for key, value, ok := w.member(); ok; key, value, ok = w.member() {
		if string(key) == name {
			found = value
		}
	}
	return found
}

// element returns the next element, false after the last one.
func (w *walker) element() ([]byte, bool) {
	for w.at < len(w.src) {
		switch w.src[w.at] {
		case ' ', '\t', '\n', '\r', ',', ':':
			w.at++
			continue
		case '}', ']':
			return nil, false
		}
		start := w.at
		w.at = valueEnd(w.src, start)
		return w.src[start:w.at], true
	}
	return nil, false
}

func (w *walker) space() {
	for w.at < len(w.src) && (w.src[w.at] == ' ' || w.src[w.at] == '\t' || w.src[w.at] == '\n' || w.src[w.at] == '\r') {
		w.at++
	}
}

// valueEnd returns where the value that begins at i ends.
func valueEnd(src []byte, i int) int {
	depth := 0
	for i < len(src) {
		switch src[i] {
		case '"':
			i = stringEnd(src, i)
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		default:
			if depth > 0 {
				i++
				continue
			}
			for i < len(src) && !ends(src[i]) {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
	return i
}

// ends reports whether c cannot be part of a number or word.
func ends(c byte) bool {
	switch c {
	case ',', '}', ']', ':', ' ', '\t', '\n', '\r':
		return true
	}
	return false
}

// stringEnd returns where the string that begins at i ends. Most are short, for
// which a plain loop is the fastest.
func stringEnd(src []byte, i int) int {
	for i++; i < len(src); i++ {
		switch src[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(src)
}
