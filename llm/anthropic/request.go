package anthropic

import (
	"bytes"
	"fmt"
	"iter"
	"strings"

	"agentlightning/internal/jsonx"
	"agentlightning/llm/openai"
)

// named are the members of a request that have a meaning here. Others are
// handed on: backends know parameters that Anthropic does not.
var named = map[string]bool{
	"model": true, "messages": true, "max_tokens": true, "system": true, "stop_sequences": true, "stream": true,
	"tools": true, "tool_choice": true, "metadata": true, "thinking": true, "service_tier": true, "container": true,
	"mcp_servers": true, "context_management": true, "output_config": true, "output_format": true, "cache_control": true,
	"stream_options": true, paramThread: true,
}

// paramThread asks the server to keep the conversation, so that the next
// request needs only what is new.
const paramThread = "thread"

// ChatRequest puts a Messages request as a chat completion request. With an
// error, which names the first member that cannot be put that way, the request
// holds what can.
func ChatRequest(r *openai.Request) (*openai.Request, *openai.Error) {
	w := &writer{Draft: openai.NewDraft()}
	w.Copy("model", r.Raw("model"))
	w.Key("messages").Open('[')
	w.system(r.Raw("system"))
	w.messages(r.Raw("messages"))
	w.Close(']')
	w.maxTokens(r.Raw("max_tokens"))
	if stops := r.Raw("stop_sequences"); jsonx.KindOf(stops) == jsonx.Array {
		w.Copy("stop", stops)
	} else if present(stops) {
		w.Refuse("stop_sequences", "it must be a list of strings")
	}
	w.Stream(r)
	w.tools(r.Raw("tools"))
	w.toolChoice(r.Raw("tool_choice"))
	w.output(r)
	w.unsupported(r)
	w.Rest(r, named)
	return w.Finish()
}

// CountRequest puts a request to count tokens as a chat completion request.
func CountRequest(r *openai.Request) (*openai.Request, *openai.Error) {
	return ChatRequest(r.WithDefault("max_tokens", []byte("1")))
}

// writer writes the chat completion request.
type writer struct {
	*openai.Draft
}

func (w *writer) maxTokens(raw []byte) {
	switch {
	case !present(raw):
		w.Refuse("max_tokens", "field required")
	case jsonx.KindOf(raw) != jsonx.Number || jsonx.IsFloat(raw) || raw[0] == '-' || string(raw) == "0":
		w.Refuse("max_tokens", "it must be a whole number of at least 1")
	default:
		w.Copy("max_tokens", raw)
	}
}

func (w *writer) system(raw []byte) {
	switch jsonx.KindOf(raw) {
	case jsonx.Invalid, jsonx.Null:
	case jsonx.String:
		w.Open('{').Key("role").Text("system").Key("content").Raw(raw).Close('}')
	case jsonx.Array:
		blocks := w.blocks("system", raw)
		if len(blocks) == 0 {
			return
		}
		w.Open('{').Key("role").Text("system").Key("content").Open('[')
		for _, b := range blocks {
			if b.kind != "text" {
				w.Refuse(b.param+".type", "%q is not text", b.kind)
				continue
			}
			w.textPart(b)
		}
		w.Close(']').Close('}')
	default:
		w.Refuse("system", "it must be a string or a list of text blocks")
	}
}

// contentBlock is one block of a message.
type contentBlock struct {
	param   string // where it stands in the request
	kind    string
	members []jsonx.Member
}

func (b contentBlock) raw(key string) []byte { return jsonx.Get(b.members, key) }

// text returns a string member. One that is missing is refused.
func (w *writer) text(b contentBlock, key string) []byte {
	raw := b.raw(key)
	if jsonx.KindOf(raw) != jsonx.String {
		w.Refuse(b.param+"."+key, "a %s block needs it, as a string", b.kind)
		return []byte(`""`)
	}
	return raw
}

func (w *writer) blocks(param string, raw []byte) []contentBlock {
	return contentBlocks(w.Draft, param, raw, "content block")
}

// contentBlocks returns the blocks of a list, which in a chat completion are
// called parts. Those that are none are refused.
func contentBlocks(d *openai.Draft, param string, raw []byte, noun string) []contentBlock {
	elements, err := jsonx.Elements(raw)
	if err != nil {
		d.Refuse(param, "it must be a string or a list of %ss", noun)
		return nil
	}
	out := make([]contentBlock, 0, len(elements))
	for b := range objects(d, param, elements, noun) {
		if b.kind, err = jsonx.Text(b.raw("type")); err != nil {
			d.Refuse(b.param+".type", "field required")
			continue
		}
		out = append(out, b)
	}
	return out
}

// objects yields the elements of a list, each of which must be an object. Those
// that are none are refused.
func objects(d *openai.Draft, param string, elements []jsonx.Raw, noun string) iter.Seq[contentBlock] {
	return func(yield func(contentBlock) bool) {
		for i, e := range elements {
			b := contentBlock{param: fmt.Sprintf("%s[%d]", param, i), kind: noun}
			var err error
			if b.members, err = jsonx.Members(e); err != nil {
				d.Refuse(b.param, "it must be a %s", noun)
			} else if !yield(b) {
				return
			}
		}
	}
}

func (w *writer) messages(raw []byte) {
	elements, err := jsonx.Elements(raw)
	if err != nil {
		w.Refuse("messages", "it must be a list of messages")
		return
	}
	if len(elements) == 0 {
		w.Refuse("messages", "at least one message is required")
	}
	for m := range objects(w.Draft, "messages", elements, "message") {
		role, _ := jsonx.Text(m.raw("role"))
		param, content := m.param, m.raw("content")
		switch role {
		case "user":
			w.user(param+".content", content)
		case "assistant":
			w.assistant(param+".content", content)
		case "system":
			w.system(content)
		default:
			w.Refuse(param+".role", "%q must be user or assistant", role)
		}
	}
}

// user writes what a user message holds: first an answer to each tool call, as
// messages of their own, then what else there is.
func (w *writer) user(param string, content []byte) {
	if jsonx.KindOf(content) == jsonx.String {
		w.Open('{').Key("role").Text("user").Key("content").Raw(content).Close('}')
		return
	}
	var rest []contentBlock
	for _, b := range w.blocks(param, content) {
		if b.kind == "tool_result" {
			rest = append(rest, w.toolResult(b)...)
		} else {
			rest = append(rest, b)
		}
	}
	if len(rest) == 0 {
		return
	}
	w.Open('{').Key("role").Text("user").Key("content").Open('[')
	for _, b := range rest {
		w.part(b)
	}
	w.Close(']').Close('}')
}

// part writes a part of a user message.
func (w *writer) part(b contentBlock) {
	switch b.kind {
	case "text":
		w.textPart(b)
	case "image":
		w.imagePart(b)
	default:
		w.Refuse(b.param+".type", "a chat completion has no place for a block of type %q", b.kind)
	}
}

func (w *writer) textPart(b contentBlock) {
	w.Open('{').Key("type").Text("text").Key("text").Raw(w.text(b, "text")).Close('}')
}

func (w *writer) imagePart(b contentBlock) {
	source := contentBlock{param: b.param + ".source", kind: "source"}
	var err error
	if source.members, err = jsonx.Members(b.raw("source")); err != nil {
		w.Refuse(source.param, "an image block needs it")
		return
	}
	var url []byte
	switch source.kind, _ = jsonx.Text(source.raw("type")); source.kind {
	case "base64":
		media, _ := jsonx.Text(w.text(source, "media_type"))
		data, _ := jsonx.Text(w.text(source, "data"))
		url = openai.Text("data:" + media + ";base64," + data)
	case "url":
		url = w.text(source, "url")
	default:
		w.Refuse(source.param+".type", "%q must be base64 or url", source.kind)
		return
	}
	w.Open('{').Key("type").Text("image_url").Key("image_url").Open('{').Key("url").Raw(url).Close('}').Close('}')
}

// toolResult writes the answer to a tool call and returns the images in it,
// which such an answer cannot hold: they become part of what the user says next.
func (w *writer) toolResult(b contentBlock) (images []contentBlock) {
	w.Open('{').Key("role").Text("tool").Key("tool_call_id").Raw(w.text(b, "tool_use_id")).Key("content")
	content := b.raw("content")
	if !present(content) {
		w.Text("").Close('}')
		return nil
	}
	if jsonx.KindOf(content) == jsonx.String {
		w.Raw(content).Close('}')
		return nil
	}
	var texts []contentBlock
	for _, inner := range w.blocks(b.param+".content", content) {
		switch inner.kind {
		case "text":
			texts = append(texts, inner)
		case "image":
			images = append(images, inner)
		default:
			w.Refuse(inner.param+".type", "a chat completion has no place for a block of type %q in the result of a tool", inner.kind)
		}
	}
	switch len(texts) {
	case 0:
		w.Text("")
	case 1:
		w.Raw(w.text(texts[0], "text"))
	default:
		w.Open('[')
		for _, t := range texts {
			w.textPart(t)
		}
		w.Close(']')
	}
	w.Close('}')
	return images
}

// assistant writes what the model said before: text, thoughts and tool calls
// become one message.
func (w *writer) assistant(param string, content []byte) {
	if jsonx.KindOf(content) == jsonx.String {
		w.Open('{').Key("role").Text("assistant").Key("content").Raw(content).Close('}')
		return
	}
	var texts, thoughts strings.Builder
	var calls []contentBlock
	said := false
	for _, b := range w.blocks(param, content) {
		switch b.kind {
		case "text":
			text, _ := jsonx.Text(w.text(b, "text"))
			texts.WriteString(text)
			said = true
		case "thinking":
			text, _ := jsonx.Text(w.text(b, "thinking"))
			thoughts.WriteString(text)
		case "tool_use":
			calls = append(calls, b)
		default:
			w.Refuse(b.param+".type", "a chat completion has no place for a block of type %q", b.kind)
		}
	}
	w.Open('{').Key("role").Text("assistant")
	if said || len(calls) == 0 {
		w.Key("content").Text(texts.String())
	}
	if thoughts.Len() > 0 {
		w.Key("reasoning_content").Text(thoughts.String())
	}
	if len(calls) > 0 {
		w.Key("tool_calls").Open('[')
		for _, b := range calls {
			w.toolCall(b)
		}
		w.Close(']')
	}
	w.Close('}')
}

func (w *writer) toolCall(b contentBlock) {
	input := b.raw("input")
	if jsonx.KindOf(input) != jsonx.Object {
		w.Refuse(b.param+".input", "a tool_use block needs it, as an object")
		input = []byte("{}")
	}
	w.Open('{').Key("id").Raw(w.text(b, "id")).Key("type").Text("function")
	w.Key("function").Open('{').Key("name").Raw(w.text(b, "name"))
	w.Key("arguments").Text(string(appendSpaced(nil, input))).Close('}').Close('}')
}

func (w *writer) tools(raw []byte) {
	if !present(raw) {
		return
	}
	elements, err := jsonx.Elements(raw)
	if err != nil {
		w.Refuse("tools", "it must be a list of tools")
		return
	}
	w.Key("tools").Open('[')
	for t := range objects(w.Draft, "tools", elements, "tool") {
		if kind, _ := jsonx.Text(t.raw("type")); kind != "" && kind != "custom" {
			w.Refuse(t.param+".type", "%q is a tool of Anthropic's own servers, which this backend does not have", kind)
			continue
		}
		schema := t.raw("input_schema")
		if jsonx.KindOf(schema) != jsonx.Object {
			w.Refuse(t.param+".input_schema", "a tool needs it, as an object")
			continue
		}
		w.Open('{').Key("type").Text("function").Key("function").Open('{')
		w.Key("name").Raw(w.text(t, "name")).Key("parameters").Raw(schema)
		w.Copy("description", t.raw("description"))
		w.Copy("strict", t.raw("strict"))
		w.Close('}').Close('}')
	}
	w.Close(']')
}

func (w *writer) toolChoice(raw []byte) {
	if !present(raw) {
		return
	}
	choice := contentBlock{param: "tool_choice", kind: "tool_choice"}
	var err error
	if choice.members, err = jsonx.Members(raw); err != nil {
		w.Refuse("tool_choice", "it must be an object")
		return
	}
	switch kind, _ := jsonx.Text(choice.raw("type")); kind {
	case "auto", "none":
		w.Key("tool_choice").Text(kind)
	case "any":
		w.Key("tool_choice").Text("required")
	case "tool":
		w.Key("tool_choice").Open('{').Key("type").Text("function").Key("function").Open('{')
		w.Key("name").Raw(w.text(choice, "name")).Close('}').Close('}')
	default:
		w.Refuse("tool_choice.type", "%q must be auto, any, tool or none", kind)
	}
	if string(choice.raw("disable_parallel_tool_use")) == "true" {
		w.Key("parallel_tool_calls").Word("false")
	}
}

// output writes how the answer is to look and how much thought it is worth.
func (w *writer) output(r *openai.Request) {
	config, _ := jsonx.Members(r.Raw("output_config"))
	w.Copy("reasoning_effort", jsonx.Get(config, "effort"))
	param, format := "output_config.format", jsonx.Get(config, "format")
	if !present(format) {
		param, format = "output_format", r.Raw("output_format")
	}
	if !present(format) {
		return
	}
	members, _ := jsonx.Members(format)
	if kind, _ := jsonx.Text(jsonx.Get(members, "type")); kind != "json_schema" {
		w.Refuse(param+".type", "%q must be json_schema", kind)
		return
	}
	w.Key("response_format").Open('{').Key("type").Text("json_schema").Key("json_schema").Open('{')
	w.Key("name").Text("answer").Key("schema").Raw(jsonx.Get(members, "schema")).Key("strict").Word("true")
	w.Close('}').Close('}')
}

// unsupported refuses what would change the answer and cannot be had.
func (w *writer) unsupported(r *openai.Request) {
	if present(r.Raw(paramThread)) {
		w.Refuse(paramThread, "this server keeps no threads; send the whole conversation without it")
	}
	if present(r.Raw("container")) {
		w.Refuse("container", "only Anthropic's own servers have containers")
	}
	if servers, err := jsonx.Elements(r.Raw("mcp_servers")); present(r.Raw("mcp_servers")) && (err != nil || len(servers) > 0) {
		w.Refuse("mcp_servers", "only Anthropic's own servers call tools themselves")
	}
	management, _ := jsonx.Members(r.Raw("context_management"))
	edits, _ := jsonx.Elements(jsonx.Get(management, "edits"))
	for i, e := range edits {
		members, _ := jsonx.Members(e)
		// What is done with old thoughts is up to the backend's template.
		if kind, _ := jsonx.Text(jsonx.Get(members, "type")); !strings.HasPrefix(kind, "clear_thinking_") {
			w.Refuse(fmt.Sprintf("context_management.edits[%d].type", i), "%q is done by Anthropic's own servers only", kind)
		}
	}
	if !present(r.Raw("thinking")) {
		return
	}
	members, _ := jsonx.Members(r.Raw("thinking"))
	switch kind, _ := jsonx.Text(jsonx.Get(members, "type")); kind {
	case "enabled", "adaptive", "disabled":
	default:
		w.Refuse("thinking.type", "%q must be enabled, adaptive or disabled", kind)
	}
}

// WantsThinking reports whether the caller reads thinking blocks.
func WantsThinking(r *openai.Request) bool {
	members, _ := jsonx.Members(r.Raw("thinking"))
	kind, _ := jsonx.Text(jsonx.Get(members, "type"))
	return kind == "enabled" || kind == "adaptive"
}

// appendSpaced appends an object with the spaces that Python writes, which is
// how models have seen arguments most, and with &, < and > as themselves: clients
// in Go escape them, models do not.
func appendSpaced(dst, src []byte) []byte {
	for i := 0; i < len(src); i++ {
		switch c := src[i]; c {
		case ' ', '\t', '\n', '\r':
		case ',', ':':
			dst = append(dst, c, ' ')
		case '"':
			end := i + 1
			for ; src[end] != '"'; end++ {
				if src[end] == '\\' {
					end++
				}
			}
			dst = appendUnescaped(dst, src[i:end+1])
			i = end
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// appendUnescaped appends a JSON string without the escapes that Go makes for the
// sake of HTML.
func appendUnescaped(dst, src []byte) []byte {
	for {
		at := bytes.IndexByte(src, '\\')
		if at < 0 {
			return append(dst, src...)
		}
		dst = append(dst, src[:at]...)
		src = src[at:]
		if len(src) >= 6 && src[1] == 'u' {
			if c := htmlEscapes[strings.ToLower(string(src[2:6]))]; c != 0 {
				dst, src = append(dst, c), src[6:]
				continue
			}
		}
		dst, src = append(dst, src[:2]...), src[2:] // the escape is never alone: src is valid
	}
}

var htmlEscapes = map[string]byte{"0026": '&', "003c": '<', "003e": '>'}

func present(raw []byte) bool {
	kind := jsonx.KindOf(raw)
	return kind != jsonx.Invalid && kind != jsonx.Null
}
