package openai

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"agentlightning/internal/jsonx"
)

// Accumulator gathers an answer from the chunks of a stream.
type Accumulator struct {
	answer  Answer // all but the choices
	choices []choice
	chunks  int
}

// choice is a choice while its parts come in. Texts are gathered as bytes, so
// that a long stream costs no more than its length.
type choice struct {
	Choice
	content, refusal, reasoning []byte
	calls                       []toolCall
	// spelled is true while every token was spelled token_id:N, which is where
	// TokenIDs come from then.
	spelled bool
	// unreadable is true once a log-probability of a completion was no number.
	unreadable bool
}

type toolCall struct {
	ToolCall
	name, arguments []byte
}

// Chunk is what a proxy has to know about a chunk to pass it on.
type Chunk struct {
	// UsageOnly marks the chunk that carries the usage and nothing else.
	UsageOnly bool
	// Last marks the event that ends the stream.
	Last bool
	// Error is set when the backend reports a failure in place of a chunk.
	Error string
}

// Answer returns what has been gathered so far.
func (a *Accumulator) Answer() *Answer {
	out := a.answer
	out.Choices = make([]Choice, len(a.choices))
	for i := range a.choices {
		out.Choices[i] = a.choices[i].finish()
	}
	return &out
}

// Finished reports whether every choice has come to an end.
func (a *Accumulator) Finished() bool {
	for i := range a.choices {
		if a.choices[i].FinishReason == "" {
			return false
		}
	}
	return len(a.choices) > 0
}

func (c *choice) finish() Choice {
	out := c.Choice
	if c.content != nil {
		text := string(c.content)
		out.Content = &text
	}
	out.Refusal, out.Reasoning = string(c.refusal), string(c.reasoning)
	for i := range c.calls {
		call := c.calls[i].ToolCall
		call.Name, call.Arguments = string(c.calls[i].name), string(c.calls[i].arguments)
		out.ToolCalls = append(out.ToolCalls, call)
	}
	return out
}

// Chunks returns how many chunks were added.
func (a *Accumulator) Chunks() int { return a.chunks }

// Add takes in the data of one event. It keeps no reference to data.
func (a *Accumulator) Add(data []byte) (Chunk, error) {
	var c Chunk
	if string(data) == Done {
		c.Last = true
		return c, nil
	}
	a.chunks++
	top, err := parseTop(data)
	if err != nil {
		return c, fmt.Errorf("the chunk is not a JSON object: %w", err)
	}
	if present(top.failure) {
		c.Error = ErrorMessage(data)
		return c, nil
	}
	c.UsageOnly = present(top.usage) && (!present(top.choices) || empty(top.choices))
	return c, a.take(top, "delta")
}

// AddWhole takes in an answer that is no stream.
func (a *Accumulator) AddWhole(body []byte) error {
	top, err := parseTop(body)
	if err == nil {
		err = a.take(top, "message")
	}
	if err == nil && len(a.choices) == 0 {
		err = errors.New("it has no choices")
	}
	if err != nil {
		return fmt.Errorf("the answer is not a chat completion: %w", err)
	}
	return nil
}

// top are the members of a completion or a chunk that count. Like all members
// here they are looked at when all have been seen, so that of two with one
// name the last one holds.
type top struct {
	id, model, created, prompt, usage, choices, failure []byte
}

func parseTop(data []byte) (t top, err error) {
	if err := jsonx.Check(data); err != nil {
		return t, err
	}
	w, ok := object(data)
	if !ok {
		return t, fmt.Errorf("it is %s", clip(data))
	}
	for key, value, ok := w.member(); ok; key, value, ok = w.member() {
		switch string(key) {
		case "id":
			t.id = value
		case "model":
			t.model = value
		case "created":
			t.created = value
		case "prompt_token_ids":
			t.prompt = value
		case "usage":
			t.usage = value
		case "choices":
			t.choices = value
		case "error":
			t.failure = value
		}
	}
	return t, nil
}

// take takes in a completion or a chunk; message is the member of a choice
// that holds what was said.
func (a *Accumulator) take(t top, message string) error {
	setText(&a.answer.ID, t.id)
	setText(&a.answer.Model, t.model)
	if n, ok := parseInt(t.created); ok {
		a.answer.Created = n
	}
	if a.answer.PromptTokenIDs == nil {
		a.answer.PromptTokenIDs, _ = parseInts(t.prompt)
	}
	if usage, ok := object(t.usage); ok {
		a.answer.Usage = parseUsage(usage)
	}
	if !present(t.choices) {
		return nil
	}
	w, ok := list(t.choices)
	if !ok {
		return fmt.Errorf("choices is %s", clip(t.choices))
	}
	at := int64(0)
	for raw, ok := w.element(); ok; raw, ok = w.element() {
		if err := a.takeChoice(raw, at, message); err != nil {
			return fmt.Errorf("choice %d: %w", at, err)
		}
		at++
	}
	return nil
}

func parseUsage(w walker) *Usage {
	var u Usage
	for key, value, ok := w.member(); ok; key, value, ok = w.member() {
		switch string(key) {
		case "prompt_tokens":
			u.Prompt, _ = parseInt(value)
		case "completion_tokens":
			u.Completion, _ = parseInt(value)
		case "total_tokens":
			u.Total, _ = parseInt(value)
		case "prompt_tokens_details":
			if details, ok := object(value); ok {
				u.Cached, _ = parseInt(details.get("cached_tokens"))
			}
		case "completion_tokens_details":
			if details, ok := object(value); ok {
				u.Reasoning, _ = parseInt(details.get("reasoning_tokens"))
			}
		}
	}
	return &u
}

// takeChoice takes in an element of choices; at is its place, which is its
// index where it does not say another.
func (a *Accumulator) takeChoice(raw []byte, at int64, message string) error {
	w, ok := object(raw)
	if !ok {
		return fmt.Errorf("it is %s", clip(raw))
	}
	index := at
	var said, text, finish, stop, prompt, engine, provider, logprobs []byte
	for key, value, ok := w.member(); ok; key, value, ok = w.member() {
		switch string(key) {
		case "index":
			if n, ok := parseInt(value); ok {
				index = n
			}
		case message:
			said = value
		case "text": // a completion
			text = value
		case "finish_reason":
			finish = value
		case "stop_reason":
			stop = value
		case "prompt_token_ids": // a completion
			prompt = value
		case "token_ids":
			engine = value
		case "provider_specific_fields":
			provider = value
		case "logprobs":
			logprobs = value
		}
	}
	if index < 0 || index > maxChoice {
		return fmt.Errorf("index %d is out of range", index)
	}
	c := a.choice(int(index))
	if err := c.addMessage(said); err != nil {
		return fmt.Errorf("%s: %w", message, err)
	}
	if text != nil {
		c.content = addText(c.content, text)
	}
	if a.answer.PromptTokenIDs == nil && index == 0 {
		a.answer.PromptTokenIDs, _ = parseInts(prompt)
	}
	setText(&c.FinishReason, finish)
	setText(&c.StopSequence, stop)
	c.addTokenIDs(engine, provider)
	return c.addLogprobs(logprobs)
}

// Indexes above these are taken for nonsense: memory is spent for each below.
const (
	maxChoice   = 1 << 16
	maxToolCall = 1 << 12
)

// choice returns the choice with an index, made where necessary, in order.
func (a *Accumulator) choice(index int) *choice {
	at := 0
	for at < len(a.choices) && a.choices[at].Index < index {
		at++
	}
	if at == len(a.choices) || a.choices[at].Index != index {
		a.choices = slices.Insert(a.choices, at, choice{Choice: Choice{Index: index}})
	}
	return &a.choices[at]
}

func (c *choice) addMessage(raw []byte) error {
	if !present(raw) {
		return nil
	}
	w, ok := object(raw)
	if !ok {
		return fmt.Errorf("it is %s", clip(raw))
	}
	for key, value, ok := w.member(); ok; key, value, ok = w.member() {
		switch string(key) {
		case "role":
			setText(&c.Role, value)
		case "content":
			switch jsonx.KindOf(value) {
			case jsonx.String:
				c.content = addText(c.content, value)
			case jsonx.Array: // parts
				c.content = append(c.content, value...)
			}
		case "refusal":
			c.refusal = addText(c.refusal, value)
		case "reasoning_content", "reasoning":
			c.reasoning = addText(c.reasoning, value)
		case "tool_calls":
			if err := c.addToolCalls(value); err != nil {
				return fmt.Errorf("tool_calls: %w", err)
			}
		}
	}
	return nil
}

func (c *choice) addToolCalls(raw []byte) error {
	if !present(raw) {
		return nil
	}
	w, ok := list(raw)
	if !ok {
		return fmt.Errorf("it is %s", clip(raw))
	}
	at := int64(0)
	for raw, ok := w.element(); ok; raw, ok = w.element() {
		if err := c.addToolCall(raw, at); err != nil {
			return err
		}
		at++
	}
	return nil
}

func (c *choice) addToolCall(raw []byte, at int64) error {
	w, ok := object(raw)
	if !ok {
		return fmt.Errorf("a call is %s", clip(raw))
	}
	index := at
	var id, kind, function []byte
	for key, value, ok := w.member(); ok; key, value, ok = w.member() {
		switch string(key) {
		case "index":
			if n, ok := parseInt(value); ok {
				index = n
			}
		case "id":
			id = value
		case "type":
			kind = value
		case "function":
			function = value
		}
	}
	if index < 0 || index > maxToolCall {
		return fmt.Errorf("index %d is out of range", index)
	}
	for int64(len(c.calls)) <= index {
		c.calls = append(c.calls, toolCall{ToolCall: ToolCall{Type: "function"}})
	}
	call := &c.calls[index]
	setText(&call.ID, id)
	setText(&call.Type, kind)
	if w, ok = object(function); !ok {
		return nil
	}
	for key, value, ok := w.member(); ok; key, value, ok = w.member() {
		switch string(key) {
		case "name":
			call.name = addText(call.name, value)
		case "arguments":
			call.arguments = addText(call.arguments, value)
		}
	}
	return nil
}

// addTokenIDs takes in the ids that the engine sampled, from where vLLM has
// them or from where LiteLLM puts them.
func (c *choice) addTokenIDs(engine, provider []byte) {
	ids, ok := parseInts(engine)
	if w, is := object(provider); is && !ok {
		for key, value, more := w.member(); more; key, value, more = w.member() {
			if string(key) == "token_ids" {
				ids, ok = parseInts(value)
			}
		}
	}
	if !ok {
		return
	}
	if c.spelled {
		c.TokenIDs, c.spelled = nil, false
	}
	if c.TokenIDs == nil {
		c.TokenIDs = ids
	} else {
		c.TokenIDs = append(c.TokenIDs, ids...)
	}
}

// spelledToken is how engines write tokens when they were told to return them
// as ids in place of text.
const spelledToken = "token_id:"

func (c *choice) addLogprobs(raw []byte) error {
	if !present(raw) {
		return nil
	}
	w, ok := object(raw)
	if !ok {
		return fmt.Errorf("logprobs is %s", clip(raw))
	}
	var content, refusal, tokens, numbers []byte
	for key, value, ok := w.member(); ok; key, value, ok = w.member() {
		switch string(key) {
		case "content":
			content = value
		case "refusal":
			refusal = value
		case "tokens":
			tokens = value
		case "token_logprobs":
			numbers = value
		}
	}
	if w, ok = list(numbers); ok {
		c.addCompletionLogprobs(w, tokens)
		return nil
	}
	if jsonx.KindOf(refusal) == jsonx.Array {
		c.LogprobsRefusal = joinLists(c.LogprobsRefusal, refusal)
	}
	if w, ok = list(content); !ok {
		return nil
	}
	first := c.LogprobsContent == nil
	c.LogprobsContent = joinLists(c.LogprobsContent, content)
	if !first && c.Logprobs == nil {
		return nil // one of those before could not be read
	}
	if c.TokenIDs == nil && first {
		c.spelled = true
	}
	if c.Logprobs == nil {
		c.Logprobs = make([]float64, 0, len(c.TokenIDs))
	}
	for raw, ok := w.element(); ok; raw, ok = w.element() {
		token, logprob, ok := parseLogprob(raw)
		if !ok {
			c.Logprobs = nil
			break
		}
		c.Logprobs = append(c.Logprobs, logprob)
		if c.spelled {
			c.addSpelled(token)
		}
	}
	return nil
}

// addCompletionLogprobs takes in log-probabilities as completions have them: a
// list of numbers beside one of tokens.
func (c *choice) addCompletionLogprobs(numbers walker, tokens []byte) {
	if c.Logprobs == nil && c.unreadable {
		return // one of those before could not be read
	}
	first := c.Logprobs == nil
	if first {
		c.Logprobs = make([]float64, 0, len(c.TokenIDs))
		c.spelled = c.TokenIDs == nil
	}
	names, _ := list(tokens)
	for raw, ok := numbers.element(); ok; raw, ok = numbers.element() {
		logprob, ok := parseFloat(raw)
		if !ok {
			c.Logprobs, c.unreadable = nil, true
			break
		}
		c.Logprobs = append(c.Logprobs, logprob)
		if token, _ := names.element(); c.spelled {
			c.addSpelled(token)
		}
	}
}

func (c *choice) addSpelled(token []byte) {
	text, _ := bytes.CutPrefix(token, []byte(`"`+spelledToken))
	text, quoted := bytes.CutSuffix(text, []byte{'"'})
	id, ok := parseInt(text)
	if !quoted || !ok {
		c.TokenIDs, c.spelled = nil, false
		return
	}
	c.TokenIDs = append(c.TokenIDs, id)
}
