package agl

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The engines of prompt templates, as their JSON names them.
const (
	EngineFString = "f-string"
	EngineJinja   = "jinja"
	EnginePOML    = "poml"
)

// TemplatePart is a stretch of a template: literal text, or a placeholder.
type TemplatePart struct {
	// Text is the literal as agents come to see it, or the placeholder as it is
	// written, braces included.
	Text string
	// Name is that of the placeholder; empty for a literal.
	Name string
}

var (
	fStringField = regexp.MustCompile(`^\{([A-Za-z_][A-Za-z0-9_]*)((?:\.[A-Za-z_]\w*|\[[^\]{}]*\])*(?:![rsa])?(?::[^{}]*)?)\}`)
	plainField   = regexp.MustCompile(`^\{([A-Za-z_][A-Za-z0-9_]*)\}`)
	jinjaField   = regexp.MustCompile(`\{\{-?\s*([A-Za-z_]\w*)[^{}]*\}\}`)
)

// Parts takes the template apart. In an f-string, {name} is a placeholder and
// {{ and }} stand for braces, as Python's str.format reads them. Where Python
// would refuse the template, as it does `{"a": 1} for {x}`, only {name} is a
// placeholder and every other brace stands for itself.
func (p PromptTemplate) Parts() []TemplatePart {
	if p.Engine == EngineJinja || p.Engine == EnginePOML {
		var out []TemplatePart
		rest := p.Template
		for {
			m := jinjaField.FindStringSubmatchIndex(rest)
			if m == nil {
				return appendLiteral(out, rest)
			}
			out = append(appendLiteral(out, rest[:m[0]]), TemplatePart{rest[m[0]:m[1]], rest[m[2]:m[3]]})
			rest = rest[m[1]:]
		}
	}
	if parts, ok := fStringParts(p.Template, true); ok {
		return parts
	}
	parts, _ := fStringParts(p.Template, false)
	return parts
}

// fStringParts reads an f-string by Python's rules (strict) or leaves braces
// alone that are not those of a placeholder. It is false when a strict reading
// is not possible.
func fStringParts(text string, strict bool) ([]TemplatePart, bool) {
	field := plainField
	if strict {
		field = fStringField
	}
	var out []TemplatePart
	for text != "" {
		i := strings.IndexAny(text, "{}")
		if i < 0 {
			break
		}
		out, text = appendLiteral(out, text[:i]), text[i:]
		brace := text[:1]
		if strict && strings.HasPrefix(text, brace+brace) {
			out, text = appendLiteral(out, brace), text[2:]
			continue
		}
		if m := field.FindStringSubmatch(text); m != nil {
			out, text = append(out, TemplatePart{m[0], m[1]}), text[len(m[0]):]
			continue
		}
		if strict {
			return nil, false
		}
		out, text = appendLiteral(out, brace), text[1:]
	}
	return appendLiteral(out, text), true
}

func appendLiteral(parts []TemplatePart, text string) []TemplatePart {
	if text == "" {
		return parts
	}
	if n := len(parts); n > 0 && parts[n-1].Name == "" {
		parts[n-1].Text += text
		return parts
	}
	return append(parts, TemplatePart{Text: text})
}

// Placeholders returns the names of the values that the template takes, each
// once, in the order of their first use.
func (p PromptTemplate) Placeholders() []string {
	var out []string
	for _, part := range p.Parts() {
		if part.Name != "" && !slices.Contains(out, part.Name) {
			out = append(out, part.Name)
		}
	}
	return out
}

// Format fills in the placeholders of an f-string; braces that are not those of
// a placeholder stay, see [PromptTemplate.Parts]. A placeholder without a value,
// one with a conversion or format such as {x:>3}, and other engines are errors.
func (p PromptTemplate) Format(values map[string]string) (string, error) {
	if p.Engine != EngineFString && p.Engine != "" {
		return "", fmt.Errorf("prompt template: engine %q: only %q is formatted here; render the template with its own engine", p.Engine, EngineFString)
	}
	var b strings.Builder
	for _, part := range p.Parts() {
		if part.Name == "" {
			b.WriteString(part.Text)
			continue
		}
		if part.Text != "{"+part.Name+"}" {
			return "", fmt.Errorf("prompt template: placeholder %s: attributes, conversions and formats are not supported; write {%s}", part.Text, part.Name)
		}
		v, ok := values[part.Name]
		if !ok {
			return "", fmt.Errorf("prompt template: placeholder {%s} has no value", part.Name)
		}
		b.WriteString(v)
	}
	return b.String(), nil
}
