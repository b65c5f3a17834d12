package anthropic

import (
	"errors"
	"fmt"
	"strconv"

	"agentlightning/internal/jsonx"
	"agentlightning/llm/openai"
)

// Accumulator gathers an answer from a message or from the events of one. It
// says the same as the chat completion would that the message stands for.
type Accumulator struct {
	answer          openai.Answer
	choice          openai.Choice
	text, reasoning []byte
	hasText         bool
	blocks          []streamed
	usage           counts
	chunks          int
}

// streamed is a content block while its events come in.
type streamed struct {
	kind      string
	call      openai.ToolCall
	arguments []byte
}

// counts are the members of usage. Those that are not sent again stay.
type counts struct {
	seen                           bool
	input, cached, created, output int64
}

func (c *counts) add(raw []byte) {
	members, err := jsonx.Members(raw)
	if err != nil {
		return
	}
	c.seen = true
	for _, m := range members {
		n, ok := wholeNumber(m.Value)
		if !ok {
			continue
		}
		switch m.Key {
		case "input_tokens":
			c.input = n
		case "cache_read_input_tokens":
			c.cached = n
		case "cache_creation_input_tokens":
			c.created = n
		case "output_tokens":
			c.output = n
		}
	}
}

// usage counts as a chat completion does: what was at hand of the prompt is part
// of it.
func (c *counts) usage() *openai.Usage {
	prompt := c.input + c.cached + c.created
	return &openai.Usage{Prompt: prompt, Completion: c.output, Total: prompt + c.output, Cached: c.cached}
}

func wholeNumber(raw []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil
}

// Answer returns what has been gathered so far.
func (a *Accumulator) Answer() *openai.Answer {
	out, c := a.answer, a.choice
	if a.hasText {
		text := string(a.text)
		c.Content = &text
	}
	c.Reasoning = string(a.reasoning)
	for i := range a.blocks {
		if b := &a.blocks[i]; b.kind == "tool_use" {
			call := b.call
			if len(b.arguments) > 0 {
				call.Arguments = string(b.arguments)
			}
			c.ToolCalls = append(c.ToolCalls, call)
		}
	}
	out.Choices = []openai.Choice{c}
	if a.usage.seen {
		out.Usage = a.usage.usage()
	}
	return &out
}

// Finished reports whether the message has come to its end.
func (a *Accumulator) Finished() bool { return a.choice.FinishReason != "" }

// Chunks returns how many events were added.
func (a *Accumulator) Chunks() int { return a.chunks }

// AddWhole takes in a message that is no stream.
func (a *Accumulator) AddWhole(body []byte) error {
	members, err := jsonx.Members(body)
	if err == nil && jsonx.KindOf(jsonx.Get(members, "content")) != jsonx.Array {
		err = errors.New("it has no content")
	}
	if err != nil {
		return fmt.Errorf("the answer is not a message: %w", err)
	}
	a.message(members)
	return nil
}

// message takes in a message as far as it goes.
func (a *Accumulator) message(members []jsonx.Member) {
	a.answer.ID = text(members, "id")
	a.answer.Model = text(members, "model")
	a.choice.Role = text(members, "role")
	a.stop(members)
	a.usage.add(jsonx.Get(members, "usage"))
	blocks, _ := jsonx.Elements(jsonx.Get(members, "content"))
	for _, raw := range blocks {
		a.block(raw)
	}
}

func text(members []jsonx.Member, key string) string {
	s, _ := jsonx.Text(jsonx.Get(members, key))
	return s
}

// stop takes in why the message ended, in the words of a chat completion.
func (a *Accumulator) stop(members []jsonx.Member) {
	reason := text(members, "stop_reason")
	if reason == "" {
		return
	}
	a.choice.FinishReason = finishReason(reason)
	if reason == "stop_sequence" {
		a.choice.StopSequence = text(members, "stop_sequence")
	}
}

// finishReason is why a message ended in the words of a chat completion. Words
// that are new here stay as they are.
func finishReason(stopReason string) string {
	switch stopReason {
	case "end_turn", "stop_sequence", "pause_turn":
		return "stop"
	case "max_tokens", "model_context_window_exceeded":
		return "length"
	case "tool_use":
		return "tool_calls"
	case "refusal":
		return "content_filter"
	}
	return stopReason
}

func (a *Accumulator) block(raw []byte) {
	members, err := jsonx.Members(raw)
	if err != nil {
		return
	}
	b := streamed{kind: text(members, "type")}
	switch b.kind {
	case "text":
		a.addText(text(members, "text"))
	case "thinking":
		a.reasoning = append(a.reasoning, text(members, "thinking")...)
	case "tool_use":
		b.call = openai.ToolCall{ID: text(members, "id"), Type: "function", Name: text(members, "name"), Arguments: string(jsonx.Get(members, "input"))}
	}
	a.blocks = append(a.blocks, b)
}

func (a *Accumulator) addText(s string) {
	a.hasText = true
	a.text = append(a.text, s...)
}

// Add takes in the data of one event. It keeps no reference to data.
func (a *Accumulator) Add(data []byte) (openai.Chunk, error) {
	a.chunks++
	var c openai.Chunk
	members, err := jsonx.Members(data)
	if err != nil {
		return c, fmt.Errorf("the event is not a JSON object: %w", err)
	}
	switch text(members, "type") {
	case "message_start":
		message, _ := jsonx.Members(jsonx.Get(members, "message"))
		a.message(message)
	case "content_block_start":
		a.block(jsonx.Get(members, "content_block"))
	case "content_block_delta":
		return c, a.delta(members)
	case "message_delta":
		delta, _ := jsonx.Members(jsonx.Get(members, "delta"))
		a.stop(delta)
		a.usage.add(jsonx.Get(members, "usage"))
	case "message_stop":
		c.Last = true
	case "error":
		c.Error = openai.ErrorMessage(data)
	}
	return c, nil
}

func (a *Accumulator) delta(members []jsonx.Member) error {
	delta, err := jsonx.Members(jsonx.Get(members, "delta"))
	if err != nil {
		return fmt.Errorf("delta: %w", err)
	}
	switch text(delta, "type") {
	case "text_delta":
		a.addText(text(delta, "text"))
	case "thinking_delta":
		a.reasoning = append(a.reasoning, text(delta, "thinking")...)
	case "input_json_delta":
		at, ok := wholeNumber(jsonx.Get(members, "index"))
		if !ok || at < 0 || at >= int64(len(a.blocks)) {
			return fmt.Errorf("index %s is not that of a content block", jsonx.Get(members, "index"))
		}
		b := &a.blocks[at]
		b.arguments = append(b.arguments, text(delta, "partial_json")...)
	}
	return nil
}
