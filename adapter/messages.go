package adapter

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/semconv"
)

// Conversation is what one model call said, in OpenAI's shapes.
type Conversation struct {
	Messages []json.RawMessage `json:"messages"`
	Tools    []json.RawMessage `json:"tools"` // nil is null
}

// Messages reads the conversations of model calls, as TraceToMessages does:
// one for each span that carries gen_ai attributes, in the given order. The
// tool calls of an answer are those of the spans below it or, where there are
// none, those that the proxy recorded with the answer.
func Messages(spans []agl.Span) ([]Conversation, error) {
	children := map[string][]*agl.Span{}
	for i := range spans {
		if p := spans[i].ParentID; p != nil {
			children[*p] = append(children[*p], &spans[i])
		}
	}
	out := []Conversation{}
	for i := range spans {
		c, err := conversation(&spans[i], children[spans[i].SpanID], asRelease03)
		if err != nil {
			return nil, fmt.Errorf("span %s: %w", spans[i].SpanID, err)
		}
		if c != nil {
			out = append(out, *c)
		}
	}
	return out, nil
}

// fidelity says how what was recorded is read.
type fidelity int

const (
	// asRelease03 reads as release 0.3 does: a content of parts is a text of JSON,
	// and what was said beside tool calls is lost when it comes back as history.
	asRelease03 fidelity = iota
	// asSaid gives back what was said.
	asSaid
)

func conversation(s *agl.Span, children []*agl.Span, how fidelity) (*Conversation, error) {
	prompt, completion := group(s, semconv.GenAIPrompt), group(s, semconv.GenAICompletion)
	request, response := group(s, semconv.GenAIRequest), group(s, "gen_ai.response")
	if prompt == nil && completion == nil && request == nil && response == nil {
		return nil, nil
	}
	if prompt.isObject() || completion.isObject() {
		return nil, errors.New("prompt and completion must be lists of messages")
	}
	if request.isList() || response.isList() {
		return nil, errors.New("request and response must be objects")
	}
	c := &Conversation{Messages: []json.RawMessage{}}
	for i, item := range prompt.items() {
		m, err := promptMessage(item, how)
		if err != nil {
			return nil, fmt.Errorf("prompt %d: %w", i, err)
		}
		c.Messages = append(c.Messages, m)
	}
	answers := completion.items()
	answers = slices.DeleteFunc(slices.Clone(answers), func(item *grouped) bool { return item.textOf("role") != "assistant" })
	var calls []byte
	if len(answers) > 0 { // tools that nobody answered with are not looked at
		var err error
		if calls, err = childCalls(children); err != nil {
			return nil, err
		}
	}
	for _, item := range answers {
		own := calls
		if own == nil {
			own = recordedCalls(item)
		}
		content := how.content(item)
		if how == asSaid && own != nil {
			content = how.besideCalls(item)
		}
		m := append([]byte(`{"content":`), content...)
		m = append(m, `,"role":"assistant"`...)
		if own != nil {
			m = append(append(m, `,"tool_calls":`...), own...)
		}
		c.Messages = append(c.Messages, append(m, '}'))
	}
	var err error
	c.Tools, err = offeredTools(request.kid("functions"))
	return c, err
}

// promptMessage checks a message as OpenAI's types do.
func promptMessage(item *grouped, how fidelity) (json.RawMessage, error) {
	if item.kid("role") == nil {
		return nil, errors.New("the message has no role")
	}
	role := item.textOf("role")
	if role == "assistant" && item.kid("tool_calls") != nil {
		calls := []byte("[")
		for i, call := range item.kid("tool_calls").items() {
			id, name, arguments := call.kid("id"), call.kid("name"), call.kid("arguments")
			if id == nil || name == nil || arguments == nil {
				return nil, fmt.Errorf("tool call %d lacks id, name or arguments", i)
			}
			calls = appendCall(calls, id.orNull(), []byte(`"function"`), name.orNull(), arguments.orNull())
		}
		return slices.Concat([]byte(`{"content":`), how.besideCalls(item), []byte(`,"role":"assistant","tool_calls":`), append(calls, ']'), []byte("}")), nil
	}
	content := []byte(`""`)
	if c := item.kid("content"); c != nil {
		if kind := jsonx.KindOf(c.orNull()); kind != jsonx.String && kind != jsonx.Array {
			return nil, fmt.Errorf("the content is %s, and neither a text nor a list of parts", c.orNull())
		}
		content = how.content(item)
	}
	m := append([]byte(`{"content":`), content...)
	m = jsonx.AppendString(append(m, `,"role":`...), role)
	switch role {
	case "developer", "system", "user", "assistant":
	case "tool":
		id := item.kid("tool_call_id")
		if _, ok := id.str(); !ok {
			return nil, errors.New("the message of a tool has no tool_call_id that is a text")
		}
		m = append(append(m, `,"tool_call_id":`...), id.orNull()...)
	default:
		return nil, fmt.Errorf("role %q is none of developer, system, user, assistant and tool", role)
	}
	return append(m, '}'), nil
}

// content is what a message says, as JSON.
func (how fidelity) content(item *grouped) []byte {
	c := item.kid("content")
	if text, ok := c.str(); ok && how == asSaid && isParts(text) {
		return []byte(strings.TrimSpace(text))
	}
	return c.orNull()
}

// besideCalls is what a message says that calls tools; null for nothing.
func (how fidelity) besideCalls(item *grouped) []byte {
	if text, ok := item.kid("content").str(); how == asRelease03 || ok && text == "" {
		return []byte("null")
	}
	return how.content(item)
}

// isParts tells whether a text is a content of several parts in OpenAI's shape,
// which is recorded as the JSON of the list.
func isParts(text string) bool {
	var parts []map[string]json.RawMessage
	if jsonx.KindOf([]byte(text)) != jsonx.Array || json.Unmarshal([]byte(text), &parts) != nil || len(parts) == 0 {
		return false
	}
	for _, p := range parts {
		var kind string
		if json.Unmarshal(p["type"], &kind) != nil {
			return false
		}
		switch kind {
		case "text", "image_url", "input_audio", "file", "refusal":
			if p[kind] == nil {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// childCalls returns the tool calls that spans below the answer describe, nil
// when there are none.
func childCalls(children []*agl.Span) ([]byte, error) {
	var calls []byte
	for _, child := range children {
		tool := group(child, "tool")
		if tool == nil {
			continue
		}
		if tool.isList() {
			return nil, fmt.Errorf("tool of span %s is a list", child.SpanID)
		}
		call := tool.kid("call")
		id, kind, name, arguments := call.kid("id"), call.kid("type"), tool.kid("name"), tool.kid("parameters")
		if id == nil || kind == nil || name == nil || arguments == nil {
			return nil, fmt.Errorf("tool call of span %s lacks id, type, name or parameters", child.SpanID)
		}
		if calls == nil {
			calls = []byte("[")
		}
		calls = appendCall(calls, id.orNull(), kind.orNull(), name.orNull(), arguments.orNull())
	}
	if calls != nil {
		calls = append(calls, ']')
	}
	return calls, nil
}

// recordedCalls returns the tool calls that the proxy recorded with an answer.
func recordedCalls(item *grouped) []byte {
	recorded := item.kid("tool_calls").items()
	if len(recorded) == 0 {
		return nil
	}
	calls := []byte("[")
	for _, call := range recorded {
		kind := []byte(`"function"`)
		if k := call.kid("type"); k != nil {
			kind = k.orNull()
		}
		calls = appendCall(calls, call.kid("id").orNull(), kind, call.kid("name").orNull(), call.kid("arguments").orNull())
	}
	return append(calls, ']')
}

func appendCall(dst, id, kind, name, arguments []byte) []byte {
	if dst[len(dst)-1] != '[' {
		dst = append(dst, ',')
	}
	return slices.Concat(dst, []byte(`{"id":`), id, []byte(`,"type":`), kind,
		[]byte(`,"function":{"name":`), name, []byte(`,"arguments":`), arguments, []byte(`}}`))
}

func offeredTools(functions *grouped) ([]json.RawMessage, error) {
	var tools []json.RawMessage
	for i, f := range functions.items() {
		if f.kid("name") == nil {
			return nil, fmt.Errorf("function %d has no name", i)
		}
		description := []byte(`""`)
		if d := f.kid("description"); d != nil {
			description = d.orNull()
		}
		parameters := f.kid("parameters").orNull()
		if text, ok := f.kid("parameters").str(); ok {
			raw, err := jsonx.Normalize([]byte(text))
			if err != nil {
				return nil, fmt.Errorf("parameters of function %d: %w", i, err)
			}
			parameters = raw
		}
		tools = append(tools, slices.Concat([]byte(`{"type":"function","function":{"name":`), f.kid("name").orNull(),
			[]byte(`,"description":`), description, []byte(`,"parameters":`), parameters, []byte(`}}`)))
	}
	return tools, nil
}

// grouped is a value that attributes spell together. Unlike [unflatten], it
// takes anything with a number among its keys for a list, closes gaps in it and
// leaves out the keys that are no numbers.
type grouped struct {
	leaf any
	list []*grouped
	keys []string
	kids map[string]*grouped
}

// group gathers the attributes below prefix; nil when there are none.
func group(s *agl.Span, prefix string) *grouped {
	var below agl.Attributes
	for _, a := range s.Attributes {
		if rest, ok := strings.CutPrefix(a.Key, prefix+"."); ok {
			below = append(below, agl.Attribute{Key: rest, Value: a.Value})
		}
	}
	return groupAll(below)
}

func groupAll(attrs agl.Attributes) *grouped {
	if len(attrs) == 0 {
		return nil
	}
	numbered := slices.ContainsFunc(attrs, func(a agl.Attribute) bool {
		key, _, _ := strings.Cut(a.Key, ".")
		_, ok := index(key)
		return ok
	})
	parts := map[string]agl.Attributes{}
	leaves := map[string]any{}
	var keys []string
	for _, a := range attrs {
		key, rest, nested := strings.Cut(a.Key, ".")
		if numbered {
			n, ok := index(key)
			if !ok {
				continue
			}
			key = strconv.Itoa(n) // 01 is 1
		}
		if _, ok := leaves[key]; !ok && parts[key] == nil {
			keys = append(keys, key)
		}
		if nested {
			parts[key] = append(parts[key], agl.Attribute{Key: rest, Value: a.Value})
		} else {
			leaves[key] = a.Value
		}
	}
	one := func(key string) *grouped {
		if parts[key] != nil {
			return groupAll(parts[key])
		}
		return &grouped{leaf: leaves[key]}
	}
	g := &grouped{}
	if numbered {
		slices.SortFunc(keys, func(a, b string) int {
			return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
		})
		for _, key := range keys {
			g.list = append(g.list, one(key))
		}
		return g
	}
	g.keys, g.kids = keys, make(map[string]*grouped, len(keys))
	for _, key := range keys {
		g.kids[key] = one(key)
	}
	return g
}

func (g *grouped) isList() bool   { return g != nil && g.list != nil }
func (g *grouped) isObject() bool { return g != nil && g.kids != nil }

func (g *grouped) items() []*grouped {
	if g == nil {
		return nil
	}
	return g.list
}

func (g *grouped) kid(key string) *grouped {
	if g == nil {
		return nil
	}
	return g.kids[key]
}

func (g *grouped) str() (string, bool) {
	if g == nil {
		return "", false
	}
	s, ok := g.leaf.(string)
	return s, ok
}

func (g *grouped) textOf(key string) string {
	s, _ := g.kid(key).str()
	return s
}

// orNull returns the JSON of the value, null for none.
func (g *grouped) orNull() []byte { return g.appendJSON(nil) }

func (g *grouped) appendJSON(dst []byte) []byte {
	switch {
	case g == nil:
		return append(dst, "null"...)
	case g.list != nil:
		dst = append(dst, '[')
		for i, e := range g.list {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = e.appendJSON(dst)
		}
		return append(dst, ']')
	case g.kids != nil:
		dst = append(dst, '{')
		for i, key := range g.keys {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(jsonx.AppendString(dst, key), ':')
			dst = g.kids[key].appendJSON(dst)
		}
		return append(dst, '}')
	}
	return appendValue(dst, g.leaf)
}
