package native

import (
	"slices"
	"strings"
)

// Ids of the special tokens. The 256 ids below them are the bytes; words follow.
const (
	SystemToken    int32 = 256 + iota // opens a system message
	UserToken                         // opens a user message
	AssistantToken                    // opens an assistant message
	ToolToken                         // opens a tool result
	EndToken                          // ends a message
	firstWord
)

var specialNames = [...]string{"<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>"}

// Tokenizer turns text into token ids and back. The vocabulary is the 256 bytes,
// five special tokens that no text produces, and a list of words; text is cut
// greedily into the longest words, so any bytes round-trip and the same text
// always gives the same ids. A digit is always a token of its own. It is
// immutable and safe for concurrent use.
type Tokenizer struct {
	words []string
	ids   map[string]int32
	// longest word that begins with a byte, to bound the search
	longest [256]int
}

// NewTokenizer returns a tokenizer with the given whole words, in this order. A
// word may be any string and usually carries its leading space (" apples"), as
// those of [Words] do. Words that are shorter than two bytes, contain a digit or
// repeat an earlier one would never be used and are skipped.
func NewTokenizer(words []string) *Tokenizer {
	t := &Tokenizer{ids: make(map[string]int32, len(words))}
	for _, w := range words {
		if _, dup := t.ids[w]; dup || len(w) < 2 || strings.ContainsAny(w, "0123456789") {
			continue
		}
		t.ids[w] = firstWord + int32(len(t.words))
		t.words = append(t.words, w)
		t.longest[w[0]] = max(t.longest[w[0]], len(w))
	}
	return t
}

// Words collects words for [NewTokenizer] from sample texts: runs of letters
// with the space before them, if any. It returns at most limit of them, the most
// frequent first and equally frequent ones in alphabetical order.
func Words(texts []string, limit int) []string {
	count := map[string]int{}
	for _, text := range texts {
		start := -1
		for i := 0; i <= len(text); i++ {
			if i < len(text) && isLetter(text[i]) {
				if start < 0 {
					start = i
					if i > 0 && text[i-1] == ' ' {
						start = i - 1
					}
				}
				continue
			}
			if start >= 0 && i-start >= 2 {
				count[text[start:i]]++
			}
			start = -1
		}
	}
	words := make([]string, 0, len(count))
	for w := range count {
		words = append(words, w)
	}
	slices.SortFunc(words, func(a, b string) int {
		if c := count[b] - count[a]; c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	return words[:min(limit, len(words))]
}

// isLetter counts the bytes of letters beyond ASCII as letters.
func isLetter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' || b >= 0x80 }

// Size is the number of tokens of the vocabulary.
func (t *Tokenizer) Size() int { return int(firstWord) + len(t.words) }

// Words returns the words of the vocabulary in the order of their ids.
func (t *Tokenizer) Words() []string { return slices.Clone(t.words) }

// Encode returns the ids of a text.
func (t *Tokenizer) Encode(text string) []int32 {
	return t.AppendEncode(make([]int32, 0, len(text)/3+4), text)
}

// AppendEncode appends the ids of a text to ids.
func (t *Tokenizer) AppendEncode(ids []int32, text string) []int32 {
	for len(text) > 0 {
		n, id := 1, int32(text[0])
		for l := min(t.longest[text[0]], len(text)); l > 1; l-- {
			if w, ok := t.ids[text[:l]]; ok {
				n, id = l, w
				break
			}
		}
		ids = append(ids, id)
		text = text[n:]
	}
	return ids
}

// Decode returns the text of ids. Special tokens and ids that do not exist
// have none.
func (t *Tokenizer) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		t.writeTo(&b, id)
	}
	return b.String()
}

func (t *Tokenizer) writeTo(b *strings.Builder, id int32) {
	switch {
	case id >= 0 && id < 256:
		b.WriteByte(byte(id))
	case id >= firstWord && int(id-firstWord) < len(t.words):
		b.WriteString(t.words[id-firstWord])
	}
}

// Name returns how one token is shown to people: the text of bytes and words,
// and names in angle brackets for special tokens.
func (t *Tokenizer) Name(id int32) string {
	if id >= SystemToken && id < firstWord {
		return specialNames[id-SystemToken]
	}
	return t.Decode([]int32{id})
}
