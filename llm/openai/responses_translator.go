package openai

import (
	"cmp"
	"errors"
	"strconv"

	"agentlightning/internal/jsonx"
)

// ResponsesTranslator turns the answer of a chat completion into a response. It
// serves one call, either whole or as a stream.
type ResponsesTranslator struct {
	req      *Request
	id       string // of the chat completion
	model    string
	created  int64
	logprobs bool // the caller reads them

	// Of the stream.
	out      jsonx.Builder
	delta    Delta
	blocks   *Blocks
	begun    bool
	sequence int64
	output   []byte // the items that are complete, with commas
	items    int
	finish   string
	usage    *Usage

	open  Block  // the item that is open
	text  []byte // the inside of the JSON string that it holds
	marks []byte // the log-probabilities of it, with commas
	fresh []byte // those of the chunk at hand
}

// NewResponsesTranslator returns a translator of the answer to a request. The
// id is used where the backend gives none; created is now, in Unix seconds.
func NewResponsesTranslator(r *Request, id string, created int64) *ResponsesTranslator {
	t := &ResponsesTranslator{req: r, id: id, model: r.Model, created: created}
	t.logprobs = (&responsesWriter{Draft: NewDraft()}).includes(r.Raw("include")) ||
		present(r.Raw("top_logprobs")) && string(r.Raw("top_logprobs")) != "0"
	t.blocks = NewBlocks((*responseEvents)(t))
	return t
}

// AppendAnswer appends the response that a whole answer is.
func (t *ResponsesTranslator) AppendAnswer(dst []byte, a *Answer) ([]byte, error) {
	if len(a.Choices) == 0 {
		return dst, errors.New("the answer has no choices")
	}
	c := &a.Choices[0]
	t.takeNames(a.ID, a.Model, a.Created)
	t.usage, t.finish = a.Usage, c.FinishReason
	type part struct {
		Block
		text  string
		marks []byte
	}
	var parts []part
	if c.Reasoning != "" {
		parts = append(parts, part{Block{Kind: ReasoningBlock}, c.Reasoning, nil})
	}
	if c.Content != nil && (*c.Content != "" || len(c.ToolCalls) == 0 && c.Refusal == "") {
		p := part{Block{Kind: TextBlock}, *c.Content, nil}
		if t.logprobs && c.LogprobsContent != nil {
			p.marks = inside(c.LogprobsContent)
		}
		parts = append(parts, p)
	}
	if c.Refusal != "" {
		parts = append(parts, part{Block{Kind: RefusalBlock}, c.Refusal, nil})
	}
	for i, call := range c.ToolCalls {
		parts = append(parts, part{Block{ToolCallBlock, CallID(call.ID, t.id, i), call.Name}, call.Arguments, nil})
	}
	for i, p := range parts {
		t.open, t.text, t.marks = p.Block, inside(Text(p.text)), p.marks
		t.closeItem(t.cut() && i == len(parts)-1)
	}
	b := jsonx.Builder{Bytes: dst}
	t.response(&b, t.status(), nil)
	return b.Bytes, nil
}

// inside returns what stands between the brackets or quotes of a value.
func inside(raw []byte) []byte { return raw[1 : len(raw)-1] }

func (t *ResponsesTranslator) takeNames(id, model string, created int64) {
	if id != "" {
		t.id = id
	}
	if model != "" {
		t.model = model
	}
	if created != 0 {
		t.created = created
	}
}

// cut reports whether the answer ended before the model was done.
func (t *ResponsesTranslator) cut() bool { return t.finish == "length" || t.finish == "content_filter" }

const (
	statusInProgress = "in_progress"
	statusCompleted  = "completed"
	statusIncomplete = "incomplete"
	statusFailed     = "failed"
)

func (t *ResponsesTranslator) status() string {
	if t.cut() {
		return statusIncomplete
	}
	return statusCompleted
}

// response writes the response as it is now.
func (t *ResponsesTranslator) response(b *jsonx.Builder, status string, failure *Error) {
	b.Open('{').Key("id").Text("resp_" + t.id).Key("object").Text("response").Key("created_at").Int(t.created)
	b.Key("status").Text(status).Key("background").Word("false").Key("error")
	if failure != nil {
		b.Open('{').Key("code").Text(TypeServer).Key("message").Text(failure.Message).Close('}')
	} else {
		b.Word("null")
	}
	b.Key("incomplete_details")
	switch {
	case status != statusIncomplete:
		b.Word("null")
	case t.finish == "length":
		b.Open('{').Key("reason").Text("max_output_tokens").Close('}')
	default:
		b.Open('{').Key("reason").Text(t.finish).Close('}')
	}
	t.echo(b, "instructions", "null")
	t.echo(b, "max_output_tokens", "null")
	b.Key("model").Text(t.model).Key("output").Open('[')
	b.Bytes = append(b.Bytes, t.output...)
	b.Close(']')
	t.echo(b, "parallel_tool_calls", "true")
	b.Key("previous_response_id").Word("null")
	t.echo(b, "reasoning", `{"effort":null,"summary":null}`)
	b.Key("store").Word("false")
	t.echo(b, "temperature", "1.0")
	t.echo(b, "text", `{"format":{"type":"text"}}`)
	t.echo(b, "tool_choice", `"auto"`)
	t.echo(b, "tools", "[]")
	t.echo(b, "top_logprobs", "0")
	t.echo(b, "top_p", "1.0")
	b.Key("truncation").Text("disabled").Key("usage")
	if u := t.usage; u != nil && status != statusInProgress {
		b.Open('{').Key("input_tokens").Int(u.Prompt).Key("input_tokens_details").Open('{').Key("cached_tokens").Int(u.Cached).Close('}')
		b.Key("output_tokens").Int(u.Completion).Key("output_tokens_details").Open('{').Key("reasoning_tokens").Int(u.Reasoning).Close('}')
		b.Key("total_tokens").Int(u.Total).Close('}')
	} else {
		b.Word("null")
	}
	t.echo(b, "user", "null")
	t.echo(b, "metadata", "{}")
	b.Close('}')
}

// echo writes a member as the request has it.
func (t *ResponsesTranslator) echo(b *jsonx.Builder, key, otherwise string) {
	raw := t.req.Raw(key)
	if !present(raw) {
		raw = []byte(otherwise)
	}
	b.Key(key).Raw(oneLine(raw))
}

// itemID returns the id of the item that is open.
func (t *ResponsesTranslator) itemID() string {
	prefix := "msg_"
	switch t.open.Kind {
	case ReasoningBlock:
		prefix = "rs_"
	case ToolCallBlock:
		prefix = "fc_"
	case TextBlock, RefusalBlock:
	}
	return prefix + t.id + "_" + strconv.Itoa(t.items)
}

// item writes the item that is open, as it stands.
func (t *ResponsesTranslator) item(b *jsonx.Builder, status string) {
	b.Open('{').Key("id").Text(t.itemID()).Key("type")
	switch t.open.Kind {
	case ToolCallBlock:
		b.Text("function_call").Key("status").Text(status).Key("arguments")
		t.quote(b)
		b.Key("call_id").Text(t.open.ID).Key("name").Text(t.open.Name).Close('}')
		return
	case ReasoningBlock:
		b.Text("reasoning").Key("summary").Open('[').Close(']').Key("status").Text(status)
	default:
		b.Text("message").Key("status").Text(status).Key("role").Text("assistant")
	}
	b.Key("content").Open('[')
	if status != statusInProgress {
		t.part(b)
	}
	b.Close(']').Close('}')
}

// part writes the part that the open item consists of, as it stands.
func (t *ResponsesTranslator) part(b *jsonx.Builder) {
	b.Open('{').Key("type")
	switch t.open.Kind {
	case ReasoningBlock:
		b.Text("reasoning_text").Key("text")
		t.quote(b)
	case RefusalBlock:
		b.Text("refusal").Key("refusal")
		t.quote(b)
	default:
		b.Text("output_text").Key("text")
		t.quote(b)
		b.Key("annotations").Open('[').Close(']').Key("logprobs").Open('[')
		b.Bytes = append(b.Bytes, t.marks...)
		b.Close(']')
	}
	b.Close('}')
}

// quote writes what the open item holds.
func (t *ResponsesTranslator) quote(b *jsonx.Builder) {
	b.Bytes = append(append(append(b.Bytes, '"'), t.text...), '"')
}

// closeItem puts the open item among those that are complete.
func (t *ResponsesTranslator) closeItem(cut bool) {
	b := jsonx.Builder{Bytes: t.output}
	if t.items > 0 {
		b.Bytes = append(b.Bytes, ',', ' ')
	}
	t.item(&b, t.itemStatus(cut))
	t.output = b.Bytes
	t.items++
	t.open, t.text, t.marks = Block{}, nil, nil
}

func (t *ResponsesTranslator) itemStatus(cut bool) string {
	if cut {
		return statusIncomplete
	}
	return statusCompleted
}

// event begins an event of the stream; end ends it.
func (t *ResponsesTranslator) event(kind string) *jsonx.Builder {
	t.out.Bytes = append(append(append(t.out.Bytes, "event: "...), kind...), "\ndata: "...)
	t.out.Open('{').Key("type").Text(kind).Key("sequence_number").Int(t.sequence)
	t.sequence++
	return &t.out
}

func (t *ResponsesTranslator) end() { t.out.Bytes = append(t.out.Bytes, "}\n\n"...) }

func (t *ResponsesTranslator) begin() {
	t.begun = true
	for _, kind := range [...]string{"response.created", "response.in_progress"} {
		t.response(t.event(kind).Key("response"), statusInProgress, nil)
		t.end()
	}
}

// AppendChunk appends the events that tell of a chunk.
func (t *ResponsesTranslator) AppendChunk(dst, data []byte) ([]byte, error) {
	t.out.Bytes = dst
	if err := t.delta.Parse(data); err != nil {
		return dst, err
	}
	d := &t.delta
	if d.Usage != nil {
		t.usage = d.Usage
	}
	if !t.begun {
		t.takeNames(d.ID, d.Model, d.Created)
		t.begin()
	}
	for i := range d.Choices {
		c := &d.Choices[i]
		if c.Index != 0 {
			continue // only a chat completion has several
		}
		t.fresh = nil
		if t.logprobs && c.Logprobs != nil {
			t.fresh = inside(c.Logprobs)
		}
		if c.FinishReason != "" {
			t.finish = c.FinishReason
		}
		if err := t.blocks.Add(c); err != nil {
			return t.out.Bytes, err
		}
		if c.FinishReason != "" {
			t.finishBlocks()
		}
	}
	return t.out.Bytes, nil
}

// finishBlocks ends the output. A response without any has an empty text.
func (t *ResponsesTranslator) finishBlocks() {
	t.blocks.Finish()
	if !t.blocks.Any() && t.items == 0 {
		w := (*responseEvents)(t)
		w.BeginBlock(Block{Kind: TextBlock})
		w.EndBlock()
	}
}

// AppendEnd appends the events that end the stream.
func (t *ResponsesTranslator) AppendEnd(dst []byte) []byte {
	t.out.Bytes = dst
	if !t.begun {
		t.begin()
	}
	t.finishBlocks()
	status := t.status()
	t.response(t.event("response."+status).Key("response"), status, nil)
	t.end()
	return t.out.Bytes
}

// AppendError appends the event that ends a stream where it broke.
func (t *ResponsesTranslator) AppendError(dst []byte, _ int, e *Error) []byte {
	t.out.Bytes = dst
	if !t.begun {
		t.begin()
	}
	t.response(t.event("response.failed").Key("response"), statusFailed, e)
	t.end()
	return t.out.Bytes
}

// AppendResponsesErrorEvent appends the event that ends a stream which broke,
// where the stream is a backend's own.
func AppendResponsesErrorEvent(dst []byte, _ int, e *Error) []byte {
	b := jsonx.Builder{Bytes: append(dst, "event: error\ndata: "...)}
	b.Open('{').Key("type").Text("error").Key("code").Text(cmp.Or(e.Code, e.Type)).Key("message").Text(e.Message).Key("param").Word("null")
	return append(b.Key("sequence_number").Int(0).Close('}').Bytes, "\n\n"...)
}

// responseEvents is a translator as it is told of blocks.
type responseEvents ResponsesTranslator

// place begins an event about the open item.
func (w *responseEvents) place(kind string) *jsonx.Builder {
	t := (*ResponsesTranslator)(w)
	b := t.event(kind).Key("item_id").Text(t.itemID()).Key("output_index").Int(int64(t.items))
	if t.open.Kind != ToolCallBlock {
		b.Key("content_index").Int(0)
	}
	return b
}

// BeginBlock implements [BlockWriter].
func (w *responseEvents) BeginBlock(block Block) {
	t := (*ResponsesTranslator)(w)
	t.open = block
	if block.Kind == ToolCallBlock {
		t.open.ID = CallID(block.ID, t.id, t.items)
	}
	t.item(t.event("response.output_item.added").Key("output_index").Int(int64(t.items)).Key("item"), statusInProgress)
	t.end()
	if block.Kind != ToolCallBlock {
		t.part(w.place("response.content_part.added").Key("part"))
		t.end()
	}
}

// names returns what the events are called that tell of a block's text, and the
// member that they do it with at the end.
func (w *responseEvents) names() (event, member string) {
	switch w.open.Kind {
	case ReasoningBlock:
		return "response.reasoning_text", "text"
	case RefusalBlock:
		return "response.refusal", "refusal"
	case ToolCallBlock:
		return "response.function_call_arguments", "arguments"
	default:
		return "response.output_text", "text"
	}
}

// AddToBlock implements [BlockWriter].
func (w *responseEvents) AddToBlock(text []byte) {
	t := (*ResponsesTranslator)(w)
	name, _ := w.names()
	b := w.place(name + ".delta").Key("delta").Raw(text)
	if t.open.Kind == TextBlock {
		b.Key("logprobs").Open('[')
		b.Bytes = append(b.Bytes, t.fresh...)
		b.Close(']')
		if len(t.fresh) > 0 && len(t.marks) > 0 {
			t.marks = append(t.marks, ',', ' ')
		}
		t.marks = append(t.marks, t.fresh...)
	}
	t.end()
	t.text = append(t.text, inside(text)...)
}

// EndBlock implements [BlockWriter].
func (w *responseEvents) EndBlock() {
	t := (*ResponsesTranslator)(w)
	name, member := w.names()
	b := w.place(name + ".done").Key(member)
	t.quote(b)
	switch t.open.Kind {
	case TextBlock:
		b.Key("logprobs").Open('[')
		b.Bytes = append(b.Bytes, t.marks...)
		b.Close(']')
	case ToolCallBlock:
		b.Key("name").Text(t.open.Name)
	case ReasoningBlock, RefusalBlock:
	}
	t.end()
	if t.open.Kind != ToolCallBlock {
		t.part(w.place("response.content_part.done").Key("part"))
		t.end()
	}
	cut := t.cut()
	t.item(t.event("response.output_item.done").Key("output_index").Int(int64(t.items)).Key("item"), t.itemStatus(cut))
	t.end()
	t.closeItem(cut)
}
