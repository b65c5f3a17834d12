package jsonx

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// TestSkipPlain puts every byte at every place of a plain string.
func TestSkipPlain(t *testing.T) {
	t.Parallel()
	look := func(c byte) bool { return c < 0x20 || c == '"' || c == '\\' || c >= 0x80 }
	for c := range 256 {
		for at := range 24 {
			s := []byte(strings.Repeat("~", 24))
			s[at] = byte(c)
			if at+1 < len(s) {
				s[at+1] = byte(rand.IntN(256)) // what follows does not matter
			}
			want := at
			if !look(byte(c)) {
				continue
			}
			if got := skipPlain(s, 0); got != want {
				t.Fatalf("skipPlain(%q) = %d, want %d", s, got, want)
			}
			if got := skipPlainText(string(s), 0); got != want {
				t.Fatalf("skipPlainText(%q) = %d, want %d", s, got, want)
			}
		}
	}
	plain := strings.Repeat(" azAZ09~#!]^[\x7f", 10)
	for n := range len(plain) {
		if got, want := skipPlain([]byte(plain[:n]), 0), n/8*8; got != want {
			t.Errorf("skipPlain of %d plain bytes = %d, want %d", n, got, want)
		}
	}
}
