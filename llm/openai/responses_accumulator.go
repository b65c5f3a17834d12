package openai

import (
	"errors"
	"fmt"

	"agentlightning/internal/jsonx"
)

// ResponsesAccumulator gathers an answer from a response or from the events of
// one. It says the same as the chat completion would that the response stands
// for.
type ResponsesAccumulator struct {
	answer   Answer
	finish   string
	text     []byte
	hasText  bool
	refusal  []byte
	thoughts []byte
	calls    []toolCall
	places   map[string]int // of the calls, by the id of their item
	chunks   int
}

// Answer returns what has been gathered so far.
func (a *ResponsesAccumulator) Answer() *Answer {
	out := a.answer
	c := Choice{Role: "assistant", FinishReason: a.finish, Refusal: string(a.refusal), Reasoning: string(a.thoughts)}
	if a.hasText {
		text := string(a.text)
		c.Content = &text
	}
	for i := range a.calls {
		call := a.calls[i].ToolCall
		call.Name, call.Arguments = string(a.calls[i].name), string(a.calls[i].arguments)
		c.ToolCalls = append(c.ToolCalls, call)
	}
	out.Choices = []Choice{c}
	return &out
}

// Finished reports whether the response has come to its end.
func (a *ResponsesAccumulator) Finished() bool { return a.finish != "" }

// Chunks returns how many events were added.
func (a *ResponsesAccumulator) Chunks() int { return a.chunks }

// AddWhole takes in a response that is no stream.
func (a *ResponsesAccumulator) AddWhole(body []byte) error {
	members, err := jsonx.Members(body)
	if err == nil && jsonx.KindOf(jsonx.Get(members, "output")) != jsonx.Array {
		err = errors.New("it has no output")
	}
	if err != nil {
		return fmt.Errorf("the answer is not a response: %w", err)
	}
	if failure := jsonx.Get(members, "error"); present(failure) {
		return fmt.Errorf("the response failed: %s", ErrorMessage(body))
	}
	a.response(members)
	return nil
}

// response takes in a response that is complete, in place of what was gathered.
func (a *ResponsesAccumulator) response(members []jsonx.Member) {
	*a = ResponsesAccumulator{answer: a.answer, chunks: a.chunks}
	a.names(members)
	items, _ := jsonx.Elements(jsonx.Get(members, "output"))
	for _, raw := range items {
		a.item(raw)
	}
	details, _ := jsonx.Members(jsonx.Get(members, "incomplete_details"))
	var reason string
	setText(&reason, jsonx.Get(details, "reason"))
	switch {
	case reason == "max_output_tokens":
		a.finish = "length"
	case reason != "":
		a.finish = reason
	case len(a.calls) > 0:
		a.finish = "tool_calls"
	default:
		a.finish = "stop"
	}
	if usage, ok := object(jsonx.Get(members, "usage")); ok {
		a.answer.Usage = parseResponsesUsage(usage)
	}
}

func (a *ResponsesAccumulator) names(members []jsonx.Member) {
	setText(&a.answer.ID, jsonx.Get(members, "id"))
	setText(&a.answer.Model, jsonx.Get(members, "model"))
	a.answer.Created, _ = parseInt(jsonx.Get(members, "created_at"))
}

func parseResponsesUsage(w walker) *Usage {
	var u Usage
	for key, value, ok := w.member(); ok; key, value, ok = w.member() {
		switch string(key) {
		case "input_tokens":
			u.Prompt, _ = parseInt(value)
		case "output_tokens":
			u.Completion, _ = parseInt(value)
		case "total_tokens":
			u.Total, _ = parseInt(value)
		case "input_tokens_details":
			if details, ok := object(value); ok {
				u.Cached, _ = parseInt(details.get("cached_tokens"))
			}
		case "output_tokens_details":
			if details, ok := object(value); ok {
				u.Reasoning, _ = parseInt(details.get("reasoning_tokens"))
			}
		}
	}
	return &u
}

// item takes in an item of the output, as far as it goes.
func (a *ResponsesAccumulator) item(raw []byte) {
	members, err := jsonx.Members(raw)
	if err != nil {
		return
	}
	var kind string
	setText(&kind, jsonx.Get(members, "type"))
	switch kind {
	case "message":
		a.parts(jsonx.Get(members, "content"))
	case "reasoning":
		a.parts(jsonx.Get(members, "summary"))
		a.parts(jsonx.Get(members, "content"))
	case "function_call":
		call := toolCall{ToolCall: ToolCall{Type: "function"}}
		setText(&call.ID, jsonx.Get(members, "call_id"))
		call.name = addText(nil, jsonx.Get(members, "name"))
		call.arguments = addText(nil, jsonx.Get(members, "arguments"))
		var id string
		setText(&id, jsonx.Get(members, "id"))
		if a.places == nil {
			a.places = map[string]int{}
		}
		a.places[id] = len(a.calls)
		a.calls = append(a.calls, call)
	}
}

func (a *ResponsesAccumulator) parts(raw []byte) {
	parts, _ := jsonx.Elements(raw)
	for _, raw := range parts {
		members, err := jsonx.Members(raw)
		if err != nil {
			continue
		}
		var kind string
		setText(&kind, jsonx.Get(members, "type"))
		switch kind {
		case "output_text":
			a.hasText = true
			a.text = addText(a.text, jsonx.Get(members, "text"))
		case "refusal":
			a.refusal = addText(a.refusal, jsonx.Get(members, "refusal"))
		case "reasoning_text", "summary_text":
			a.thoughts = addText(a.thoughts, jsonx.Get(members, "text"))
		}
	}
}

// Add takes in the data of one event. It keeps no reference to data.
func (a *ResponsesAccumulator) Add(data []byte) (Chunk, error) {
	var c Chunk
	a.chunks++
	members, err := jsonx.Members(data)
	if err != nil {
		return c, fmt.Errorf("the event is not a JSON object: %w", err)
	}
	var kind string
	setText(&kind, jsonx.Get(members, "type"))
	switch kind {
	case "response.created":
		response, _ := jsonx.Members(jsonx.Get(members, "response"))
		a.names(response)
	case "response.output_item.added":
		a.item(jsonx.Get(members, "item"))
	case "response.output_text.delta":
		a.hasText = true
		a.text = addText(a.text, jsonx.Get(members, "delta"))
	case "response.refusal.delta":
		a.refusal = addText(a.refusal, jsonx.Get(members, "delta"))
	case "response.reasoning_text.delta", "response.reasoning_summary_text.delta":
		a.thoughts = addText(a.thoughts, jsonx.Get(members, "delta"))
	case "response.function_call_arguments.delta":
		var id string
		setText(&id, jsonx.Get(members, "item_id"))
		at, ok := a.places[id]
		if !ok {
			return c, fmt.Errorf("item_id %s is not that of a function call", clip(jsonx.Get(members, "item_id")))
		}
		a.calls[at].arguments = addText(a.calls[at].arguments, jsonx.Get(members, "delta"))
	case "response.completed", "response.incomplete":
		response, _ := jsonx.Members(jsonx.Get(members, "response"))
		a.response(response)
		c.Last = true
	case "response.failed":
		c.Error, c.Last = ErrorMessage(jsonx.Get(members, "response")), true
	case "error":
		c.Error = ErrorMessage(data)
	}
	return c, nil
}
