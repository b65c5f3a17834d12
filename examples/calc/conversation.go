package main

import (
	"encoding/json"

	agl "agentlightning"
	"agentlightning/examples/calc/calculator"
	"agentlightning/semconv"
)

// conversation reads what was said in an attempt from the span of its last
// model call, as the proxy recorded it.
func conversation(spans []agl.Span) []line {
	var last *agl.Span
	for i := range spans {
		if spans[i].Name == semconv.SpanModelCall {
			last = &spans[i]
		}
	}
	if last == nil {
		return nil
	}
	var lines []line
	for i := 0; ; i++ {
		role, ok := last.Attributes.String(semconv.PromptKey(i, "role"))
		if !ok {
			break
		}
		lines = append(lines, line{role, said(last.Attributes, func(member string) string { return semconv.PromptKey(i, member) })})
	}
	return append(lines, line{"assistant", said(last.Attributes, func(member string) string { return semconv.CompletionKey(0, member) })})
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
	var in struct {
		Expression string `json:"expression"`
	}
	if name == calculator.Name && json.Unmarshal([]byte(arguments), &in) == nil {
		return name + "(" + in.Expression + ")"
	}
	return name + "(" + arguments + ")"
}
