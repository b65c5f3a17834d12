package llmproxy

import (
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	agl "agentlightning"
)

// What callers say of themselves in headers.
const (
	headerAgent   = "X-Agl-Agent"
	headerBaggage = "Baggage"
	headerTrace   = "Traceparent"
)

// maxAgentName bounds the name of an agent, in characters.
const maxAgentName = 200

// agentOf returns the name of the agent that calls: from its own header, from
// W3C baggage, or from the path; empty when it says nothing.
func agentOf(h http.Header, inPath string) string {
	for _, name := range [...]string{h.Get(headerAgent), agentInBaggage(h[headerBaggage]), inPath} {
		if name = plainName(name); name != "" {
			return name
		}
	}
	return ""
}

// agentInBaggage returns the member that names an agent, of W3C baggage such as
// "agl.agent=planner;p=1,other=x".
func agentInBaggage(lines []string) string {
	for _, line := range lines {
		for member := range strings.SplitSeq(line, ",") {
			member, _, _ = strings.Cut(member, ";")
			key, value, _ := strings.Cut(member, "=")
			switch strings.TrimSpace(key) {
			case "agl.agent", "gen_ai.agent.name":
				if name, err := url.PathUnescape(strings.TrimSpace(value)); err == nil {
					return name
				}
			}
		}
	}
	return ""
}

// plainName makes a name fit for a line of text.
func plainName(name string) string {
	name = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, name))
	if n := []rune(name); len(n) > maxAgentName {
		name = string(n[:maxAgentName])
	}
	return name
}

// parentOf returns the span that a W3C traceparent names, nil when there is none
// that is valid.
func parentOf(h http.Header) *agl.SpanContext {
	// version-trace-span-flags, of 2, 32, 16 and 2 hexadecimal digits. Later
	// versions may have more behind.
	parts := strings.SplitN(strings.TrimSpace(h.Get(headerTrace)), "-", 5)
	if len(parts) < 4 || !hexadecimal(parts[0], 1) || parts[0] == "ff" || !hexadecimal(parts[1], 16) || !hexadecimal(parts[2], 8) ||
		!hexadecimal(parts[3], 1) || parts[0] == "00" && len(parts) != 4 ||
		strings.Trim(parts[1], "0") == "" || strings.Trim(parts[2], "0") == "" {
		return nil
	}
	return &agl.SpanContext{TraceID: parts[1], SpanID: parts[2], IsRemote: true}
}

// hexadecimal reports whether s is so many bytes in lower-case digits.
func hexadecimal(s string, bytes int) bool {
	if len(s) != 2*bytes || strings.ToLower(s) != s {
		return false
	}
	_, err := hex.DecodeString(s)
	return err == nil
}
