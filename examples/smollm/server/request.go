package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"agentlightning/examples/smollm/engine"
)

// request are the members that change an answer.
type request struct {
	Model               string          `json:"model"`
	Messages            []message       `json:"messages"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Temperature         *float64        `json:"temperature"`
	TopP                *float64        `json:"top_p"`
	Seed                *int64          `json:"seed"`
	Stop                json.RawMessage `json:"stop"`
	Stream              bool            `json:"stream"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Logprobs       bool `json:"logprobs"`
	TopLogprobs    int  `json:"top_logprobs"`
	ReturnTokenIDs bool `json:"return_token_ids"`
}

type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// known are the members of a request that are read or change nothing here. Any
// other one is refused unless it has a value that asks for nothing.
var known = map[string]bool{
	"model": true, "messages": true, "max_tokens": true, "max_completion_tokens": true, "temperature": true, "top_p": true,
	"seed": true, "stop": true, "stream": true, "stream_options": true, "logprobs": true, "top_logprobs": true, "return_token_ids": true,
	"user": true, "metadata": true, "store": true, "service_tier": true, "safety_identifier": true, "prompt_cache_key": true,
}

// nothing are values of other members that ask for nothing.
var nothing = map[string]string{
	"n": "1", "presence_penalty": "0", "frequency_penalty": "0", "logit_bias": "{}", "tools": "[]", "functions": "[]",
	"tool_choice": `"none"`, "response_format": `{"type":"text"}`, "parallel_tool_calls": "true", "echo": "false",
}

// parse reads a request and puts it as the engine takes it. Its errors wrap
// engine.ErrInvalid or are about JSON.
func (s *server) parse(body []byte) (*request, engine.Request, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, engine.Request{}, fmt.Errorf("the body is no JSON object: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		var compact bytes.Buffer
		if err := json.Compact(&compact, members[name]); err != nil {
			return nil, engine.Request{}, err
		}
		if value := compact.String(); !known[name] && value != "null" && value != nothing[name] {
			return nil, engine.Request{}, fmt.Errorf("%s: this server cannot do that; leave it out", name)
		}
	}
	var r request
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, engine.Request{}, fmt.Errorf("the body is no request: %w", err)
	}
	out, err := s.understand(&r)
	return &r, out, err
}

var errModel = errors.New("model")

func (s *server) understand(r *request) (engine.Request, error) {
	if r.Model != s.name {
		return engine.Request{}, fmt.Errorf("%w: %q is not served here, %q is", errModel, r.Model, s.name)
	}
	said := make([]engine.Message, len(r.Messages))
	for i, m := range r.Messages {
		text, err := m.text()
		if err != nil {
			return engine.Request{}, fmt.Errorf("messages[%d]: content: %w", i, err)
		}
		said[i] = engine.Message{Role: m.Role, Content: text}
	}
	prompt, err := s.engine.Prompt(said)
	if err != nil {
		return engine.Request{}, err
	}
	out := engine.Request{Prompt: prompt, Temperature: 1, TopP: 1, Seed: rand.Uint64(), Top: r.TopLogprobs}
	for name, limit := range map[string]*int{"max_tokens": r.MaxTokens, "max_completion_tokens": r.MaxCompletionTokens} {
		if limit == nil {
			continue
		}
		if *limit < 1 {
			return out, fmt.Errorf("%s: %d: must be at least 1", name, *limit)
		}
		if out.MaxTokens == 0 || *limit < out.MaxTokens {
			out.MaxTokens = *limit
		}
	}
	if r.Temperature != nil {
		if out.Temperature = *r.Temperature; !(out.Temperature >= 0 && out.Temperature <= 2) {
			return out, fmt.Errorf("temperature: %v: must be from 0 to 2", out.Temperature)
		}
	}
	if r.TopP != nil {
		if out.TopP = *r.TopP; !(out.TopP > 0 && out.TopP <= 1) {
			return out, fmt.Errorf("top_p: %v: must be above 0 and at most 1", out.TopP)
		}
	}
	if r.Seed != nil {
		out.Seed = uint64(*r.Seed)
	}
	if r.TopLogprobs < 0 || r.TopLogprobs > 20 || r.TopLogprobs > 0 && !r.Logprobs {
		return out, fmt.Errorf("top_logprobs: %d: must be from 0 to 20, and logprobs true", r.TopLogprobs)
	}
	out.Stop, err = stops(r.Stop)
	return out, err
}

// stops reads one text, several or none.
func stops(raw json.RawMessage) ([]string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var one string
	var all []string
	if json.Unmarshal(raw, &one) == nil {
		all = []string{one}
	} else if err := json.Unmarshal(raw, &all); err != nil {
		return nil, errors.New("stop: must be a text or a list of texts")
	}
	if slices.Contains(all, "") {
		return nil, errors.New("stop: must not be empty")
	}
	return all, nil
}

// text is what a message says, in one piece or in parts.
func (m message) text() (string, error) {
	var text string
	if len(m.Content) > 0 && string(m.Content) != "null" && json.Unmarshal(m.Content, &text) == nil {
		return text, nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(m.Content, &parts); err != nil || parts == nil {
		return "", errors.New("must be a text or a list of parts")
	}
	var all strings.Builder
	for i, p := range parts {
		if p.Type != "text" {
			return "", fmt.Errorf("part %d is of type %q; this model reads text alone", i, p.Type)
		}
		all.WriteString(p.Text)
	}
	return all.String(), nil
}
