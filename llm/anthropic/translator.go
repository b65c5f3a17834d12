package anthropic

import (
	"errors"
	"fmt"

	"agentlightning/internal/jsonx"
	"agentlightning/llm/openai"
)

// Translator turns the answer of a chat completion into a message. It serves
// one call, either whole or as a stream.
type Translator struct {
	id, model string // where the answer has none
	thinking  bool
	stops     [][]byte // the stop sequences of the request, as JSON

	// Of the stream.
	out     jsonx.Builder
	delta   openai.Delta
	blocks  *openai.Blocks
	begun   bool
	index   int // of the open block
	open    openai.BlockKind
	called  bool // a tool
	finish  string
	stopped []byte // by which stop sequence, as JSON
	prompt  int64  // ids of the prompt that were seen
	usage   *openai.Usage
}

// NewTranslator returns a translator of the answer to a request. The id is that
// of the message where the backend gives none.
func NewTranslator(r *openai.Request, id string) *Translator {
	t := &Translator{id: id, model: r.Model, thinking: WantsThinking(r)}
	t.stops, _ = jsonx.Elements(r.Raw("stop_sequences"))
	t.blocks = openai.NewBlocks((*blockEvents)(t))
	return t
}

// AppendAnswer appends the message that a whole answer is.
func (t *Translator) AppendAnswer(dst []byte, a *openai.Answer) ([]byte, error) {
	if len(a.Choices) == 0 {
		return dst, errors.New("the answer has no choices")
	}
	c := &a.Choices[0]
	t.takeNames(a.ID, a.Model)
	t.usage, t.finish, t.called = a.Usage, c.FinishReason, len(c.ToolCalls) > 0
	if c.StopSequence != "" {
		t.stopped = openai.Text(c.StopSequence)
	}
	b := jsonx.Builder{Bytes: dst}
	t.head(&b)
	b.Key("content").Open('[')
	if c.Reasoning != "" && t.thinking {
		b.Open('{').Key("type").Text("thinking").Key("thinking").Text(c.Reasoning).Key("signature").Text(unsigned).Close('}')
	}
	if text := c.Refusal; c.Content != nil || text != "" {
		if c.Content != nil {
			text = *c.Content + text
		}
		b.Open('{').Key("type").Text("text").Key("text").Text(text).Close('}')
	}
	for i, call := range c.ToolCalls {
		input, err := toolInput(call.Arguments)
		if err != nil {
			return dst, fmt.Errorf("the arguments of tool call %d, of %q: %w", i, call.Name, err)
		}
		b.Open('{').Key("type").Text("tool_use").Key("id").Text(openai.CallID(call.ID, t.id, i))
		b.Key("name").Text(call.Name).Key("input").Raw(input).Close('}')
	}
	b.Close(']')
	t.stop(&b)
	b.Key("usage")
	t.writeUsage(&b)
	return b.Close('}').Bytes, nil
}

// toolInput returns the arguments of a tool call, which have to be an object.
func toolInput(arguments string) ([]byte, error) {
	if arguments == "" {
		return []byte("{}"), nil
	}
	input, err := jsonx.Normalize([]byte(arguments))
	if err == nil && jsonx.KindOf(input) != jsonx.Object {
		err = errors.New("they are no object")
	}
	if err != nil {
		return nil, fmt.Errorf("%w, which a message cannot hold; the model wrote %.200q", err, arguments)
	}
	return input, nil
}

func (t *Translator) takeNames(id, model string) {
	if id != "" {
		t.id = id
	}
	if model != "" {
		t.model = model
	}
}

// head writes the members that a message begins with.
func (t *Translator) head(b *jsonx.Builder) {
	b.Open('{').Key("id").Text(t.id).Key("type").Text("message").Key("role").Text("assistant").Key("model").Text(t.model)
}

// stop writes why the message ended.
func (t *Translator) stop(b *jsonx.Builder) {
	reason, sequence := "end_turn", []byte(nil)
	switch t.finish {
	case "length":
		reason = "max_tokens"
	case "tool_calls", "function_call":
		reason = "tool_use"
	default:
		for _, s := range t.stops {
			if string(s) == string(t.stopped) {
				reason, sequence = "stop_sequence", s
			}
		}
		if t.called { // some engines call it an ordinary end
			reason, sequence = "tool_use", nil
		}
	}
	b.Key("stop_reason").Text(reason).Key("stop_sequence").Raw(sequence)
}

// writeUsage writes the counts. Unlike a chat completion, a message does not
// count the tokens that were at hand among those of the input.
func (t *Translator) writeUsage(b *jsonx.Builder) {
	u := openai.Usage{Prompt: t.prompt}
	if t.usage != nil {
		u = *t.usage
	}
	b.Open('{').Key("input_tokens").Int(max(u.Prompt-u.Cached, 0))
	if u.Cached > 0 {
		b.Key("cache_read_input_tokens").Int(u.Cached)
	}
	b.Key("output_tokens").Int(u.Completion).Close('}')
}

// unsigned stands where a message has the signature of its thoughts, which
// clients want before they send them back. There is nobody to check it.
const unsigned = "unsigned"

// event begins an event of the stream; end ends it.
func (t *Translator) event(kind string) *jsonx.Builder {
	t.out.Bytes = append(append(append(t.out.Bytes, "event: "...), kind...), "\ndata: "...)
	return t.out.Open('{').Key("type").Text(kind)
}

func (t *Translator) end() { t.out.Bytes = append(t.out.Bytes, "}\n\n"...) }

// AppendChunk appends the events that tell of a chunk.
func (t *Translator) AppendChunk(dst, data []byte) ([]byte, error) {
	t.out.Bytes = dst
	if err := t.delta.Parse(data); err != nil {
		return dst, err
	}
	d := &t.delta
	if d.Usage != nil {
		t.usage = d.Usage
	}
	if !t.begun {
		t.takeNames(d.ID, d.Model)
		t.prompt = max(d.PromptTokens, 0)
		t.begin()
	}
	for i := range d.Choices {
		c := &d.Choices[i]
		if c.Index != 0 {
			continue // only a chat completion has several
		}
		if !t.thinking {
			c.Reasoning = nil
		}
		if err := t.blocks.Add(c); err != nil {
			return t.out.Bytes, err
		}
		if c.FinishReason != "" {
			t.finish = c.FinishReason
			t.stopped = append([]byte(nil), c.StopReason...)
			t.finishBlocks()
		}
	}
	return t.out.Bytes, nil
}

func (t *Translator) begin() {
	t.begun = true
	b := t.event("message_start").Key("message")
	t.head(b)
	b.Key("content").Open('[').Close(']').Key("stop_reason").Word("null").Key("stop_sequence").Word("null").Key("usage")
	t.writeUsage(b)
	b.Close('}')
	t.end()
	t.event("ping")
	t.end()
}

// finishBlocks ends the content. A message without any has an empty text.
func (t *Translator) finishBlocks() {
	t.blocks.Finish()
	if !t.blocks.Any() && t.index == 0 {
		w := (*blockEvents)(t)
		w.BeginBlock(openai.Block{Kind: openai.TextBlock})
		w.EndBlock()
	}
}

// AppendEnd appends the events that end the stream.
func (t *Translator) AppendEnd(dst []byte) []byte {
	t.out.Bytes = dst
	if !t.begun {
		t.begin()
	}
	t.finishBlocks()
	b := t.event("message_delta").Key("delta").Open('{')
	t.stop(b)
	b.Close('}').Key("usage")
	t.writeUsage(b)
	t.end()
	t.event("message_stop")
	t.end()
	return t.out.Bytes
}

// AppendError appends the event that ends a stream where it broke.
func (t *Translator) AppendError(dst []byte, status int, e *openai.Error) []byte {
	return AppendErrorEvent(dst, status, e)
}

// blockEvents is a translator as it is told of blocks.
type blockEvents Translator

// BeginBlock implements [openai.BlockWriter].
func (w *blockEvents) BeginBlock(block openai.Block) {
	t := (*Translator)(w)
	t.open = block.Kind
	b := t.event("content_block_start").Key("index").Int(int64(t.index)).Key("content_block").Open('{').Key("type")
	switch block.Kind {
	case openai.ToolCallBlock:
		b.Text("tool_use").Key("id").Text(openai.CallID(block.ID, t.id, t.index)).Key("name").Text(block.Name)
		b.Key("input").Open('{').Close('}')
		t.called = true
	case openai.ReasoningBlock:
		b.Text("thinking").Key("thinking").Text("").Key("signature").Text("")
	default:
		b.Text("text").Key("text").Text("")
	}
	b.Close('}')
	t.end()
}

// AddToBlock implements [openai.BlockWriter].
func (w *blockEvents) AddToBlock(text []byte) {
	t := (*Translator)(w)
	kind, member := "text_delta", "text"
	switch t.open {
	case openai.ToolCallBlock:
		kind, member = "input_json_delta", "partial_json"
	case openai.ReasoningBlock:
		kind, member = "thinking_delta", "thinking"
	case openai.TextBlock, openai.RefusalBlock:
	}
	t.blockDelta(kind, member, text)
}

func (t *Translator) blockDelta(kind, member string, text []byte) {
	b := t.event("content_block_delta").Key("index").Int(int64(t.index))
	b.Key("delta").Open('{').Key("type").Text(kind).Key(member).Raw(text).Close('}')
	t.end()
}

// EndBlock implements [openai.BlockWriter].
func (w *blockEvents) EndBlock() {
	t := (*Translator)(w)
	if t.open == openai.ReasoningBlock {
		t.blockDelta("signature_delta", "signature", []byte(`"`+unsigned+`"`))
	}
	t.event("content_block_stop").Key("index").Int(int64(t.index))
	t.end()
	t.index++
	t.open = 0
}
