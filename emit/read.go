package emit

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"

	agl "agentlightning"
	"agentlightning/semconv"
)

// MessageOf returns the text of a message span; false when there is none.
func MessageOf(s *agl.Span) (string, bool, error) {
	v, ok := s.Attributes.Get(semconv.MessageBody)
	if !ok {
		return "", false, nil
	}
	text, ok := v.(string)
	if !ok {
		return "", false, fmt.Errorf("span %s: %s is a %T, not a string", s.SpanID, semconv.MessageBody, v)
	}
	return text, true, nil
}

// ObjectOf returns the value of an object span: a string, bool, int64, float64,
// []byte, map[string]any, []any or nil; false when there is none.
func ObjectOf(s *agl.Span) (any, bool, error) {
	if text, ok := s.Attributes.String(semconv.ObjectJSON); ok {
		v, err := parse([]byte(text))
		if err != nil {
			return nil, false, fmt.Errorf("span %s: %s: %w", s.SpanID, semconv.ObjectJSON, err)
		}
		return plain(v), true, nil
	}
	text, ok := s.Attributes.String(semconv.ObjectLiteral)
	if !ok {
		return nil, false, nil
	}
	kind, given := s.Attributes.String(semconv.ObjectType)
	v, err := parseLiteral(kind, given, text)
	if err != nil {
		return nil, false, fmt.Errorf("span %s: %s: %w", s.SpanID, semconv.ObjectLiteral, err)
	}
	return v, true, nil
}

func parseLiteral(kind string, given bool, text string) (any, error) {
	if !given {
		return text, nil
	}
	switch kind {
	case "str":
		return text, nil
	case "int":
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, nil
		}
		if v, err := parse([]byte(text)); err == nil && kindOf(v) == kindInt {
			return v, nil
		}
		return nil, fmt.Errorf("%q is not an integer", text)
	case "float":
		return strconv.ParseFloat(text, 64)
	case "bool":
		return strings.EqualFold(text, "true"), nil
	case "bytes":
		return base64.StdEncoding.DecodeString(text)
	}
	return nil, fmt.Errorf("type %q has no literals", kind)
}

// numbered reads attributes that are a list below a prefix; none is an empty list.
func numbered(s *agl.Span, prefix, what string) ([]any, error) {
	v, err := Unflatten(s.Attributes, prefix)
	if err != nil {
		return nil, err
	}
	list, ok := v.([]any)
	if m, isMap := v.(map[string]any); !ok && (!isMap || len(m) > 0) {
		return nil, fmt.Errorf("span %s: the %s are not numbered from 0 without gaps", s.SpanID, what)
	}
	return list, nil
}

// TagsOf returns the tags of a span; none is an empty list. A gap in their
// numbers is an error.
func TagsOf(s *agl.Span) ([]string, error) {
	list, err := numbered(s, semconv.Tag, "tags")
	if len(list) == 0 {
		return nil, err
	}
	out := make([]string, len(list))
	for i, e := range list {
		var ok bool
		if out[i], ok = e.(string); !ok {
			return nil, fmt.Errorf("span %s: tag %d is a %T, not a string", s.SpanID, i, e)
		}
	}
	return out, nil
}

// LinkMatch is one condition of a link.
type LinkMatch struct{ Key, Value string }

// LinksOf returns the links of a span; none is an empty list. A link that lacks
// its key or value is an error.
func LinksOf(s *agl.Span) ([]LinkMatch, error) {
	list, err := numbered(s, semconv.Link, "links")
	if len(list) == 0 {
		return nil, err
	}
	out := make([]LinkMatch, len(list))
	for i, e := range list {
		m, _ := e.(map[string]any)
		key, hasKey := m["key_match"].(string)
		value, hasValue := m["value_match"].(string)
		if !hasKey || !hasValue {
			return nil, fmt.Errorf("span %s: link %d must have key_match and value_match, both strings", s.SpanID, i)
		}
		out[i] = LinkMatch{key, value}
	}
	return out, nil
}

// Linked returns those of the spans that match all conditions. trace_id and
// span_id stand for the ids of the span itself, every other key for the
// attribute of that name, which must be a string. No condition matches all.
func Linked(spans []agl.Span, links []LinkMatch) []agl.Span {
	var out []agl.Span
	for i := range spans {
		s := &spans[i]
		if !slices.ContainsFunc(links, func(l LinkMatch) bool { return !l.matches(s) }) {
			out = append(out, *s)
		}
	}
	return out
}

func (l LinkMatch) matches(s *agl.Span) bool {
	switch l.Key {
	case "trace_id":
		return s.TraceID == l.Value
	case "span_id":
		return s.SpanID == l.Value
	}
	v, ok := s.Attributes.String(l.Key)
	return ok && v == l.Value
}

// Unflatten rebuilds what was flattened under a prefix: maps, and lists where
// the keys are 0, 1, 2 … without a gap. Without such attributes it is an empty
// map; an attribute that is called exactly like the prefix is an error. An
// empty prefix takes all attributes.
func Unflatten(attributes agl.Attributes, prefix string) (any, error) {
	root := map[string]any{}
	for _, a := range attributes {
		path := a.Key
		if prefix != "" {
			if a.Key == prefix {
				return nil, fmt.Errorf("attribute %q is called like the prefix and has no place in a map", a.Key)
			}
			rest, ok := strings.CutPrefix(a.Key, prefix+".")
			if !ok {
				continue
			}
			path = rest
		}
		node := root
		keys := strings.Split(path, ".")
		for _, key := range keys[:len(keys)-1] {
			child, ok := node[key].(map[string]any)
			if !ok {
				child = map[string]any{}
				node[key] = child
			}
			node = child
		}
		node[keys[len(keys)-1]] = a.Value
	}
	return listed(root), nil
}

// listed turns maps whose keys are indices into lists, from the bottom up.
func listed(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	for key, child := range m {
		m[key] = listed(child)
	}
	list := make([]any, len(m))
	for i := range list {
		e, ok := m[strconv.Itoa(i)]
		if !ok {
			return m
		}
		list[i] = e
	}
	if len(list) == 0 {
		return m
	}
	return list
}
