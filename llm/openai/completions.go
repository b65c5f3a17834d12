package openai

import (
	"errors"
	"fmt"

	"agentlightning/internal/jsonx"
)

// completionsNamed are the members of a completion request that have a meaning
// here. Others are handed on.
var completionsNamed = map[string]bool{
	"model": true, "prompt": true, "suffix": true, "echo": true, "best_of": true, "logprobs": true, "stream": true, "stream_options": true,
}

// CompletionsChat puts a completion request as a chat completion request: the
// prompt becomes what the user says. With an error, which names the first
// member that cannot be put that way, the request holds what can.
func CompletionsChat(r *Request) (*Request, *Error) {
	w := NewDraft()
	w.Copy("model", r.Raw("model"))
	prompt := w.prompt(r.Raw("prompt"))
	w.Key("messages").Open('[').Open('{').Key("role").Text("user").Key("content").Raw(prompt).Close('}').Close(']')
	if suffix := r.Raw("suffix"); present(suffix) && string(suffix) != `""` {
		w.Refuse("suffix", "this backend speaks chat completions only, which cannot fill in")
	}
	if best := r.Raw("best_of"); present(best) && string(best) != "1" && string(best) != string(r.Raw("n")) {
		w.Refuse("best_of", "this backend speaks chat completions only, which know n and nothing like it")
	}
	if raw := r.Raw("logprobs"); present(raw) {
		if n, ok := parseInt(raw); ok && n >= 0 {
			w.Key("logprobs").Word("true").Key("top_logprobs").Int(n)
		} else if isTrue(raw) {
			w.Key("logprobs").Word("true")
		} else if string(raw) != "false" {
			w.Refuse("logprobs", "it must be a whole number")
		}
		if isTrue(r.Raw("echo")) {
			w.Refuse("echo", "this backend speaks chat completions only, which have no log-probabilities of the prompt")
		}
	}
	w.Stream(r)
	w.Rest(r, completionsNamed)
	return w.Finish()
}

// prompt returns the one text that a prompt is.
func (w *Draft) prompt(raw []byte) []byte {
	switch jsonx.KindOf(raw) {
	case jsonx.Invalid, jsonx.Null:
		w.Refuse("prompt", "field required")
		return []byte(`""`)
	case jsonx.String:
		return raw
	case jsonx.Array:
		elements, _ := jsonx.Elements(raw)
		if len(elements) == 1 && jsonx.KindOf(elements[0]) == jsonx.String {
			return elements[0]
		}
		if len(elements) > 0 && jsonx.KindOf(elements[0]) == jsonx.String {
			w.Refuse("prompt", "this backend speaks chat completions only, which take one prompt at a time; send them one by one")
		} else {
			w.Refuse("prompt", "this backend speaks chat completions only, which take text and no token ids")
		}
		return raw
	}
	w.Refuse("prompt", "it must be a string, a list of strings or of token ids")
	return raw
}

// CompletionsTranslator turns the answer of a chat completion into a
// completion. It serves one call, either whole or as a stream.
type CompletionsTranslator struct {
	id, model    string
	created      int64
	echo         []byte // what every choice begins with, as the inside of a JSON string
	logprobs     bool
	includeUsage bool

	delta  Delta
	named  bool
	echoed map[int]bool
	offset map[int]int
}

// NewCompletionsTranslator returns a translator of the answer to a request. The
// id is used where the backend gives none; created is now, in Unix seconds.
func NewCompletionsTranslator(r *Request, id string, created int64) *CompletionsTranslator {
	t := &CompletionsTranslator{id: id, model: r.Model, created: created, includeUsage: r.IncludeUsage, echoed: map[int]bool{}, offset: map[int]int{}}
	if isTrue(r.Raw("echo")) {
		if prompt := NewDraft().prompt(r.Raw("prompt")); jsonx.KindOf(prompt) == jsonx.String {
			t.echo = inside(prompt)
		}
	}
	t.logprobs = present(r.Raw("logprobs")) && string(r.Raw("logprobs")) != "false"
	return t
}

func (t *CompletionsTranslator) head(b *jsonx.Builder) {
	b.Open('{').Key("id").Text(t.id).Key("object").Text("text_completion").Key("created").Int(t.created).Key("model").Text(t.model)
}

func (t *CompletionsTranslator) takeNames(id, model string, created int64) {
	if t.named {
		return
	}
	t.named = true
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

// choice writes a choice. The text is the inside of a JSON string.
func (t *CompletionsTranslator) choice(b *jsonx.Builder, index int, text, logprobs, tokenIDs, stop []byte, finish string) {
	b.Open('{').Key("index").Int(int64(index)).Key("text")
	b.Bytes = append(b.Bytes, '"')
	if !t.echoed[index] {
		t.echoed[index] = true
		b.Bytes = append(b.Bytes, t.echo...)
	}
	b.Bytes = append(append(b.Bytes, text...), '"')
	b.Key("logprobs")
	if t.logprobs && logprobs != nil {
		t.writeLogprobs(b, index, logprobs)
	} else {
		b.Word("null")
	}
	b.Key("finish_reason")
	if finish != "" {
		b.Text(finish)
	} else {
		b.Word("null")
	}
	if present(stop) {
		b.Key("stop_reason").Raw(stop)
	}
	if tokenIDs != nil {
		b.Key("token_ids").Raw(tokenIDs)
	}
	b.Close('}')
}

// writeLogprobs writes the log-probabilities of a chat completion as lists
// beside one another.
func (t *CompletionsTranslator) writeLogprobs(b *jsonx.Builder, index int, raw []byte) {
	var tokens, numbers, tops, offsets jsonx.Builder
	for _, lists := range [...]*jsonx.Builder{&tokens, &numbers, &tops, &offsets} {
		lists.Open('[')
	}
	w, _ := list(raw)
	for raw, ok := w.element(); ok; raw, ok = w.element() {
		token, number, top := logprobMembers(raw)
		tokens.Raw(token)
		numbers.Raw(number)
		offsets.Int(int64(t.offset[index]))
		text, _ := jsonx.Text(token)
		t.offset[index] += len([]rune(text))
		tops.Open('{')
		alternatives, _ := list(top)
		seen := map[string]bool{}
		for raw, ok := alternatives.element(); ok; raw, ok = alternatives.element() {
			name, value, _ := logprobMembers(raw)
			if text, err := jsonx.Text(name); err == nil && !seen[text] {
				seen[text] = true
				tops.Key(text).Raw(value)
			}
		}
		tops.Close('}')
	}
	b.Open('{').Key("tokens").Raw(tokens.Close(']').Bytes).Key("token_logprobs").Raw(numbers.Close(']').Bytes)
	b.Key("top_logprobs").Raw(tops.Close(']').Bytes).Key("text_offset").Raw(offsets.Close(']').Bytes).Close('}')
}

// logprobMembers returns what counts of a log-probability.
func logprobMembers(raw []byte) (token, logprob, top []byte) {
	w, _ := object(raw)
	for key, value, ok := w.member(); ok; key, value, ok = w.member() {
		switch string(key) {
		case "token":
			token = value
		case "logprob":
			logprob = value
		case "top_logprobs":
			top = value
		}
	}
	return token, logprob, top
}

func writeUsage(b *jsonx.Builder, u *Usage) {
	b.Open('{').Key("prompt_tokens").Int(u.Prompt).Key("completion_tokens").Int(u.Completion).Key("total_tokens").Int(u.Total).Close('}')
}

func intList(ids []int64) []byte {
	if ids == nil {
		return nil
	}
	var b jsonx.Builder
	b.Open('[')
	for _, id := range ids {
		b.Int(id)
	}
	return b.Close(']').Bytes
}

// AppendAnswer appends the completion that a whole answer is.
func (t *CompletionsTranslator) AppendAnswer(dst []byte, a *Answer) ([]byte, error) {
	if len(a.Choices) == 0 {
		return dst, errors.New("the answer has no choices")
	}
	t.takeNames(a.ID, a.Model, a.Created)
	b := jsonx.Builder{Bytes: dst}
	t.head(&b)
	b.Key("choices").Open('[')
	for i := range a.Choices {
		c := &a.Choices[i]
		if len(c.ToolCalls) > 0 {
			return dst, fmt.Errorf("choice %d calls a tool, which a completion cannot", c.Index)
		}
		text, stop := c.Refusal, []byte(nil)
		if c.Content != nil {
			text = *c.Content + text
		}
		if c.StopSequence != "" {
			stop = Text(c.StopSequence)
		}
		t.choice(&b, c.Index, inside(Text(text)), c.LogprobsContent, intList(c.TokenIDs), stop, c.FinishReason)
	}
	b.Close(']')
	if a.Usage != nil {
		b.Key("usage")
		writeUsage(&b, a.Usage)
	}
	if a.PromptTokenIDs != nil {
		b.Key("prompt_token_ids").Raw(intList(a.PromptTokenIDs))
	}
	return b.Close('}').Bytes, nil
}

// AppendChunk appends the event that tells of a chunk.
func (t *CompletionsTranslator) AppendChunk(dst, data []byte) ([]byte, error) {
	if err := t.delta.Parse(data); err != nil {
		return dst, err
	}
	d := &t.delta
	t.takeNames(d.ID, d.Model, d.Created)
	if len(d.Choices) == 0 && (d.Usage == nil || !t.includeUsage) {
		return dst, nil
	}
	b := jsonx.Builder{Bytes: append(dst, "data: "...)}
	t.head(&b)
	b.Key("choices").Open('[')
	for i := range d.Choices {
		c := &d.Choices[i]
		if len(c.ToolCalls) > 0 {
			return dst, fmt.Errorf("choice %d calls a tool, which a completion cannot", c.Index)
		}
		var text []byte
		for _, part := range [...][]byte{c.Content, c.Refusal} {
			if part != nil {
				text = append(text, inside(part)...)
			}
		}
		t.choice(&b, c.Index, text, c.Logprobs, c.TokenIDs, c.StopReason, c.FinishReason)
	}
	b.Close(']')
	if d.Usage != nil && t.includeUsage {
		b.Key("usage")
		writeUsage(&b, d.Usage)
	}
	if d.PromptTokenIDs != nil {
		b.Key("prompt_token_ids").Raw(d.PromptTokenIDs)
	}
	return append(b.Close('}').Bytes, "\n\n"...), nil
}

// AppendEnd appends the event that ends the stream.
func (t *CompletionsTranslator) AppendEnd(dst []byte) []byte {
	return append(dst, "data: "+Done+"\n\n"...)
}

// AppendError appends the event that ends a stream where it broke.
func (t *CompletionsTranslator) AppendError(dst []byte, _ int, e *Error) []byte {
	return e.AppendEvent(dst)
}
