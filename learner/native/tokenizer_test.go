package native

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTokenizerTakesTheLongestWord(t *testing.T) {
	t.Parallel()
	tok := NewTokenizer([]string{" app", " apples", "apples", "x", "", "a1", " app", "ap"})
	if diff := cmp.Diff([]string{" app", " apples", "apples", "ap"}, tok.Words()); diff != "" {
		t.Errorf("words (-want +got):\n%s", diff)
	}
	w := func(i int32) int32 { return firstWord + i }
	for text, want := range map[string][]int32{
		"":           {},
		"apples":     {w(2)},
		" apples":    {w(1)},
		" apple":     {w(0), 'l', 'e'},
		"aapples":    {'a', w(2)},
		"12+7":       {'1', '2', '+', '7'},
		"é":          {0xc3, 0xa9},
		"<|user|>":   {'<', '|', 'u', 's', 'e', 'r', '|', '>'},
		" app apple": {w(0), w(0), 'l', 'e'},
	} {
		if got := tok.Encode(text); !slices.Equal(got, want) {
			t.Errorf("Encode(%q) = %v, want %v", text, got, want)
		}
	}
	if tok.Size() != int(firstWord)+4 {
		t.Errorf("Size = %d, want %d", tok.Size(), firstWord+4)
	}
}

func TestDecodeOfSpecialAndUnknownIDs(t *testing.T) {
	t.Parallel()
	tok := NewTokenizer([]string{" hi"})
	if got := tok.Decode([]int32{UserToken, 'a', firstWord, EndToken, -1, 9999}); got != "a hi" {
		t.Errorf("Decode = %q, want %q", got, "a hi")
	}
	if got := tok.Name(EndToken) + tok.Name('x') + tok.Name(firstWord); got != "<|end|>x hi" {
		t.Errorf("names = %q", got)
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	got := Words([]string{"Tom has 12 apples, Tom eats 3.", "a Tom's apples café"}, 5)
	if diff := cmp.Diff([]string{" Tom", " apples", " café", " eats", " has"}, got); diff != "" {
		t.Errorf("Words (-want +got):\n%s", diff)
	}
	for _, w := range Words([]string{"x1 y22 zz3"}, 10) {
		if strings.ContainsAny(w, "0123456789") {
			t.Errorf("word %q holds a digit", w)
		}
	}
}

func FuzzTokenizerRoundTrip(f *testing.F) {
	f.Add("Tom has 12 apples", " apples", " has", "Tom")
	f.Add("\xff\xfe\x00é\u2028", "\xff", "é", "\x00\x00")
	f.Add("12345", "12", "345", "1 2")
	f.Fuzz(func(t *testing.T, text, a, b, c string) {
		tok := NewTokenizer([]string{a, b, c, a + b})
		ids := tok.Encode(text)
		if got := tok.Decode(ids); got != text {
			t.Errorf("Decode(Encode(%q)) = %q", text, got)
		}
		for _, id := range ids {
			if id < 0 || int(id) >= tok.Size() || id >= SystemToken && id < firstWord {
				t.Errorf("Encode(%q) gave id %d", text, id)
			}
			if name := tok.Name(id); len(name) > 1 && strings.ContainsAny(name, "0123456789") {
				t.Errorf("token %q holds a digit and more", name)
			}
		}
	})
}
