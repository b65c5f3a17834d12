package anthropic

import (
	"errors"
	"fmt"

	"agentlightning/internal/jsonx"
	"agentlightning/llm/openai"
)

// ChatTranslator turns a message into the answer of a chat completion. It
// serves one call, either whole or as a stream.
type ChatTranslator struct {
	id, model string
	created   int64
	usage     bool // the caller wants a chunk with the usage

	// Of the stream.
	out    jsonx.Builder
	counts counts
	tools  []toolBlock // by index of the content block
	calls  int
}

// toolBlock is a content block; one that is no tool call has no place among
// those.
type toolBlock struct {
	call   bool
	at     int    // among the calls
	input  []byte // as the block began
	spoken bool   // some of the arguments were handed on
}

// NewChatTranslator returns a translator of the answer to a chat completion
// request. Id and created, in Unix seconds, are those of the answer where the
// message tells none.
func NewChatTranslator(r *openai.Request, id string, created int64) *ChatTranslator {
	return &ChatTranslator{id: id, model: r.Model, created: created, usage: r.IncludeUsage}
}

// AppendAnswer appends the chat completion that a whole answer is.
func (t *ChatTranslator) AppendAnswer(dst []byte, a *openai.Answer) ([]byte, error) {
	if len(a.Choices) == 0 {
		return dst, errors.New("the answer has no choices")
	}
	c := &a.Choices[0]
	t.named(a.ID, a.Model)
	b := jsonx.Builder{Bytes: dst}
	t.head(&b, "chat.completion")
	b.Key("choices").Open('[').Open('{').Key("index").Int(0)
	b.Key("message").Open('{').Key("role").Text("assistant").Key("content")
	if c.Content != nil {
		b.Text(*c.Content)
	} else {
		b.Word("null")
	}
	b.Key("refusal").Word("null")
	if c.Reasoning != "" {
		b.Key("reasoning_content").Text(c.Reasoning)
	}
	if len(c.ToolCalls) > 0 {
		b.Key("tool_calls").Open('[')
		for i := range c.ToolCalls {
			call := &c.ToolCalls[i]
			b.Open('{').Key("id").Text(call.ID).Key("type").Text("function")
			b.Key("function").Open('{').Key("name").Text(call.Name).Key("arguments").Text(call.Arguments).Close('}').Close('}')
		}
		b.Close(']')
	}
	b.Close('}').Key("logprobs").Word("null").Key("finish_reason").Text(c.FinishReason)
	b.Close('}').Close(']')
	if a.Usage != nil {
		b.Key("usage")
		writeChatUsage(&b, a.Usage)
	}
	return b.Close('}').Bytes, nil
}

func (t *ChatTranslator) named(id, model string) {
	if id != "" {
		t.id = id
	}
	if model != "" {
		t.model = model
	}
}

func (t *ChatTranslator) head(b *jsonx.Builder, object string) {
	b.Open('{').Key("id").Text(t.id).Key("object").Text(object).Key("created").Int(t.created).Key("model").Text(t.model)
}

func writeChatUsage(b *jsonx.Builder, u *openai.Usage) {
	b.Open('{').Key("prompt_tokens").Int(u.Prompt).Key("completion_tokens").Int(u.Completion).Key("total_tokens").Int(u.Total)
	if u.Cached > 0 {
		b.Key("prompt_tokens_details").Open('{').Key("cached_tokens").Int(u.Cached).Close('}')
	}
	b.Close('}')
}

// AppendChunk appends the event of a chat completion's stream that tells of an
// event of a message's; nothing when there is nothing to tell.
func (t *ChatTranslator) AppendChunk(dst, data []byte) ([]byte, error) {
	chunk, err := t.Chunk(data)
	return appendData(dst, chunk), err
}

// AppendEnd appends the events that end the stream.
func (t *ChatTranslator) AppendEnd(dst []byte) []byte {
	if t.usage {
		dst = appendData(dst, t.UsageChunk())
	}
	return append(dst, "data: [DONE]\n\n"...)
}

// AppendError appends the event that ends a stream where it broke.
func (t *ChatTranslator) AppendError(dst []byte, _ int, e *openai.Error) []byte {
	return e.AppendEvent(dst)
}

func appendData(dst, chunk []byte) []byte {
	if chunk == nil {
		return dst
	}
	return append(append(append(dst, "data: "...), chunk...), "\n\n"...)
}

// Chunk returns the chunk of a chat completion that tells of an event of a
// message, nil when there is nothing to tell. It holds until the next call.
func (t *ChatTranslator) Chunk(data []byte) ([]byte, error) {
	members, err := jsonx.Members(data)
	if err != nil {
		return nil, fmt.Errorf("the event is not a JSON object: %w", err)
	}
	switch text(members, "type") {
	case "message":
		return t.whole(data)
	case "message_start":
		message, _ := jsonx.Members(jsonx.Get(members, "message"))
		t.named(text(message, "id"), text(message, "model"))
		t.counts.add(jsonx.Get(message, "usage"))
		t.delta().Key("role").Text("assistant").Key("content").Text("")
		return t.end(""), nil
	case "content_block_start":
		return t.beginBlock(members)
	case "content_block_delta":
		return t.addToBlock(members)
	case "content_block_stop":
		return t.endBlock(members)
	case "message_delta":
		t.counts.add(jsonx.Get(members, "usage"))
		delta, _ := jsonx.Members(jsonx.Get(members, "delta"))
		if reason := text(delta, "stop_reason"); reason != "" {
			t.delta()
			return t.end(finishReason(reason)), nil
		}
	}
	return nil, nil
}

// UsageChunk returns the chunk that tells of the usage. It holds until the next
// call.
func (t *ChatTranslator) UsageChunk() []byte {
	t.out.Bytes = t.out.Bytes[:0]
	t.head(&t.out, "chat.completion.chunk")
	t.out.Key("choices").Open('[').Close(']').Key("usage")
	writeChatUsage(&t.out, t.counts.usage())
	return t.out.Close('}').Bytes
}

// delta begins a chunk up to what it adds; end ends it.
func (t *ChatTranslator) delta() *jsonx.Builder {
	t.out.Bytes = t.out.Bytes[:0]
	t.head(&t.out, "chat.completion.chunk")
	return t.out.Key("choices").Open('[').Open('{').Key("index").Int(0).Key("delta").Open('{')
}

func (t *ChatTranslator) end(finish string) []byte {
	t.out.Close('}').Key("finish_reason")
	if finish == "" {
		t.out.Word("null")
	} else {
		t.out.Text(finish)
	}
	return t.out.Close('}').Close(']').Close('}').Bytes
}

// whole puts a message that came in one piece in one chunk.
func (t *ChatTranslator) whole(body []byte) ([]byte, error) {
	var a Accumulator
	if err := a.AddWhole(body); err != nil {
		return nil, err
	}
	answer := a.Answer()
	c := &answer.Choices[0]
	t.named(answer.ID, answer.Model)
	t.counts = a.usage
	b := t.delta().Key("role").Text("assistant")
	if c.Content != nil {
		b.Key("content").Text(*c.Content)
	}
	if c.Reasoning != "" {
		b.Key("reasoning_content").Text(c.Reasoning)
	}
	if len(c.ToolCalls) > 0 {
		b.Key("tool_calls").Open('[')
		for i := range c.ToolCalls {
			writeCall(b, i, c.ToolCalls[i].ID, c.ToolCalls[i].Name, c.ToolCalls[i].Arguments)
		}
		b.Close(']')
	}
	return t.end(c.FinishReason), nil
}

// writeCall writes a tool call as it begins.
func writeCall(b *jsonx.Builder, at int, id, name, arguments string) {
	b.Open('{').Key("index").Int(int64(at)).Key("id").Text(id).Key("type").Text("function")
	b.Key("function").Open('{').Key("name").Text(name).Key("arguments").Text(arguments).Close('}').Close('}')
}

func (t *ChatTranslator) beginBlock(members []jsonx.Member) ([]byte, error) {
	block, err := jsonx.Members(jsonx.Get(members, "content_block"))
	if err != nil {
		return nil, fmt.Errorf("content_block: %w", err)
	}
	t.tools = append(t.tools, toolBlock{})
	switch text(block, "type") {
	case "text":
		return t.piece("content", jsonx.Get(block, "text")), nil
	case "thinking":
		return t.piece("reasoning_content", jsonx.Get(block, "thinking")), nil
	case "tool_use":
		b := &t.tools[len(t.tools)-1]
		*b = toolBlock{call: true, at: t.calls, input: append([]byte(nil), jsonx.Get(block, "input")...)}
		t.calls++
		out := t.delta().Key("tool_calls").Open('[')
		writeCall(out, b.at, text(block, "id"), text(block, "name"), "")
		out.Close(']')
		return t.end(""), nil
	}
	return nil, nil
}

// piece returns a chunk with more of a text, nil when there is none.
func (t *ChatTranslator) piece(key string, raw []byte) []byte {
	if jsonx.KindOf(raw) != jsonx.String || string(raw) == `""` {
		return nil
	}
	t.delta().Key(key).Raw(raw)
	return t.end("")
}

func (t *ChatTranslator) addToBlock(members []jsonx.Member) ([]byte, error) {
	delta, err := jsonx.Members(jsonx.Get(members, "delta"))
	if err != nil {
		return nil, fmt.Errorf("delta: %w", err)
	}
	switch text(delta, "type") {
	case "text_delta":
		return t.piece("content", jsonx.Get(delta, "text")), nil
	case "thinking_delta":
		return t.piece("reasoning_content", jsonx.Get(delta, "thinking")), nil
	case "input_json_delta":
		b, err := t.block(members)
		if err != nil {
			return nil, err
		}
		return t.arguments(b, jsonx.Get(delta, "partial_json")), nil
	}
	return nil, nil
}

// block returns the tool call that an event is of.
func (t *ChatTranslator) block(members []jsonx.Member) (*toolBlock, error) {
	raw := jsonx.Get(members, "index")
	at, ok := wholeNumber(raw)
	if !ok || at < 0 || at >= int64(len(t.tools)) {
		return nil, fmt.Errorf("index %s is not that of a content block", raw)
	}
	return &t.tools[at], nil
}

// arguments returns a chunk with more of the arguments of a call.
func (t *ChatTranslator) arguments(b *toolBlock, raw []byte) []byte {
	if !b.call || jsonx.KindOf(raw) != jsonx.String || string(raw) == `""` {
		return nil
	}
	b.spoken = true
	t.delta().Key("tool_calls").Open('[').Open('{').Key("index").Int(int64(b.at)).
		Key("function").Open('{').Key("arguments").Raw(raw).Close('}').Close('}').Close(']')
	return t.end("")
}

// endBlock tells the arguments of a call that came with its beginning, or not at
// all: callers read them as JSON, which nothing is not.
func (t *ChatTranslator) endBlock(members []jsonx.Member) ([]byte, error) {
	b, err := t.block(members)
	if err != nil {
		return nil, err
	}
	if !b.call || b.spoken {
		return nil, nil
	}
	input := b.input
	if len(input) == 0 {
		input = []byte("{}")
	}
	return t.arguments(b, openai.Text(string(input))), nil
}
