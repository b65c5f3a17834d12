package llmproxy

import (
	"net/http"
	"regexp"
	"strings"

	agl "agentlightning"
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
