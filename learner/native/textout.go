package native

import (
	"strings"
	"unicode/utf8"
)

// textOut turns sampled tokens into the text that a client sees: without
// special tokens, up to a stop text, and as valid UTF-8. JSON can only carry the
// latter, so every byte that does not belong becomes U+FFFD, one for one, in
// whole answers and in streams alike.
type textOut struct {
	tok   *Tokenizer
	stops []string

	raw     strings.Builder
	shown   int // bytes of raw that were handed out or dropped
	stopped string
}

// add takes a token in.
func (o *textOut) add(id int32) {
	if o.stopped != "" {
		return
	}
	before := o.raw.Len()
	o.tok.writeTo(&o.raw, id)
	text := o.raw.String()
	cut := -1
	for _, stop := range o.stops {
		if stop == "" {
			continue
		}
		from := max(0, before-len(stop)+1)
		if i := strings.Index(text[from:], stop); i >= 0 && (cut < 0 || from+i < cut) {
			cut, o.stopped = from+i, stop
		}
	}
	if cut >= 0 {
		o.raw.Reset()
		o.raw.WriteString(text[:cut])
	}
}

// take hands out what is certain: no part of a character or of a stop text that
// the next token may complete. At the end it hands out all that is left.
func (o *textOut) take(end bool) string {
	text := o.raw.String()[min(o.shown, o.raw.Len()):]
	if !end && o.stopped == "" {
		text = text[:len(text)-o.unsure(text)]
	}
	o.shown += len(text)
	return validText(text)
}

// unsure is the length of the tail that must be held back.
func (o *textOut) unsure(text string) int {
	held := 0
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if tail := text[len(text)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRuneInString(tail) {
				held = i
			}
			break
		}
	}
	for _, stop := range o.stops {
		for n := min(len(stop)-1, len(text)); n > held; n-- {
			if strings.HasSuffix(text, stop[:n]) {
				held = n
				break
			}
		}
	}
	return held
}

// validText replaces every byte that is not part of a character.
func validText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s { // an invalid byte ranges as U+FFFD
		b.WriteRune(r)
	}
	return b.String()
}
