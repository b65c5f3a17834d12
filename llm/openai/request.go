package openai

import (
	"fmt"
	"slices"
	"strconv"

	"agentlightning/internal/jsonx"
)

// Request is a chat completion request as it arrived.
type Request struct {
	// Model is the name that the caller asks for.
	Model string
	// Stream is true when the answer is to come in chunks.
	Stream bool
	// IncludeUsage is true when the caller wants the chunk with the usage.
	IncludeUsage bool

	body    []byte
	members []jsonx.Member
}

// ParseRequest looks at a request. The request refers to body, which must not
// be changed. An error says what is wrong with it in words for the caller.
func ParseRequest(body []byte) (*Request, error) {
	members, err := jsonx.Members(body)
	if err != nil {
		return nil, fmt.Errorf("the body is not a JSON object: %w", err)
	}
	r := &Request{body: body, members: members}
	model := jsonx.Get(members, "model")
	switch jsonx.KindOf(model) {
	case jsonx.String:
		r.Model, _ = jsonx.Text(model)
	case jsonx.Invalid, jsonx.Null:
	default:
		return nil, fmt.Errorf("model is %s, it must be a string", clip(model))
	}
	r.Stream = isTrue(jsonx.Get(members, "stream"))
	if options, err := jsonx.Members(jsonx.Get(members, "stream_options")); err == nil {
		r.IncludeUsage = isTrue(jsonx.Get(options, "include_usage"))
	}
	return r, nil
}

// Body returns the request as it arrived.
func (r *Request) Body() []byte { return r.body }

// Raw returns the JSON of a member of the request, nil when it has none.
func (r *Request) Raw(key string) []byte { return jsonx.Get(r.members, key) }

// Edit is a change to one member of a request: a new value, or its removal
// when Value is nil.
type Edit struct {
	Key   string
	Value []byte
}

// Edit returns the body of the request with members replaced, removed or
// added. The values of all others are copied as they are.
func (r *Request) Edit(edits ...Edit) []byte {
	size := 2
	for _, m := range r.members {
		size += len(m.Key) + len(m.Value) + 8
	}
	for _, e := range edits {
		size += len(e.Key) + len(e.Value) + 8
	}
	out := append(make([]byte, 0, size), '{')
	put := func(key string, value []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(jsonx.AppendString(out, key), ':')
		out = append(out, value...)
	}
	var done uint64 // bit i: edit i replaced a member
	for _, m := range r.members {
		value := m.Value
		for i, e := range edits {
			if e.Key == m.Key {
				value = e.Value
				done |= 1 << i
			}
		}
		if value != nil {
			put(m.Key, value)
		}
	}
	for i, e := range edits {
		if done&(1<<i) == 0 && e.Value != nil {
			put(e.Key, e.Value)
		}
	}
	return append(out, '}')
}

// WithDefault returns the request with a member added where it is absent.
func (r *Request) WithDefault(key string, value []byte) *Request {
	if r.Raw(key) != nil {
		return r
	}
	out := *r
	out.members = append(slices.Clip(r.members), jsonx.Member{Key: key, Value: value})
	return &out
}

// UsageOptions returns the stream_options of the request with include_usage
// turned on and whatever else they hold.
func (r *Request) UsageOptions() []byte {
	options, err := jsonx.Members(r.Raw("stream_options"))
	if err != nil {
		return []byte(`{"include_usage":true}`)
	}
	return (&Request{members: options}).Edit(Edit{"include_usage", []byte("true")})
}

// Text returns s as JSON, for use in an [Edit].
func Text(s string) []byte { return jsonx.AppendString(nil, s) }

func isTrue(raw []byte) bool { return string(raw) == "true" }

// clip shortens a value for an error message.
func clip(raw []byte) string {
	const most = 40
	if len(raw) > most {
		return strconv.Quote(string(raw[:most]) + "…")
	}
	return string(raw)
}
