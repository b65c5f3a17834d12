package agl_test

import (
	"slices"
	"strings"
	"testing"

	agl "agentlightning"
)

func TestFormat(t *testing.T) {
	t.Parallel()
	values := map[string]string{"x": "1", "question": "{why}"}
	tests := []struct{ name, template, want, err string }{
		{"one", "Q: {question}", "Q: {why}", ""},
		{"escaped", `Reply as {{"a": 1}} for {x}`, `Reply as {"a": 1} for 1`, ""},
		{"literal braces", `Reply as {"a": 1} for {x}`, `Reply as {"a": 1} for 1`, ""},
		{"nested literal braces", `{"a": {"b": 1}} {x}`, `{"a": {"b": 1}} 1`, ""},
		{"escaped around a value", "{{{x}}}", "{1}", ""},
		{"lone brace", "} {x} {", "} 1 {", ""},
		{"no value", "{y}", "", "{y} has no value"},
		{"format", "{x:>3}", "", "{x:>3}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := agl.PromptTemplate{Template: tt.template, Engine: agl.EngineFString}.Format(values)
			if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("Format(%q) = %q, %v, want %q, %q", tt.template, got, err, tt.want, tt.err)
			}
		})
	}
	if _, err := (agl.PromptTemplate{Template: "{{ x }}", Engine: agl.EngineJinja}).Format(values); err == nil {
		t.Error("Format(jinja) is no error")
	}
}

func TestPlaceholders(t *testing.T) {
	t.Parallel()
	tests := []struct {
		engine, template string
		want             []string
	}{
		{agl.EngineFString, "{a} {b} {a} {{c}}", []string{"a", "b"}},
		{agl.EngineFString, `{"k": 1} {a}`, []string{"a"}},
		{agl.EngineFString, "{a.b[0]!r:>3}", []string{"a"}},
		{agl.EngineJinja, "{{ a }} {{b|upper}} {c} {% if d %}{% endif %}", []string{"a", "b"}},
		{agl.EnginePOML, "<p>{{a}}</p>", []string{"a"}},
	}
	for _, tt := range tests {
		if got := (agl.PromptTemplate{Template: tt.template, Engine: tt.engine}).Placeholders(); !slices.Equal(got, tt.want) {
			t.Errorf("Placeholders(%q) = %q, want %q", tt.template, got, tt.want)
		}
	}
}
