package llmproxy

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/semconv"
)

// What stands in spans for what is not stored.
const (
	redacted  = "[redacted]"
	hiddenKey = "[key]"
)

// shortestKey is from how many bytes on a key is a secret. Shorter ones are what
// servers without keys are given, such as "dummy" or "EMPTY", and words like
// those may stand in any prompt.
const shortestKey = 12

// privacy is what of calls is not stored.
type privacy struct {
	noBodies bool
	rules    []*regexp.Regexp
}

// apply takes out of the attributes what is not to be stored, keys above all: a
// backend may repeat one in an error.
func (p *privacy) apply(attrs attributes, keys []string) attributes {
	if p.noBodies {
		attrs = withoutBodies(attrs)
	}
	hit := false
	for i := range attrs {
		switch v := attrs[i].Value.(type) {
		case string:
			if attrs[i].Key == semconv.EventData {
				v = p.cleanEvent(v)
			}
			text, found := p.clean(v, attrs[i].Key, keys)
			attrs[i].Value, hit = text, hit || found
		case []string:
			for j := range v {
				text, found := p.clean(v[j], attrs[i].Key, keys)
				v[j], hit = text, hit || found
			}
		}
	}
	if hit {
		// The text of tokens spells out, in pieces, what a rule took out elsewhere.
		// The data of an event repeats everything; readers make it up from the rest.
		attrs = without(attrs, func(key string) bool {
			return key == semconv.LogprobsContent || key == semconv.LogprobsRefusal || key == semconv.EventData
		})
	}
	return attrs
}

// clean returns a text without keys and without what a rule matches; found tells
// of the latter.
func (p *privacy) clean(text, key string, keys []string) (clean string, found bool) {
	for _, k := range keys {
		if strings.Contains(text, k) {
			text = strings.ReplaceAll(text, k, hiddenKey)
		}
	}
	if !isBody(key) {
		return text, false
	}
	for _, rule := range p.rules {
		if rule.MatchString(text) {
			text, found = rule.ReplaceAllLiteralString(text, redacted), true
		}
	}
	return text, found
}

// isBody reports whether an attribute says what was asked and answered, or may.
func isBody(key string) bool {
	return strings.HasPrefix(key, semconv.GenAIPrompt+".") && !strings.HasSuffix(key, ".role") ||
		strings.HasPrefix(key, semconv.GenAICompletion+".") && !strings.HasSuffix(key, ".role") && !strings.HasSuffix(key, ".finish_reason") ||
		strings.HasPrefix(key, semconv.GenAIRequestFunction+".") ||
		key == semconv.GenAIRequest+".stop" || key == semconv.GenAIRequest+".response_format" || key == semconv.GenAIRequest+".tool_choice" ||
		key == semconv.LogprobsContent || key == semconv.LogprobsRefusal || key == semconv.EventData || key == semconv.CallMessage ||
		key == rawPrefix+"messages"
}

// cleanEvent applies the rules to what another protocol keeps of a call: the JSON
// of request and response.
func (p *privacy) cleanEvent(data string) string {
	if !p.noBodies && len(p.rules) == 0 {
		return data
	}
	return string(p.appendClean(nil, []byte(data)))
}

// bodyMembers are the members of requests and responses that hold what was asked
// and answered.
var bodyMembers = [...]string{
	"messages", "prompt", "suffix", "input", "instructions", "system", "tools", "functions", "stop", "response_format",
	"text", "delta", "output", "token", "bytes", "top_logprobs",
}

// appendClean writes JSON without what is not to be stored, token ids and
// log-probabilities with it.
func (p *privacy) appendClean(dst, raw []byte) []byte {
	switch jsonx.KindOf(raw) {
	case jsonx.Object:
		members, err := jsonx.Members(raw)
		if err != nil {
			return append(dst, "null"...)
		}
		dst = append(dst, '{')
		first := true
		for _, m := range members {
			// Of an answer it is the message, of an error the reason.
			body := m.Key == "message" && jsonx.KindOf(m.Value) == jsonx.Object || slices.Contains(bodyMembers[:], m.Key)
			if p.noBodies && body {
				continue
			}
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = append(jsonx.AppendString(dst, m.Key), ':')
			dst = p.appendClean(dst, m.Value)
		}
		return append(dst, '}')
	case jsonx.Array:
		elements, err := jsonx.Elements(raw)
		if err != nil {
			return append(dst, "null"...)
		}
		dst = append(dst, '[')
		for i, e := range elements {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = p.appendClean(dst, e)
		}
		return append(dst, ']')
	case jsonx.String:
		if text, err := jsonx.Text(raw); err == nil {
			text, _ = p.clean(text, semconv.CallMessage, nil)
			return jsonx.AppendString(dst, text)
		}
		return append(dst, `""`...)
	case jsonx.Invalid, jsonx.Null, jsonx.Bool, jsonx.Number:
	}
	return append(dst, raw...)
}

// withoutBodies leaves counts, ids, names and reasons. What went wrong is kept,
// in the proxy's words or the backend's.
func withoutBodies(attrs attributes) attributes {
	return without(attrs, func(key string) bool { return isBody(key) && key != semconv.CallMessage })
}

func without(attrs attributes, drop func(key string) bool) attributes {
	kept := attrs[:0]
	for _, a := range attrs {
		if !drop(a.Key) {
			kept = append(kept, a)
		}
	}
	return kept
}

// secrets returns the keys that went with a call: the caller's and the backend's.
func (c *call) secrets() []string {
	var keys []string
	add := func(key string) {
		if len(key) >= shortestKey {
			keys = append(keys, key)
		}
	}
	for _, name := range requestOnly {
		switch name {
		case "Authorization", "X-Api-Key", "Api-Key", "Cookie":
			for _, value := range c.r.Header[http.CanonicalHeaderKey(name)] {
				add(value)
				if _, key, ok := strings.Cut(value, " "); ok {
					add(key)
				}
			}
		}
	}
	if c.backend != nil {
		add(c.backend.key)
	}
	return keys
}

// cleanSpan applies the rules to a span.
func (p *privacy) cleanSpan(s *agl.Span, keys []string) {
	s.Attributes = agl.Attributes(p.apply(attributes(s.Attributes), keys))
	if s.Status.Description != nil {
		text, _ := p.clean(*s.Status.Description, semconv.CallMessage, keys)
		s.Status.Description = &text
	}
}
