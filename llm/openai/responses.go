package openai

import (
	"fmt"

	"agentlightning/internal/jsonx"
)

// responsesNamed are the members of a Responses request that have a meaning
// here. Others are handed on: backends know parameters that OpenAI does not.
var responsesNamed = map[string]bool{
	"model": true, "input": true, "instructions": true, "max_output_tokens": true, "stream": true, "stream_options": true,
	"tools": true, "tool_choice": true, "text": true, "reasoning": true, "include": true, "store": true, "background": true,
	"previous_response_id": true, "conversation": true, "prompt": true, "truncation": true, "metadata": true,
	"max_tool_calls": true, "top_logprobs": true, "context_management": true,
}

// ResponsesChat puts a Responses request as a chat completion request. With an
// error, which names the first member that cannot be put that way, the request
// holds what can.
func ResponsesChat(r *Request) (*Request, *Error) {
	w := &responsesWriter{Draft: NewDraft()}
	w.Copy("model", r.Raw("model"))
	w.Key("messages").Open('[')
	w.instructions(r.Raw("instructions"))
	w.input(r.Raw("input"))
	w.Close(']')
	w.Copy("max_tokens", r.Raw("max_output_tokens"))
	w.Stream(r)
	w.tools(r.Raw("tools"))
	w.toolChoice(r.Raw("tool_choice"))
	w.format(r.Raw("text"))
	reasoning, _ := jsonx.Members(r.Raw("reasoning"))
	w.Copy("reasoning_effort", jsonx.Get(reasoning, "effort"))
	w.logprobs(r)
	w.unsupported(r)
	w.Rest(r, responsesNamed)
	return w.Finish()
}

// responsesWriter writes the chat completion request.
type responsesWriter struct {
	*Draft

	// The message of the assistant that is being put together: thoughts, text
	// and calls are items of their own in a response and one message in a chat.
	thoughts, said []byte // nil for none; said is a value, not a text
	calls          []jsonx.Builder

	shown []item // images of results that no message has shown yet
}

// item is an element of the input or of what one holds.
type item struct {
	param   string
	kind    string
	members []jsonx.Member
}

func (it item) raw(key string) []byte { return jsonx.Get(it.members, key) }

// text returns a string member. One that is missing is refused.
func (w *responsesWriter) text(it item, key string) []byte {
	raw := it.raw(key)
	if jsonx.KindOf(raw) != jsonx.String {
		w.Refuse(it.param+"."+key, "%s needs it, as a string", it.kind)
		return []byte(`""`)
	}
	return raw
}

// items returns the elements of a list; plain is the kind of those that do not
// name one.
func (w *responsesWriter) items(param string, raw []byte, plain string) []item {
	elements, err := jsonx.Elements(raw)
	if err != nil {
		w.Refuse(param, "it must be a string or a list")
		return nil
	}
	out := make([]item, 0, len(elements))
	for i, e := range elements {
		it := item{param: fmt.Sprintf("%s[%d]", param, i), kind: plain}
		if it.members, err = jsonx.Members(e); err != nil {
			w.Refuse(it.param, "it must be an object")
			continue
		}
		if kind := it.raw("type"); present(kind) {
			it.kind, _ = jsonx.Text(kind)
		}
		out = append(out, it)
	}
	return out
}

func (w *responsesWriter) instructions(raw []byte) {
	switch jsonx.KindOf(raw) {
	case jsonx.Invalid, jsonx.Null:
	case jsonx.String:
		w.message("system", raw)
	default:
		w.Refuse("instructions", "it must be a string")
	}
}

func (w *responsesWriter) message(role string, content []byte) {
	w.Open('{').Key("role").Text(role).Key("content").Raw(content).Close('}')
}

func (w *responsesWriter) input(raw []byte) {
	switch jsonx.KindOf(raw) {
	case jsonx.Invalid, jsonx.Null:
		w.Refuse("input", "field required")
		return
	case jsonx.String:
		w.message("user", raw)
		return
	}
	for _, it := range w.items("input", raw, "message") {
		if it.kind != "function_call_output" {
			w.show()
		}
		switch it.kind {
		case "message":
			w.inputMessage(it)
		case "reasoning":
			w.inputReasoning(it)
		case "function_call":
			w.inputCall(it)
		case "function_call_output":
			w.inputResult(it)
		case "item_reference":
			w.Refuse(it.param+".type", "this server keeps no responses to refer to; send the items themselves")
		default:
			w.Refuse(it.param+".type", "a chat completion has no place for an item of type %q", it.kind)
		}
	}
	w.flush()
	w.show()
}

// show writes the images that tools returned. All results of a turn come first:
// nothing may stand between them.
func (w *responsesWriter) show() {
	if len(w.shown) == 0 {
		return
	}
	w.Open('{').Key("role").Text("user").Key("content").Open('[')
	for _, part := range w.shown {
		w.part(part)
	}
	w.Close(']').Close('}')
	w.shown = nil
}

// inputMessage writes a message of the conversation.
func (w *responsesWriter) inputMessage(it item) {
	role, _ := jsonx.Text(it.raw("role"))
	content := it.raw("content")
	switch role {
	case "assistant":
		if w.said != nil {
			w.flush()
		}
		w.said = w.assistantText(it.param+".content", content)
	case "user":
		w.flush()
		if jsonx.KindOf(content) == jsonx.String {
			w.message(role, content)
			return
		}
		w.Open('{').Key("role").Text(role).Key("content").Open('[')
		for _, part := range w.items(it.param+".content", content, "") {
			w.part(part)
		}
		w.Close(']').Close('}')
	case "system", "developer":
		w.flush()
		// What developers say has the weight of the system; chat templates know
		// that role only.
		if jsonx.KindOf(content) != jsonx.String {
			content = Text(w.joined(it.param+".content", content))
		}
		w.message("system", content)
	default:
		w.Refuse(it.param+".role", "%q must be user, assistant, system or developer", role)
	}
}

func (w *responsesWriter) assistantText(param string, content []byte) []byte {
	if jsonx.KindOf(content) == jsonx.String {
		return content
	}
	return Text(w.joined(param, content))
}

// joined returns the texts of a list of parts that holds nothing else.
func (w *responsesWriter) joined(param string, raw []byte) string {
	var all []byte
	for _, part := range w.items(param, raw, "") {
		key := "text"
		switch part.kind {
		case "input_text", "output_text", "text", "reasoning_text", "summary_text":
		case "refusal":
			key = "refusal"
		default:
			w.Refuse(part.param+".type", "a chat completion has no place for a part of type %q here", part.kind)
			continue
		}
		text, _ := jsonx.Text(w.text(part, key))
		all = append(all, text...)
	}
	return string(all)
}

// part writes a part of a user message.
func (w *responsesWriter) part(part item) {
	switch part.kind {
	case "input_text", "output_text", "text":
		w.Open('{').Key("type").Text("text").Key("text").Raw(w.text(part, "text")).Close('}')
	case "input_image":
		if present(part.raw("file_id")) {
			w.Refuse(part.param+".file_id", "this server keeps no files; send the image as image_url")
			return
		}
		w.Open('{').Key("type").Text("image_url").Key("image_url").Open('{').Key("url").Raw(w.text(part, "image_url"))
		w.Copy("detail", part.raw("detail"))
		w.Close('}').Close('}')
	case "input_audio":
		w.Open('{').Key("type").Text("input_audio")
		w.Copy("input_audio", part.raw("input_audio"))
		w.Close('}')
	default:
		w.Refuse(part.param+".type", "a chat completion has no place for a part of type %q", part.kind)
	}
}

// inputReasoning takes in what the model thought before, which comes before
// what it said.
func (w *responsesWriter) inputReasoning(it item) {
	w.flush()
	param, raw := it.param+".content", it.raw("content")
	if elements, err := jsonx.Elements(raw); err != nil || len(elements) == 0 {
		param, raw = it.param+".summary", it.raw("summary")
	}
	if !present(raw) {
		return
	}
	if text := w.joined(param, raw); text != "" {
		w.thoughts = Text(text)
	}
}

func (w *responsesWriter) inputCall(it item) {
	var b jsonx.Builder
	b.Open('{').Key("id").Raw(w.text(it, "call_id")).Key("type").Text("function")
	b.Key("function").Open('{').Key("name").Raw(w.text(it, "name")).Key("arguments").Raw(w.text(it, "arguments")).Close('}').Close('}')
	w.calls = append(w.calls, b)
}

// flush writes the message of the assistant that was put together.
func (w *responsesWriter) flush() {
	if w.thoughts == nil && w.said == nil && w.calls == nil {
		return
	}
	w.Open('{').Key("role").Text("assistant")
	if w.said != nil || w.calls == nil {
		said := w.said
		if said == nil {
			said = []byte(`""`)
		}
		w.Key("content").Raw(said)
	}
	if w.thoughts != nil {
		w.Key("reasoning_content").Raw(w.thoughts)
	}
	if w.calls != nil {
		w.Key("tool_calls").Open('[')
		for i := range w.calls {
			w.Raw(w.calls[i].Bytes)
		}
		w.Close(']')
	}
	w.Close('}')
	w.thoughts, w.said, w.calls = nil, nil, nil
}

// inputResult writes the answer to a tool call. Images cannot be part of one,
// so the user shows them.
func (w *responsesWriter) inputResult(it item) {
	w.flush()
	w.Open('{').Key("role").Text("tool").Key("tool_call_id").Raw(w.text(it, "call_id")).Key("content")
	output := it.raw("output")
	switch jsonx.KindOf(output) {
	case jsonx.String:
		w.Raw(output).Close('}')
		return
	case jsonx.Array:
	default:
		w.Refuse(it.param+".output", "%s needs it, as a string or a list", it.kind)
		w.Text("").Close('}')
		return
	}
	var texts []byte
	var images []item
	for _, part := range w.items(it.param+".output", output, "") {
		if part.kind == "input_image" {
			images = append(images, part)
			continue
		}
		if part.kind != "input_text" && part.kind != "output_text" {
			w.Refuse(part.param+".type", "a chat completion has no place for a part of type %q in the output of a tool", part.kind)
			continue
		}
		text, _ := jsonx.Text(w.text(part, "text"))
		texts = append(texts, text...)
	}
	w.Text(string(texts)).Close('}')
	w.shown = append(w.shown, images...)
}

func (w *responsesWriter) tools(raw []byte) {
	if !present(raw) {
		return
	}
	w.Key("tools").Open('[')
	for _, t := range w.items("tools", raw, "") {
		if t.kind != "function" {
			w.Refuse(t.param+".type", "%q is no tool of type function; this backend has no others", t.kind)
			continue
		}
		w.Open('{').Key("type").Text("function").Key("function").Open('{').Key("name").Raw(w.text(t, "name"))
		for _, key := range [...]string{"description", "parameters", "strict"} {
			w.Copy(key, t.raw(key))
		}
		w.Close('}').Close('}')
	}
	w.Close(']')
}

func (w *responsesWriter) toolChoice(raw []byte) {
	switch jsonx.KindOf(raw) {
	case jsonx.Invalid, jsonx.Null:
	case jsonx.String:
		w.Copy("tool_choice", raw)
	default:
		members, _ := jsonx.Members(raw)
		choice := item{param: "tool_choice", members: members}
		if choice.kind, _ = jsonx.Text(choice.raw("type")); choice.kind != "function" {
			w.Refuse("tool_choice.type", "%q must be function, or tool_choice one of auto, none and required", choice.kind)
			return
		}
		w.Key("tool_choice").Open('{').Key("type").Text("function").Key("function").Open('{')
		w.Key("name").Raw(w.text(choice, "name")).Close('}').Close('}')
	}
}

// format writes how the answer is to look.
func (w *responsesWriter) format(raw []byte) {
	text, _ := jsonx.Members(raw)
	w.Copy("verbosity", jsonx.Get(text, "verbosity"))
	members, _ := jsonx.Members(jsonx.Get(text, "format"))
	switch kind, _ := jsonx.Text(jsonx.Get(members, "type")); kind {
	case "", "text":
	case "json_object":
		w.Key("response_format").Open('{').Key("type").Text(kind).Close('}')
	case "json_schema":
		w.Key("response_format").Open('{').Key("type").Text(kind).Key(kind).Open('{')
		for _, key := range [...]string{"name", "description", "schema", "strict"} {
			w.Copy(key, jsonx.Get(members, key))
		}
		w.Close('}').Close('}')
	default:
		w.Refuse("text.format.type", "%q must be text, json_object or json_schema", kind)
	}
}

const includeLogprobs = "message.output_text.logprobs"

// includes returns what the caller wants besides, which has to be something
// that is there to be had.
func (w *responsesWriter) includes(raw []byte) (logprobs bool) {
	elements, err := jsonx.Elements(raw)
	if present(raw) && err != nil {
		w.Refuse("include", "it must be a list")
	}
	for i, e := range elements {
		switch name, _ := jsonx.Text(e); name {
		case includeLogprobs:
			logprobs = true
		case "reasoning.encrypted_content": // reasoning items hold their text
		default:
			w.Refuse(fmt.Sprintf("include[%d]", i), "%q cannot be had from this backend", name)
		}
	}
	return logprobs
}

func (w *responsesWriter) logprobs(r *Request) {
	wanted := w.includes(r.Raw("include"))
	if top := r.Raw("top_logprobs"); present(top) && string(top) != "0" {
		w.Copy("top_logprobs", top)
		wanted = true
	}
	if wanted {
		w.Key("logprobs").Word("true")
	}
}

// unsupported refuses what would change the answer and cannot be had.
func (w *responsesWriter) unsupported(r *Request) {
	for _, key := range [...]string{"previous_response_id", "conversation"} {
		if present(r.Raw(key)) {
			w.Refuse(key, "this server keeps no responses; send the whole conversation as input")
		}
	}
	if present(r.Raw("prompt")) {
		w.Refuse("prompt", "this server keeps no prompts; send it as instructions and input")
	}
	if isTrue(r.Raw("background")) {
		w.Refuse("background", "calls in the background are not served; leave it out")
	}
	if raw := r.Raw("truncation"); present(raw) && string(raw) != `"disabled"` {
		w.Refuse("truncation", "%s must be disabled: nothing is cut off a conversation here", clip(raw))
	}
	if present(r.Raw("context_management")) {
		w.Refuse("context_management", "nothing is cut off a conversation here")
	}
}
