package lesson

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	agl "agentlightning"
	"agentlightning/semconv"
)

// Line is one message of a conversation.
type Line struct {
	Role string `json:"role"`
	Text string `json:"text"`
}

// Conversation reads what was said in an attempt from the span of its last model
// call by the agent of that name, as the proxy recorded it; an empty name means
// any agent.
func Conversation(spans []agl.Span, agent string) []Line {
	var last *agl.Span
	for i := range spans {
		if spans[i].Name != semconv.SpanModelCall {
			continue
		}
		if name, _ := spans[i].Attributes.String(semconv.GenAIAgentName); agent == "" || name == agent {
			last = &spans[i]
		}
	}
	if last == nil {
		return nil
	}
	var lines []Line
	for i := 0; ; i++ {
		role, ok := last.Attributes.String(semconv.PromptKey(i, "role"))
		if !ok {
			break
		}
		lines = append(lines, Line{role, said(last.Attributes, func(member string) string { return semconv.PromptKey(i, member) })})
	}
	return append(lines, Line{"assistant", said(last.Attributes, func(member string) string { return semconv.CompletionKey(0, member) })})
}

// Remarks reads what the agents of an attempt said, a text a model call.
func Remarks(spans []agl.Span) []string {
	var texts []string
	for i := range spans {
		if spans[i].Name == semconv.SpanModelCall {
			texts = append(texts, said(spans[i].Attributes, func(member string) string { return semconv.CompletionKey(0, member) }))
		}
	}
	return texts
}

// PrintRemarks shows what was said about a task before and after the training.
func PrintRemarks(out io.Writer, before, after []string) {
	for _, line := range []struct {
		when string
		said []string
	}{{"before", before}, {"after", after}} {
		fmt.Fprintf(out, "  %-7s", line.when)
		for _, text := range line.said {
			fmt.Fprint(out, " "+text)
		}
		fmt.Fprintln(out)
	}
}

// said is the text of a message, or its tool call as the model wrote it.
func said(a agl.Attributes, key func(member string) string) string {
	if text, ok := a.String(key("content")); ok && text != "" {
		return text
	}
	name, _ := a.String(key(semconv.ToolCallKey(0, "name")))
	arguments, ok := a.String(key(semconv.ToolCallKey(0, "arguments")))
	if !ok {
		return ""
	}
	return CallText(name, arguments)
}

// CallText shows a tool call as the built-in model writes it: the value alone of
// a single argument that is a text.
func CallText(name, arguments string) string {
	var in map[string]any
	if json.Unmarshal([]byte(arguments), &in) == nil && len(in) == 1 {
		for _, value := range in {
			if text, ok := value.(string); ok {
				return name + "(" + text + ")"
			}
		}
	}
	return name + "(" + arguments + ")"
}

// OneLine shows what followed the task.
func OneLine(lines []Line) string {
	var parts []string
	for _, l := range lines {
		text := strings.ToValidUTF8(l.Text, "\uFFFD")
		switch l.Role {
		case "user", "system":
		case "tool":
			parts = append(parts, "→ "+text)
		default:
			parts = append(parts, text)
		}
	}
	if len(parts) == 0 {
		return "(nothing)"
	}
	return strings.Join(parts, "  ")
}
