package engine

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// text makes a text of the bytes of tokens, and holds back the beginnings of
// characters and of stop texts until it is known what becomes of them.
type text struct {
	stop  []string
	bytes []byte // the beginning of a character
	held  string // may be the beginning of a stop text
}

func newText(stop []string) *text {
	return &text{stop: slices.DeleteFunc(slices.Clone(stop), func(s string) bool { return s == "" })}
}

// add takes the bytes of a token. It returns what can be said for certain, and
// whether a stop text came up, which is no part of it.
func (t *text) add(piece []byte) (string, bool) {
	all := slices.Concat(t.bytes, piece)
	end := whole(all)
	t.bytes = all[end:]
	t.held += strings.ToValidUTF8(string(all[:end]), "\ufffd")
	first := -1
	for _, s := range t.stop {
		if at := strings.Index(t.held, s); at >= 0 && (first < 0 || at < first) {
			first = at
		}
	}
	if first >= 0 {
		out := t.held[:first]
		t.held, t.bytes = "", nil
		return out, true
	}
	keep := 0
	for _, s := range t.stop {
		for n := min(len(s)-1, len(t.held)); n > keep; n-- {
			if strings.HasSuffix(t.held, s[:n]) {
				keep = n
			}
		}
	}
	out := t.held[:len(t.held)-keep]
	t.held = t.held[len(out):]
	return out, false
}

// rest returns what was held back when nothing more comes.
func (t *text) rest() string {
	out := t.held
	if len(t.bytes) > 0 {
		out += "\ufffd"
	}
	t.held, t.bytes = "", nil
	return out
}

// whole returns how many bytes are whole characters, or will never be any.
func whole(b []byte) int {
	for back := 1; back <= min(3, len(b)); back++ {
		if start := len(b) - back; utf8.RuneStart(b[start]) {
			if !utf8.FullRune(b[start:]) {
				return start
			}
			break
		}
	}
	return len(b)
}
