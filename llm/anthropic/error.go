package anthropic

import (
	"net/http"

	"agentlightning/internal/jsonx"
	"agentlightning/llm/openai"
)

// AppendError appends the body of an answer that reports an error.
func AppendError(dst []byte, status int, e *openai.Error) []byte {
	b := jsonx.Builder{Bytes: dst}
	b.Open('{').Key("type").Text("error").Key("error").Open('{')
	b.Key("type").Text(errorType(status)).Key("message").Text(e.Message)
	if e.Param == paramThread {
		// Clients that read this go on without threads.
		b.Key("details").Open('{').Key("error_code").Text("thread_unsupported_request")
		b.Key("unsupported").Open('[').Text(paramThread).Close(']').Close('}')
	}
	return b.Close('}').Close('}').Bytes
}

// AppendErrorEvent appends the event that ends a stream which broke.
func AppendErrorEvent(dst []byte, status int, e *openai.Error) []byte {
	dst = append(dst, "event: error\ndata: "...)
	return append(AppendError(dst, status, e), "\n\n"...)
}

// errorType returns the word that Anthropic has for an error of a status.
func errorType(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusServiceUnavailable, 529:
		return "overloaded_error"
	case http.StatusGatewayTimeout, http.StatusRequestTimeout:
		return openai.TypeTimeout
	}
	if status < 500 {
		return openai.TypeInvalidRequest
	}
	return "api_error"
}
