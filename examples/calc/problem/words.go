package problem

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

var (
	slots       = regexp.MustCompile(`\{[a-z]+\}`)
	wordPattern = regexp.MustCompile(` ?[A-Za-z]+( 0)?`)
)

// Words returns the pieces of text that a tokenizer may keep whole, sorted:
// every word of the templates with the space before it, and the names and
// things. A word that is always followed by a number holds the space after it
// too. There is no digit among them: numbers are spelled.
func Words() []string {
	pieces := make(map[string]bool)
	for _, t := range templates {
		text := slots.ReplaceAllStringFunc(t.Text, func(slot string) string {
			if len(slot) == len("{a}") {
				return "0"
			}
			return ""
		})
		for _, w := range wordPattern.FindAllString(text, -1) {
			pieces[strings.TrimSuffix(w, "0")] = true
		}
	}
	for w := range pieces {
		if strings.HasSuffix(w, " ") && pieces[strings.TrimSuffix(w, " ")] {
			delete(pieces, w)
		}
	}
	for _, list := range [][]string{names[:], things[:]} {
		for _, w := range list {
			pieces[" "+w] = true
		}
	}
	for _, w := range names {
		pieces[w] = true
	}
	return slices.Sorted(maps.Keys(pieces))
}
