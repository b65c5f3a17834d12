package openai

import (
	"strings"

	"agentlightning/internal/jsonx"
)

// The types of errors that OpenAI's clients tell apart.
const (
	TypeInvalidRequest = "invalid_request_error"
	TypeServer         = "server_error"
	TypeTimeout        = "timeout_error"
	TypeRateLimit      = "rate_limit_error"
)

// Error is a failure in the shape that OpenAI answers with.
type Error struct {
	Message string
	Type    string
	Param   string // which member of the request; empty for none
	Code    string // empty for none
}

func (e *Error) Error() string { return e.Message }

// AppendJSON appends the body of an answer that reports the error.
func (e *Error) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"error":{"message":`...)
	dst = jsonx.AppendString(dst, e.Message)
	dst = append(dst, `,"type":`...)
	dst = jsonx.AppendString(dst, e.Type)
	dst = append(dst, `,"param":`...)
	dst = appendOrNull(dst, e.Param)
	dst = append(dst, `,"code":`...)
	dst = appendOrNull(dst, e.Code)
	return append(dst, "}}"...)
}

// AppendEvent appends the event that reports the error in a stream.
func (e *Error) AppendEvent(dst []byte) []byte {
	return append(e.AppendJSON(append(dst, "data: "...)), "\n\n"...)
}

func appendOrNull(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return jsonx.AppendString(dst, s)
}

// ErrorMessage returns what the body of a failed answer says: the message in
// OpenAI's shape or in those of common engines, otherwise the beginning of the
// body.
func ErrorMessage(body []byte) string {
	members, err := jsonx.Members(body)
	if err == nil {
		for _, key := range [...]string{"error", "message", "detail"} {
			raw := jsonx.Get(members, key)
			if inner, err := jsonx.Members(raw); err == nil {
				raw = jsonx.Get(inner, "message")
			}
			switch jsonx.KindOf(raw) {
			case jsonx.String:
				text, _ := jsonx.Text(raw)
				return text
			case jsonx.Array, jsonx.Object:
				return string(raw)
			}
		}
	}
	const most = 500
	text := strings.ToValidUTF8(string(body[:min(len(body), most)]), "\ufffd")
	return strings.TrimSpace(text)
}

// IsContextOverflow reports whether the body of a failed answer says that the
// prompt is longer than the model can read. Engines agree on no code for it, so
// their words count as well.
func IsContextOverflow(body []byte) bool {
	text := strings.ToLower(string(body))
	for _, words := range [...]string{
		"context_length_exceeded", "maximum context length", "context window", "exceed_context_size",
		"exceeds the context", "exceeds the available context size", "exceeds the model's maximum",
		"longer than the maximum model length", "prompt is too long", "input is too long",
		"max_model_len", "context length is only",
	} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}
