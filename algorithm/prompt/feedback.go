package prompt

import (
	"fmt"
	"strings"

	agl "agentlightning"
	"agentlightning/semconv"
)

// longestNote bounds one line of feedback, in bytes.
const longestNote = 2000

// Feedback returns what the spans of an attempt say in words about how it went:
// spans that failed and why, exceptions, messages that were emitted, and the
// notes that a judge left on its annotations. Stack traces, tags, links and the
// numbers of rewards are left out. Each line is said once.
func Feedback(spans []agl.Span) []string {
	var out []string
	said := map[string]bool{}
	say := func(format string, args ...any) {
		line := strings.ToValidUTF8(strings.TrimSpace(fmt.Sprintf(format, args...)), "\uFFFD")
		if len(line) > longestNote {
			line = strings.ToValidUTF8(line[:longestNote], "") + " …"
		}
		if !said[line] {
			said[line] = true
			out = append(out, line)
		}
	}
	for i := range spans {
		s := &spans[i]
		exceptions := 0
		if text, ok := exception(s.Attributes); ok {
			exceptions++
			say("%s: %s", s.Name, text)
		}
		for _, e := range s.Events {
			if text, ok := exception(e.Attributes); ok {
				exceptions++
				say("%s: %s", spanTitle(s), text)
			}
		}
		if s.Status.StatusCode == agl.StatusError && exceptions == 0 {
			why := "failed"
			if d := s.Status.Description; d != nil && *d != "" {
				why = "failed: " + *d
			}
			say("%s %s", spanTitle(s), why)
		}
		if text, ok := s.Attributes.String(semconv.MessageBody); ok && text != "" {
			say("%s", text)
		}
		if s.Name != semconv.SpanAnnotation {
			continue
		}
		for _, a := range s.Attributes {
			text, ok := a.Value.(string)
			if !ok || text == "" || strings.HasPrefix(a.Key, "agentlightning.") || strings.HasPrefix(a.Key, "exception.") {
				continue
			}
			say("%s: %s", a.Key, text)
		}
	}
	return out
}

// spanTitle is the name of what the span is about.
func spanTitle(s *agl.Span) string {
	if name, ok := s.Attributes.String(semconv.OperationName); ok && name != "" {
		return name
	}
	if name, ok := s.Attributes.String("gen_ai.tool.name"); ok && name != "" {
		return "tool " + name
	}
	return s.Name
}

func exception(a agl.Attributes) (string, bool) {
	kind, _ := a.String(semconv.ExceptionType)
	text, _ := a.String(semconv.ExceptionMessage)
	if kind == "" && text == "" {
		return "", false
	}
	return strings.Trim(kind+": "+text, ": "), true
}
