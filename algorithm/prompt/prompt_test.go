package prompt_test

import (
	"slices"
	"strings"
	"testing"

	agl "agentlightning"
	"agentlightning/algorithm/prompt"
	"agentlightning/semconv"
)

func TestRevise(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, engine, seed, text, want, err string }{
		{"verbatim", agl.EngineFString, "Q: {q}", "Answer {q}", "Answer {q}", ""},
		{"json", agl.EngineFString, "Q: {q}", `{"a": {"b": "{q}"}}`, `{{"a": {{"b": "{q}"}}}}`, ""},
		{"field kept", agl.EngineFString, "{q:>3}", "now {q:>3}", "now {q:>3}", ""},
		{"notation", agl.EngineFString, "{q}", `{q} \boxed{answer}`, `{q} \boxed{{answer}}`, ""},
		{"literal name", agl.EngineFString, "{q} {{name}}", "{q}: {name}", "{q}: {{name}}", ""},
		{"lost", agl.EngineFString, "{q} {r}", "{q}", "", `loses the placeholder "r"`},
		{"new", agl.EngineFString, "{q}", "{q} {context}", "", `"context", which nobody fills in`},
		{"empty", agl.EngineFString, "q", " \n", "", "empty"},
		{"not UTF-8", agl.EngineFString, "q", "\xff", "", "UTF-8"},
		{"jinja", agl.EngineJinja, "{{ q }}", "Now {{q}} {not}", "Now {{q}} {not}", ""},
		{"jinja lost", agl.EngineJinja, "{{ q }}", "q", "", `loses the placeholder "q"`},
		{"jinja pair", agl.EngineJinja, "{{ q }}", "{{ q }} {{", "", `"{{" 2 times`},
		{"jinja statement", agl.EngineJinja, "{{ q }}{% if a %}{% endif %}", "{{ q }}", "", "statements"},
		{"engine", "mustache", "q", "q", "", `engine "mustache"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			seed := agl.PromptTemplate{Template: tt.seed, Engine: tt.engine}
			got, err := prompt.Revise(seed, tt.text)
			if got.Template != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("Revise(%q, %q) = %q, %v, want %q, %q", tt.seed, tt.text, got.Template, err, tt.want, tt.err)
			}
			if err == nil && prompt.Text(got) != tt.text {
				t.Errorf("Text(%q) = %q, want %q", got.Template, prompt.Text(got), tt.text)
			}
		})
	}
}

// Whatever is not refused reads as it was written, with its placeholders.
func FuzzRevise(f *testing.F) {
	for _, s := range []string{"{q}", `{"a": {q}}`, "{{q}}", "{{{q}}}", "}{q}{", "{q} {x", `\frac{a}{q}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := prompt.Revise(agl.PromptTemplate{Template: "{q}", Engine: agl.EngineFString}, text)
		if err != nil {
			return
		}
		if shown := prompt.Text(got); shown != text {
			t.Errorf("Text(Revise(%q)) = %q", text, shown)
		}
		if names := got.Placeholders(); !slices.Equal(names, []string{"q"}) {
			t.Errorf("Revise(%q) has placeholders %q", text, names)
		}
	})
}

func TestFeedback(t *testing.T) {
	t.Parallel()
	why := "no such table"
	spans := []agl.Span{
		{Name: "execute", Status: agl.TraceStatus{StatusCode: agl.StatusError, Description: &why}, Attributes: agl.Attributes{{Key: semconv.OperationName, Value: "sql"}}},
		{Name: semconv.SpanException, Attributes: agl.Attributes{{Key: semconv.ExceptionType, Value: "KeyError"}, {Key: semconv.ExceptionMessage, Value: "x"}, {Key: semconv.ExceptionStack, Value: "long"}}},
		{Name: "tool", Events: []agl.Event{{Name: "exception", Attributes: agl.Attributes{{Key: semconv.ExceptionMessage, Value: "timed out"}}}}},
		{Name: semconv.SpanMessage, Attributes: agl.Attributes{{Key: semconv.MessageBody, Value: "thinking"}}},
		{Name: semconv.SpanAnnotation, Attributes: agl.Attributes{{Key: semconv.RewardName(0), Value: "primary"}, {Key: semconv.RewardValue(0), Value: 0.5}, {Key: "judge", Value: "too long"}}},
		{Name: semconv.SpanMessage, Attributes: agl.Attributes{{Key: semconv.MessageBody, Value: "thinking"}}},
	}
	want := []string{"sql failed: no such table", semconv.SpanException + ": KeyError: x", "tool: timed out", "thinking", "judge: too long"}
	if got := prompt.Feedback(spans); !slices.Equal(got, want) {
		t.Errorf("Feedback() = %q, want %q", got, want)
	}
}
