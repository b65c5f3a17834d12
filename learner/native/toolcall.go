package native

import (
	"bytes"
	"encoding/json"
	"strings"
)

// tool is a function that a request offers to the model.
type tool struct {
	name string
	// text is the name of the only parameter when that is a string; the model
	// then writes its value bare. Otherwise it writes a JSON object.
	text string
	// none is set when the tool takes no parameter.
	none bool
}

// newTool reads the parameters of a function's JSON schema.
func newTool(name string, schema json.RawMessage) tool {
	t := tool{name: name}
	var s struct {
		Properties map[string]struct {
			Type any `json:"type"`
		} `json:"properties"`
	}
	if len(schema) > 0 && json.Unmarshal(schema, &s) != nil {
		return t // an odd schema: leave the arguments to be JSON
	}
	switch len(s.Properties) {
	case 0:
		t.none = true
	case 1:
		for name, p := range s.Properties {
			if p.Type == "string" {
				t.text = name
			}
		}
	}
	return t
}

// parseCall reads text of exactly the form NAME(ARG), with NAME one of the
// tools, and returns its arguments as JSON.
func parseCall(text string, tools []tool) (t tool, arguments string, ok bool) {
	for _, t := range tools {
		arg, found := strings.CutPrefix(text, t.name+"(")
		if !found {
			continue
		}
		arg, found = strings.CutSuffix(arg, ")")
		if !found {
			continue
		}
		switch {
		case t.text != "":
			return t, encodeArguments(t.text, arg), true
		case t.none && arg == "":
			return t, "{}", true
		case isObject(arg):
			return t, arg, true
		}
	}
	return tool{}, "", false
}

// mayBecomeCall reports whether text could be the beginning of a call.
func mayBecomeCall(text string, tools []tool) bool {
	for _, t := range tools {
		open := t.name + "("
		if strings.HasPrefix(text, open) || strings.HasPrefix(open, text) {
			return true
		}
	}
	return false
}

// callText is what the model would have written for a call: the inverse of
// parseCall. Without the tool's definition a single string argument is taken
// for the bare form.
func callText(name, arguments string, tools []tool) string {
	for _, t := range tools {
		if t.name == name && t.text == "" {
			if t.none && strings.TrimSpace(arguments) == "{}" {
				return name + "()"
			}
			return name + "(" + arguments + ")"
		}
	}
	var args map[string]any
	if json.Unmarshal([]byte(arguments), &args) == nil && len(args) == 1 {
		for _, v := range args {
			if s, ok := v.(string); ok {
				return name + "(" + s + ")"
			}
		}
	}
	return name + "(" + arguments + ")"
}

func encodeArguments(param, value string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	// A map of strings always encodes.
	_ = enc.Encode(map[string]string{param: value})
	return strings.TrimSuffix(b.String(), "\n")
}

func isObject(text string) bool {
	return strings.HasPrefix(strings.TrimSpace(text), "{") && json.Valid([]byte(text))
}

// canonicalJSON rewrites JSON so that spacing and the order of members do not
// matter; other text is returned as it is.
func canonicalJSON(text string) string {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil || dec.More() {
		return text
	}
	out, err := json.Marshal(v)
	if err != nil {
		return text
	}
	return string(out)
}
