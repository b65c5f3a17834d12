package adapter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	agl "agentlightning"
	"agentlightning/semconv"
)

// Conversations reads what was said in the model calls of an attempt, one entry
// for each call, by sequence id, whoever recorded it: the proxy, an agent's own
// tracer, OpenInference, Weave, or whatever keeps to OpenTelemetry's conventions for
// generative models (OpenLLMetry, Logfire). A call that several of them recorded
// counts once, and one whose messages were not recorded is left out. Unlike
// [Messages], which is bound to what release 0.3 reads, it takes every spelling,
// keeps what was said beside tool calls, and gives contents of several parts, such
// as a text and a picture, as the lists that they were.
func Conversations(spans []agl.Span) ([]Conversation, error) {
	var r Recording
	r.Add(spans...)
	byID := map[string]*agl.Span{}
	children := map[string][]*agl.Span{}
	for i := range spans {
		s := &spans[i]
		byID[s.SpanID] = s
		if s.ParentID != nil {
			children[*s.ParentID] = append(children[*s.ParentID], s)
		}
	}
	out := []Conversation{}
	for _, call := range r.ordered() {
		s := byID[call.SpanID]
		if call.duplicate != nil {
			continue
		}
		c, err := said(s, call.source, children[s.SpanID])
		if err != nil {
			return nil, fmt.Errorf("span %s: %w", s.SpanID, err)
		}
		if c != nil && len(c.Messages) > 0 {
			out = append(out, *c)
		}
	}
	return out, nil
}

// said reads one call; nil when its messages are not there.
func said(s *agl.Span, source string, children []*agl.Span) (*Conversation, error) {
	switch source {
	case sourceOpenInference:
		return openInference(s)
	case sourceWeave:
		if c, err := weave(s); c != nil || err != nil {
			return c, err
		}
	}
	asked, hasAsked := s.Attributes.String("gen_ai.input.messages")
	answered, hasAnswered := s.Attributes.String("gen_ai.output.messages")
	if !hasAsked && !hasAnswered {
		return conversation(s, children, asSaid)
	}
	c := &Conversation{}
	for _, text := range [...]string{asked, answered} {
		if err := c.addParts(text); err != nil {
			return nil, err
		}
	}
	return c, c.addDefinitions(s)
}

// chatMessage is a message in OpenAI's shape.
type chatMessage struct {
	Content    any        `json:"content"` // a text, a list of parts, or nil
	Role       string     `json:"role"`
	Reasoning  string     `json:"reasoning_content,omitempty"`
	ToolCalls  []toolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type toolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function toolFunction `json:"function"`
}

type toolFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // JSON
}

func (c *Conversation) add(m *chatMessage) error {
	text, err := plainJSON(m)
	c.Messages = append(c.Messages, text)
	return err
}

// plainJSON writes JSON without the escapes that are for web pages.
func plainJSON(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// part is a piece of a message by the conventions of OpenTelemetry.
type part struct {
	Type      string          `json:"type"`
	Content   json.RawMessage `json:"content"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Response  json.RawMessage `json:"response"`
	Result    json.RawMessage `json:"result"`
}

// addParts adds messages that are lists of parts.
func (c *Conversation) addParts(text string) error {
	if text == "" {
		return nil
	}
	var messages []struct {
		Role  string            `json:"role"`
		Parts []json.RawMessage `json:"parts"`
	}
	if err := json.Unmarshal([]byte(text), &messages); err != nil {
		return fmt.Errorf("messages: %w", err)
	}
	for i, m := range messages {
		if m.Role == "" {
			return fmt.Errorf("message %d has no role", i)
		}
		if err := c.addMessage(m.Role, m.Parts); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return nil
}

// addMessage adds a message of parts. The answers of tools become messages of
// their own, as OpenAI has it.
func (c *Conversation) addMessage(role string, parts []json.RawMessage) error {
	m := chatMessage{Role: role}
	var texts []string
	var pieces []any // the content, when it is more than a text
	only := true     // text
	answers := 0
	for _, raw := range parts {
		var p part
		if err := json.Unmarshal(raw, &p); err != nil {
			return err
		}
		switch p.Type {
		case "text":
			texts = append(texts, asText(p.Content))
			pieces = append(pieces, map[string]string{"type": "text", "text": asText(p.Content)})
		case "reasoning":
			m.Reasoning += asText(p.Content)
		case "tool_call":
			m.ToolCalls = append(m.ToolCalls, toolCall{p.ID, "function", toolFunction{p.Name, asText(p.Arguments)}})
		case "tool_call_response":
			answers++
			content := p.Response
			if content == nil {
				content = p.Result
			}
			if err := c.add(&chatMessage{Content: asText(content), Role: "tool", ToolCallID: p.ID}); err != nil {
				return err
			}
		default: // an image, or what is not known here
			only = false
			pieces = append(pieces, raw)
		}
	}
	switch {
	case answers > 0 && answers == len(parts):
		return nil
	case len(pieces) == 0:
	case only && len(texts) == 1:
		m.Content = texts[0]
	default:
		m.Content = pieces
	}
	return c.add(&m)
}

// asText returns the string that raw spells, and anything else as JSON.
func asText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// addDefinitions adds the tools that were offered, in OpenAI's shape or flat.
func (c *Conversation) addDefinitions(s *agl.Span) error {
	text, ok := s.Attributes.String("gen_ai.tool.definitions")
	if !ok || text == "" {
		return nil
	}
	var tools []json.RawMessage
	if err := json.Unmarshal([]byte(text), &tools); err != nil {
		return fmt.Errorf("gen_ai.tool.definitions: %w", err)
	}
	for i, raw := range tools {
		var flat struct {
			Function    json.RawMessage `json:"function"`
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Parameters  json.RawMessage `json:"parameters"`
		}
		if err := json.Unmarshal(raw, &flat); err != nil {
			return fmt.Errorf("gen_ai.tool.definitions: tool %d: %w", i, err)
		}
		if flat.Function == nil {
			var err error
			if raw, err = plainJSON(map[string]any{"type": "function", "function": map[string]any{
				"name": flat.Name, "description": flat.Description, "parameters": flat.Parameters,
			}}); err != nil {
				return err
			}
		}
		c.Tools = append(c.Tools, raw)
	}
	return nil
}

// openInference reads the messages that OpenInference spells out attribute by
// attribute.
func openInference(s *agl.Span) (*Conversation, error) {
	c := &Conversation{}
	for _, prefix := range [...]string{"llm.input_messages", "llm.output_messages"} {
		messages := group(s, prefix)
		if messages.isObject() {
			return nil, fmt.Errorf("%s is no list", prefix)
		}
		for i, item := range messages.items() {
			m, err := openInferenceMessage(item.kid("message"))
			if err == nil {
				err = c.add(m)
			}
			if err != nil {
				return nil, fmt.Errorf("%s %d: %w", prefix, i, err)
			}
		}
	}
	for i, tool := range group(s, "llm.tools").items() {
		text := tool.kid("tool").textOf("json_schema")
		if !json.Valid([]byte(text)) {
			return nil, fmt.Errorf("llm.tools %d: the schema is no JSON", i)
		}
		c.Tools = append(c.Tools, json.RawMessage(text))
	}
	return c, nil
}

func openInferenceMessage(item *grouped) (*chatMessage, error) {
	m := &chatMessage{Role: item.textOf("role"), ToolCallID: item.textOf("tool_call_id")}
	if m.Role == "" {
		return nil, errors.New("the message has no role")
	}
	if text, ok := item.kid("content").str(); ok {
		m.Content = text
	}
	var pieces []any
	for _, p := range item.kid("contents").items() {
		content := p.kid("message_content")
		if url, ok := content.kid("image").kid("image").kid("url").str(); ok {
			pieces = append(pieces, map[string]any{"type": "image_url", "image_url": map[string]string{"url": url}})
			continue
		}
		pieces = append(pieces, map[string]string{"type": "text", "text": content.textOf("text")})
	}
	if pieces != nil {
		m.Content = pieces
	}
	for _, item := range item.kid("tool_calls").items() {
		call := item.kid("tool_call")
		function := call.kid("function")
		m.ToolCalls = append(m.ToolCalls, toolCall{call.textOf("id"), "function", toolFunction{function.textOf("name"), function.textOf("arguments")}})
	}
	return m, nil
}

// weave reads the request and the answer that Weave keeps whole, spelt out
// attribute by attribute; nil when there is no request. Nothing is spelt "null", and
// empty objects and lists are lost.
func weave(s *agl.Span) (*Conversation, error) {
	messages := group(s, semconv.OperationInput+".messages")
	if messages == nil {
		return nil, nil // it may have been recorded in another way
	}
	if !messages.isList() {
		return nil, fmt.Errorf("%s.messages is no list", semconv.OperationInput)
	}
	all := messages.items()
	if answer := group(s, semconv.OperationOutput+".choices.0.message"); answer != nil {
		all = append(slices.Clone(all), answer)
	}
	c := &Conversation{}
	for i, item := range all {
		m, err := weaveMessage(item)
		if err == nil {
			err = c.add(m)
		}
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
	}
	for _, tool := range group(s, semconv.OperationInput+".tools").items() {
		c.Tools = append(c.Tools, tool.orNull())
	}
	return c, nil
}

func weaveMessage(item *grouped) (*chatMessage, error) {
	m := &chatMessage{Role: item.textOf("role"), ToolCallID: item.textOf("tool_call_id")}
	if m.Role == "" {
		return nil, errors.New("it has no role")
	}
	for _, key := range [...]string{"reasoning_content", "reasoning"} {
		if text := item.textOf(key); m.Reasoning == "" && text != "null" {
			m.Reasoning = text
		}
	}
	for _, call := range item.kid("tool_calls").items() {
		function := call.kid("function")
		m.ToolCalls = append(m.ToolCalls, toolCall{call.textOf("id"), "function", toolFunction{function.textOf("name"), function.textOf("arguments")}})
	}
	content := item.kid("content")
	if text, ok := content.str(); ok && (text != "null" || m.ToolCalls == nil) {
		m.Content = text
	} else if content.isList() {
		m.Content = json.RawMessage(content.orNull())
	}
	return m, nil
}
