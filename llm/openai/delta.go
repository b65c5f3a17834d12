package openai

import (
	"bytes"
	"fmt"

	"agentlightning/internal/jsonx"
)

// Delta is what one chunk of a chat completion's stream adds. Texts are JSON
// strings as the backend spelled them, so that they can be handed on without a
// change; all slices are parts of the data or valid until the next Parse.
type Delta struct {
	ID, Model string
	Created   int64
	// PromptTokens counts the ids of the prompt, -1 when they are absent.
	PromptTokens   int64
	PromptTokenIDs []byte // as JSON
	Usage          *Usage
	Choices        []ChoiceDelta
}

// ChoiceDelta is what a chunk adds to one choice.
type ChoiceDelta struct {
	Index                       int
	Content, Reasoning, Refusal []byte // JSON strings, nil for nothing
	ToolCalls                   []ToolCallDelta
	FinishReason                string
	StopReason                  []byte // what ended it, where the engine says so
	Logprobs                    []byte // the list of those of the content
	TokenIDs                    []byte // as JSON
}

// ToolCallDelta is what a chunk adds to one tool call.
type ToolCallDelta struct {
	Index     int
	ID, Name  string
	Arguments []byte // JSON string, nil for nothing
}

// Parse reads the data of one event. It reads a whole answer as one chunk.
func (d *Delta) Parse(data []byte) error {
	choices := d.Choices[:0]
	*d = Delta{PromptTokens: -1}
	top, err := parseTop(data)
	if err == nil && bytes.ContainsAny(data, "\r\n") {
		// Data of several lines: what is handed on of it has to fit into one.
		top, err = parseTop(oneLine(data))
	}
	if err != nil {
		return fmt.Errorf("the chunk is not a JSON object: %w", err)
	}
	setText(&d.ID, top.id)
	setText(&d.Model, top.model)
	d.Created, _ = parseInt(top.created)
	if jsonx.KindOf(top.prompt) == jsonx.Array {
		d.PromptTokenIDs, d.PromptTokens = top.prompt, countElements(top.prompt)
	}
	if usage, ok := object(top.usage); ok {
		d.Usage = parseUsage(usage)
	}
	w, ok := list(top.choices)
	if !ok {
		return nil
	}
	at := 0
	for raw, ok := w.element(); ok; raw, ok = w.element() {
		c, err := parseChoiceDelta(raw, at)
		if err != nil {
			return fmt.Errorf("choice %d: %w", at, err)
		}
		choices = append(choices, c)
		at++
	}
	d.Choices = choices
	return nil
}

// oneLine returns JSON without line breaks, which it has only between values.
func oneLine(raw []byte) []byte {
	if !bytes.ContainsAny(raw, "\r\n") {
		return raw
	}
	out := bytes.Clone(raw)
	for i, c := range out {
		if c == '\r' || c == '\n' {
			out[i] = ' '
		}
	}
	return out
}

func countElements(raw []byte) (n int64) {
	w, _ := list(raw)
	for _, ok := w.element(); ok; _, ok = w.element() {
		n++
	}
	return n
}

func parseChoiceDelta(raw []byte, at int) (c ChoiceDelta, err error) {
	w, ok := object(raw)
	if !ok {
		return c, fmt.Errorf("it is %s", clip(raw))
	}
	c.Index = at
	var said, provider []byte
	for key, value, ok := w.member(); ok; key, value, ok = w.member() {
		switch string(key) {
		case "index":
			if n, ok := parseInt(value); ok && n >= 0 && n <= maxChoice {
				c.Index = int(n)
			}
		case "delta", "message":
			said = value
		case "finish_reason":
			setText(&c.FinishReason, value)
		case "stop_reason":
			c.StopReason = value
		case "token_ids":
			c.TokenIDs = arrayOrNil(value)
		case "provider_specific_fields":
			provider = value
		case "logprobs":
			if inner, ok := object(value); ok {
				c.Logprobs = arrayOrNil(inner.get("content"))
			}
		}
	}
	if inner, ok := object(provider); ok && c.TokenIDs == nil {
		c.TokenIDs = arrayOrNil(inner.get("token_ids"))
	}
	return c, c.parseSaid(said)
}

func (c *ChoiceDelta) parseSaid(raw []byte) error {
	w, ok := object(raw)
	if !ok {
		return nil
	}
	for key, value, ok := w.member(); ok; key, value, ok = w.member() {
		switch string(key) {
		case "content":
			c.Content = stringOrNil(value)
		case "reasoning_content", "reasoning":
			if text := stringOrNil(value); text != nil {
				c.Reasoning = text
			}
		case "refusal":
			c.Refusal = stringOrNil(value)
		case "tool_calls":
			calls, ok := list(value)
			for at := 0; ok; at++ {
				raw, more := calls.element()
				if !more {
					break
				}
				call, err := parseToolCallDelta(raw, at)
				if err != nil {
					return fmt.Errorf("tool_calls: %w", err)
				}
				c.ToolCalls = append(c.ToolCalls, call)
			}
		}
	}
	return nil
}

func parseToolCallDelta(raw []byte, at int) (call ToolCallDelta, err error) {
	w, ok := object(raw)
	if !ok {
		return call, fmt.Errorf("a call is %s", clip(raw))
	}
	call.Index = at
	var function []byte
	for key, value, ok := w.member(); ok; key, value, ok = w.member() {
		switch string(key) {
		case "index":
			if n, ok := parseInt(value); ok && n >= 0 && n <= maxToolCall {
				call.Index = int(n)
			}
		case "id":
			setText(&call.ID, value)
		case "function":
			function = value
		}
	}
	inner, _ := object(function)
	for key, value, ok := inner.member(); ok; key, value, ok = inner.member() {
		switch string(key) {
		case "name":
			setText(&call.Name, value)
		case "arguments":
			call.Arguments = stringOrNil(value)
		}
	}
	return call, nil
}

func stringOrNil(raw []byte) []byte {
	if jsonx.KindOf(raw) == jsonx.String {
		return raw
	}
	return nil
}

func arrayOrNil(raw []byte) []byte {
	if jsonx.KindOf(raw) == jsonx.Array {
		return raw
	}
	return nil
}
