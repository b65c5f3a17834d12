package prompt

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	agl "agentlightning"
)

var (
	named     = regexp.MustCompile(`\{[A-Za-z_][A-Za-z0-9_]*\}`)
	statement = regexp.MustCompile(`\{%-?\s*(.*?)\s*-?%\}`)
)

// Text returns the template as a model is to see and rewrite it: placeholders as
// they are written, all other braces as agents come to see them, not doubled.
func Text(t agl.PromptTemplate) string {
	var b strings.Builder
	for _, p := range t.Parts() {
		b.WriteString(p.Text)
	}
	return b.String()
}

// Revise returns the template that has the text a model wrote in place of that
// of t. Placeholders of t stay placeholders, and all other braces are made
// literal for the engine of t, so that every formatter reads the text as it was
// meant. It refuses text that is empty or not UTF-8, that loses a placeholder of
// t or has one that t does not have, and for other engines than f-string text
// whose delimiters do not pair or whose statements are not those of t.
func Revise(t agl.PromptTemplate, text string) (agl.PromptTemplate, error) {
	switch {
	case strings.TrimSpace(text) == "":
		return agl.PromptTemplate{}, errors.New("the text is empty")
	case !utf8.ValidString(text):
		return agl.PromptTemplate{}, errors.New("the text is not UTF-8")
	}
	var out agl.PromptTemplate
	var err error
	switch t.Engine {
	case agl.EngineFString, "":
		out, err = reviseFString(t, text)
	case agl.EngineJinja, agl.EnginePOML:
		out, err = reviseJinja(t, text)
	default:
		return out, fmt.Errorf("engine %q: must be %q, %q or %q", t.Engine, agl.EngineFString, agl.EngineJinja, agl.EnginePOML)
	}
	if err != nil {
		return agl.PromptTemplate{}, err
	}
	want, got := t.Placeholders(), out.Placeholders()
	for _, name := range want {
		if !slices.Contains(got, name) {
			return agl.PromptTemplate{}, fmt.Errorf("the text loses the placeholder %q", name)
		}
	}
	for _, name := range got {
		if !slices.Contains(want, name) {
			return agl.PromptTemplate{}, fmt.Errorf("the text has the placeholder %q, which nobody fills in", name)
		}
	}
	return out, nil
}

func reviseFString(t agl.PromptTemplate, text string) (agl.PromptTemplate, error) {
	var fields []string
	literal := map[string]bool{} // what looks like a placeholder and is none
	for _, p := range t.Parts() {
		if p.Name != "" {
			fields = append(fields, p.Text)
			continue
		}
		for _, s := range named.FindAllString(p.Text, -1) {
			literal[s] = true
		}
	}
	// The longest first, should one begin like another.
	slices.SortFunc(fields, func(a, b string) int { return len(b) - len(a) })
	var b strings.Builder
	before := ' '
	for i := 0; i < len(text); {
		rest := text[i:]
		if f := slices.IndexFunc(fields, func(f string) bool { return strings.HasPrefix(rest, f) }); f >= 0 {
			b.WriteString(fields[f])
			before, i = '}', i+len(fields[f])
			continue
		}
		r, size := utf8.DecodeRuneInString(rest)
		if r == '{' {
			// \boxed{answer} is notation, {answer} by itself a value to be filled in.
			notation := unicode.IsLetter(before) || unicode.IsDigit(before) || strings.ContainsRune(`}_^\$`, before)
			if m := named.FindStringIndex(rest); m != nil && m[0] == 0 && !notation && !literal[rest[:m[1]]] {
				return agl.PromptTemplate{}, fmt.Errorf("the text has the placeholder %q, which nobody fills in", rest[1:m[1]-1])
			}
		}
		if r == '{' || r == '}' {
			b.WriteRune(r)
		}
		b.WriteRune(r)
		before, i = r, i+size
	}
	return agl.PromptTemplate{Template: b.String(), Engine: t.Engine}, nil
}

func reviseJinja(t agl.PromptTemplate, text string) (agl.PromptTemplate, error) {
	for _, pair := range [...][2]string{{"{{", "}}"}, {"{%", "%}"}, {"{#", "#}"}} {
		if o, c := strings.Count(text, pair[0]), strings.Count(text, pair[1]); o != c {
			return agl.PromptTemplate{}, fmt.Errorf("the text has %q %d times and %q %d times", pair[0], o, pair[1], c)
		}
	}
	if want, got := statements(t.Template), statements(text); !slices.Equal(got, want) {
		return agl.PromptTemplate{}, fmt.Errorf("the text has the statements %q, the template %q", got, want)
	}
	return agl.PromptTemplate{Template: text, Engine: t.Engine}, nil
}

func statements(text string) []string {
	var out []string
	for _, m := range statement.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}
