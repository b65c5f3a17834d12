package anthropic

import (
	"slices"
	"strings"

	"agentlightning/internal/jsonx"
	"agentlightning/llm/openai"
)

// defaultMaxTokens is how long an answer may be where the caller of a chat
// completion sets no limit: a message cannot do without one.
const defaultMaxTokens = 8192

// chatNamed are the members of a chat completion request that have a meaning
// here. Others are handed on: callers know parameters that OpenAI does not.
var chatNamed = map[string]bool{
	"model": true, "messages": true, "max_tokens": true, "max_completion_tokens": true, "stop": true, "stream": true,
	"stream_options": true, "tools": true, "tool_choice": true, "parallel_tool_calls": true, "response_format": true,
	"reasoning_effort": true, "user": true, "safety_identifier": true, "n": true, "logprobs": true, "top_logprobs": true,
	"logit_bias": true, "frequency_penalty": true, "presence_penalty": true, "modalities": true, "audio": true,
	"web_search_options": true, "functions": true, "function_call": true,
	// These do not change what is asked.
	"seed": true, "store": true, "metadata": true, "prediction": true, "service_tier": true, "verbosity": true,
	"prompt_cache_key": true, "prompt_cache_retention": true,
}

// MessageRequest puts a chat completion request as a Messages request. With an
// error, which names the first member that cannot be put that way, the request
// holds what can.
func MessageRequest(r *openai.Request) (*openai.Request, *openai.Error) {
	w := &asker{Draft: openai.NewDraft()}
	w.Copy("model", r.Raw("model"))
	w.conversation(r.Raw("messages"))
	w.limit(r)
	w.stop(r.Raw("stop"))
	w.Stream(r)
	w.functions(r.Raw("tools"))
	w.choice(r)
	w.format(r)
	w.caller(r)
	w.notHad(r)
	w.Rest(r, chatNamed)
	return w.Finish()
}

// asker writes the Messages request.
type asker struct {
	*openai.Draft

	role   string   // of the message that is open; empty when none is
	system [][]byte // text blocks, as JSON
}

// conversation writes the messages, and what the system says before them: it is
// no part of the conversation here.
func (w *asker) conversation(raw []byte) {
	elements, err := jsonx.Elements(raw)
	if err != nil {
		w.Refuse("messages", "it must be a list of messages")
	}
	w.Key("messages").Open('[')
	for m := range objects(w.Draft, "messages", elements, "message") {
		m.kind, _ = jsonx.Text(m.raw("role"))
		w.message(m)
	}
	w.turn("")
	w.Close(']')
	if len(w.system) > 0 {
		w.Key("system").Open('[')
		for _, block := range w.system {
			w.Raw(block)
		}
		w.Close(']')
	}
}

// turn begins what a role says, unless it is speaking already: answers to the
// calls of one turn have to be in one message.
func (w *asker) turn(role string) {
	if role == w.role {
		return
	}
	if w.role != "" {
		w.Close(']').Close('}')
	}
	if w.role = role; role != "" {
		w.Open('{').Key("role").Text(role).Key("content").Open('[')
	}
}

func (w *asker) message(m contentBlock) {
	switch m.kind {
	case "system", "developer":
		for _, part := range w.parts(m) {
			if part.kind != "text" {
				w.Refuse(part.param+".type", "%q is not text", part.kind)
				continue
			}
			b := &asker{Draft: &openai.Draft{}}
			b.part(part)
			w.system = append(w.system, b.Bytes)
		}
	case "user":
		w.turn("user")
		for _, part := range w.parts(m) {
			w.part(part)
		}
	case "assistant":
		w.said(m)
	case "tool":
		w.turn("user")
		w.Open('{').Key("type").Text("tool_result").Key("tool_use_id").Raw(w.member(m, "tool_call_id")).Key("content").Open('[')
		for _, part := range w.parts(m) {
			w.part(part)
		}
		w.Close(']').Close('}')
	case "":
		w.Refuse(m.param+".role", "field required")
	default:
		w.Refuse(m.param+".role", "a message has no place for the role %q", m.kind)
	}
}

// member returns a string member of a message or part. One that is missing is
// refused.
func (w *asker) member(b contentBlock, key string) []byte {
	raw := b.raw(key)
	if jsonx.KindOf(raw) != jsonx.String {
		w.Refuse(b.param+"."+key, "it must be a string")
		return []byte(`""`)
	}
	return raw
}

// parts returns the content of a message, a string as one part. Empty texts,
// which a message must not have, are left out.
func (w *asker) parts(m contentBlock) []contentBlock {
	param, raw := m.param+".content", m.raw("content")
	switch jsonx.KindOf(raw) {
	case jsonx.Invalid, jsonx.Null:
		return nil
	case jsonx.String:
		raw = append(append([]byte(`[{"type":"text","text":`), raw...), "}]"...)
	}
	return slices.DeleteFunc(contentBlocks(w.Draft, param, raw, "part"), func(part contentBlock) bool {
		return part.kind == "text" && string(part.raw("text")) == `""`
	})
}

func (w *asker) part(part contentBlock) {
	switch part.kind {
	case "text":
		w.Open('{').Key("type").Text("text").Key("text").Raw(w.member(part, "text"))
	case "image_url":
		image := w.inner(part, "image_url")
		w.Open('{').Key("type").Text("image")
		w.source(image.param+".url", w.member(image, "url"))
	case "file":
		file := w.inner(part, "file")
		if present(file.raw("file_id")) {
			w.Refuse(file.param+".file_id", "files that OpenAI keeps cannot be read here; send the file itself as file_data")
		}
		w.Open('{').Key("type").Text("document")
		w.source(file.param+".file_data", w.member(file, "file_data"))
		w.Copy("title", file.raw("filename"))
	default:
		w.Refuse(part.param+".type", "a message has no place for a part of type %q", part.kind)
		return
	}
	w.Copy("cache_control", part.raw("cache_control"))
	w.Close('}')
}

// inner returns an object that is a member of a part.
func (w *asker) inner(part contentBlock, key string) contentBlock {
	b := contentBlock{param: part.param + "." + key}
	var err error
	if b.members, err = jsonx.Members(part.raw(key)); err != nil {
		w.Refuse(b.param, "it must be an object")
	}
	return b
}

// source writes where an image or a document is: in the request, as a data URL
// has it, or at an address.
func (w *asker) source(param string, raw []byte) {
	url, _ := jsonx.Text(raw)
	w.Key("source").Open('{').Key("type")
	if data, ok := strings.CutPrefix(url, "data:"); ok {
		media, data, ok := strings.Cut(data, ";base64,")
		if !ok {
			w.Refuse(param, "a data URL must be in base64")
		}
		w.Text("base64").Key("media_type").Text(media).Key("data").Text(data)
	} else {
		w.Text("url").Key("url").Raw(raw)
	}
	w.Close('}')
}

// said writes what the model said before. Its thoughts are left out: without
// the signature of the server they come from, they would be refused.
func (w *asker) said(m contentBlock) {
	if present(m.raw("function_call")) {
		w.Refuse(m.param+".function_call", "use tool_calls, which replace it")
	}
	if present(m.raw("audio")) {
		w.Refuse(m.param+".audio", "a message has no place for it")
	}
	parts := w.parts(m)
	if refusal := m.raw("refusal"); jsonx.KindOf(refusal) == jsonx.String {
		parts = append(parts, contentBlock{param: m.param + ".refusal", kind: "text", members: []jsonx.Member{{Key: "text", Value: refusal}}})
	}
	calls, err := jsonx.Elements(m.raw("tool_calls"))
	if err != nil && present(m.raw("tool_calls")) {
		w.Refuse(m.param+".tool_calls", "it must be a list of calls")
	}
	if len(parts) == 0 && len(calls) == 0 {
		return // a message cannot say nothing
	}
	w.turn("assistant")
	for _, part := range parts {
		if part.kind == "refusal" {
			part.kind, part.members = "text", []jsonx.Member{{Key: "text", Value: w.member(part, "refusal")}}
		}
		w.part(part)
	}
	for call := range objects(w.Draft, m.param+".tool_calls", calls, "call") {
		w.call(call)
	}
}

func (w *asker) call(call contentBlock) {
	f := w.inner(call, "function")
	arguments, _ := jsonx.Text(w.member(f, "arguments"))
	input, err := toolInput(arguments)
	if err != nil {
		w.Refuse(f.param+".arguments", "%v", err)
		input = []byte("{}")
	}
	w.Open('{').Key("type").Text("tool_use").Key("id").Raw(w.member(call, "id"))
	w.Key("name").Raw(w.member(f, "name")).Key("input").Raw(input).Close('}')
}

func (w *asker) limit(r *openai.Request) {
	key, raw := "max_completion_tokens", r.Raw("max_completion_tokens")
	if !present(raw) {
		key, raw = "max_tokens", r.Raw("max_tokens")
	}
	n, ok := wholeNumber(raw)
	switch {
	case !present(raw):
		n = defaultMaxTokens
	case !ok || n < 1:
		w.Refuse(key, "it must be a whole number of at least 1")
		n = 1
	}
	w.Key("max_tokens").Int(n)
}

func (w *asker) stop(raw []byte) {
	switch jsonx.KindOf(raw) {
	case jsonx.Invalid, jsonx.Null:
	case jsonx.String:
		w.Key("stop_sequences").Open('[').Raw(raw).Close(']')
	case jsonx.Array:
		w.Copy("stop_sequences", raw)
	default:
		w.Refuse("stop", "it must be a string or a list of strings")
	}
}

// noParameters is the schema of a function that has none.
const noParameters = `{"type":"object","properties":{}}`

func (w *asker) functions(raw []byte) {
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
		if t.kind, _ = jsonx.Text(t.raw("type")); t.kind != "function" {
			w.Refuse(t.param+".type", "%q must be function", t.kind)
			continue
		}
		f := w.inner(t, "function")
		schema := f.raw("parameters")
		if !present(schema) {
			schema = []byte(noParameters)
		}
		w.Open('{').Key("name").Raw(w.member(f, "name"))
		w.Copy("description", f.raw("description"))
		w.Key("input_schema").Raw(schema)
		if string(f.raw("strict")) == "true" {
			w.Key("strict").Word("true")
		}
		w.Copy("cache_control", t.raw("cache_control"))
		w.Close('}')
	}
	w.Close(']')
}

// choice writes which tools the model may or must call, and how many at once.
func (w *asker) choice(r *openai.Request) {
	kind, name := "", []byte(nil)
	switch raw := r.Raw("tool_choice"); jsonx.KindOf(raw) {
	case jsonx.Invalid, jsonx.Null:
	case jsonx.String:
		switch word, _ := jsonx.Text(raw); word {
		case "auto", "none":
			kind = word
		case "required":
			kind = "any"
		default:
			w.Refuse("tool_choice", "%q must be auto, none, required or a function", word)
		}
	default:
		members, _ := jsonx.Members(raw)
		choice := contentBlock{param: "tool_choice", members: members}
		if choice.kind, _ = jsonx.Text(choice.raw("type")); choice.kind != "function" {
			w.Refuse("tool_choice.type", "%q must be function", choice.kind)
			return
		}
		kind, name = "tool", w.member(w.inner(choice, "function"), "name")
	}
	alone := string(r.Raw("parallel_tool_calls")) == "false" && kind != "none" && present(r.Raw("tools"))
	if kind == "" && alone {
		kind = "auto"
	}
	if kind == "" {
		return
	}
	w.Key("tool_choice").Open('{').Key("type").Text(kind)
	if name != nil {
		w.Key("name").Raw(name)
	}
	if alone {
		w.Key("disable_parallel_tool_use").Word("true")
	}
	w.Close('}')
}

// format writes how the answer is to look and how much thought it is worth.
func (w *asker) format(r *openai.Request) {
	var schema []byte
	if raw := r.Raw("response_format"); present(raw) {
		members, _ := jsonx.Members(raw)
		switch kind, _ := jsonx.Text(jsonx.Get(members, "type")); kind {
		case "text":
		case "json_schema":
			inner, _ := jsonx.Members(jsonx.Get(members, "json_schema"))
			if schema = jsonx.Get(inner, "schema"); jsonx.KindOf(schema) != jsonx.Object {
				w.Refuse("response_format.json_schema.schema", "it must be an object")
				schema = nil
			}
		default:
			w.Refuse("response_format.type", "%q must be text or json_schema: Anthropic's models take a schema, not any JSON", kind)
		}
	}
	effort, _ := jsonx.Text(r.Raw("reasoning_effort"))
	switch effort {
	case "minimal":
		effort = "low" // the least that there is
	case "none":
		effort = ""
	}
	if schema == nil && effort == "" {
		return
	}
	w.Key("output_config").Open('{')
	if effort != "" {
		w.Key("effort").Text(effort)
	}
	if schema != nil {
		w.Key("format").Open('{').Key("type").Text("json_schema").Key("schema").Raw(schema).Close('}')
	}
	w.Close('}')
}

// caller writes on whose behalf the call is made.
func (w *asker) caller(r *openai.Request) {
	user := r.Raw("safety_identifier")
	if !present(user) {
		user = r.Raw("user")
	}
	if present(user) {
		w.Key("metadata").Open('{').Key("user_id").Raw(user).Close('}')
	}
}

// notHad refuses what would change the answer and cannot be had.
func (w *asker) notHad(r *openai.Request) {
	for _, member := range [...]struct {
		name string
		as   []string // values that ask for nothing
		why  string
	}{
		{"n", []string{"1"}, "there is one answer to a message"},
		{"logprobs", []string{"false"}, "Anthropic's models do not tell log-probabilities"},
		{"top_logprobs", []string{"0"}, "Anthropic's models do not tell log-probabilities"},
		{"logit_bias", []string{"{}"}, "Anthropic's models do not take it"},
		{"frequency_penalty", []string{"0", "0.0"}, "Anthropic's models do not take it"},
		{"presence_penalty", []string{"0", "0.0"}, "Anthropic's models do not take it"},
		{"modalities", []string{`["text"]`}, "Anthropic's models answer with text"},
		{"audio", nil, "Anthropic's models answer with text"},
		{"web_search_options", nil, "it is a tool of OpenAI's own servers"},
		{"functions", []string{"[]"}, "use tools, which replace it"},
		{"function_call", nil, "use tool_choice, which replaces it"},
	} {
		raw := r.Raw(member.name)
		if !present(raw) {
			continue
		}
		asks := true
		for _, value := range member.as {
			asks = asks && string(raw) != value
		}
		if asks {
			w.Refuse(member.name, "%s", member.why)
		}
	}
}
