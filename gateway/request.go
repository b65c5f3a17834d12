package gateway

import (
	"strconv"
	"strings"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/internal/jsonx"
	"agentlightning/semconv"
)

// requestOf returns the data of the model request that a span records which was
// not recorded below /proxy: put together from its attributes, in the order of
// the protocol.
func requestOf(s *agl.Span) jsonx.Raw {
	a := s.Attributes
	model := textOf(a, semconv.GenAIRequestModel)
	version := numberOf(a, semconv.CallVersion, "0")
	out := appendMember([]byte{'{'}, "model", model)
	out = appendMember(out, "model_version", version)
	c := conversationOf(s)
	out = appendMember(out, "request", c.request(model, a))
	out = appendMember(out, "response", responseBody(s, c.answered))
	server := appendMember([]byte{'{'}, "model", model)
	server = appendMember(server, "endpoint", textOf(a, semconv.CallBackend))
	out = appendMember(out, "server", append(appendMember(server, "version", version), '}'))
	latency := 0.0
	if s.StartTime != nil && s.EndTime != nil {
		latency = (*s.EndTime - *s.StartTime) * 1000
	}
	out = appendMember(out, "latency_ms", jsonx.AppendFloat(nil, latency))
	out = appendMember(out, "http_status", numberOf(a, semconv.CallStatus, "null"))
	status := "ok"
	if s.Status.StatusCode == agl.StatusError {
		status = "error"
	}
	out = appendMember(out, "status", jsonx.AppendString(nil, status))
	out = appendMember(out, "retry_count", numberOf(a, semconv.CallRetries, "0"))
	out = appendMember(out, memberRoutes, jsonx.Raw("null"))
	out = appendMember(out, "usage", usageOf(a))
	return append(appendMember(out, "finish_reason", finishReason(a)), '}')
}

// conversation is what a span says was asked and answered.
type conversation struct {
	asked, tools []jsonx.Raw
	answered     jsonx.Raw // nil when there is no answer
}

func conversationOf(s *agl.Span) (c conversation) {
	found, err := adapter.Messages([]agl.Span{*s})
	if err != nil || len(found) == 0 {
		return c // a span without texts, as when they are not stored
	}
	for _, m := range found[0].Messages {
		c.asked = append(c.asked, jsonx.Raw(m))
	}
	for _, t := range found[0].Tools {
		c.tools = append(c.tools, jsonx.Raw(t))
	}
	if _, ok := s.Attributes.Get(semconv.CompletionKey(0, "role")); ok && len(c.asked) > 0 {
		last := len(c.asked) - 1
		c.asked, c.answered = c.asked[:last], c.asked[last]
	}
	return c
}

// request returns the body of a chat completion that says what was asked.
func (c *conversation) request(model jsonx.Raw, a agl.Attributes) jsonx.Raw {
	out := appendMember([]byte{'{'}, "model", model)
	out = appendMember(out, "messages", listOf(c.asked))
	if len(c.tools) > 0 {
		out = appendMember(out, "tools", listOf(c.tools))
	}
	var parameters agl.Attributes
	for _, p := range a {
		switch name, ok := strings.CutPrefix(p.Key, semconv.GenAIRequest+"."); {
		case !ok, p.Key == semconv.GenAIRequestModel, p.Key == semconv.GenAIRequestType, strings.Contains(name, "."):
		case p.Key == semconv.GenAIStreaming:
			if p.Value == true {
				parameters = append(parameters, agl.Attribute{Key: "stream", Value: true})
			}
		default:
			parameters = append(parameters, agl.Attribute{Key: name, Value: p.Value})
		}
	}
	members, err := jsonx.Members(parameters.AppendJSON(nil))
	if err != nil {
		members = nil // there are none
	}
	for _, m := range members {
		out = appendMember(out, m.Key, m.Value)
	}
	return append(out, '}')
}

func responseBody(s *agl.Span, answered jsonx.Raw) jsonx.Raw {
	a := s.Attributes
	if s.Status.StatusCode == agl.StatusError {
		message := append(appendMember([]byte{'{'}, "message", textOf(a, semconv.CallMessage)), '}')
		return append(appendMember([]byte{'{'}, "error", message), '}')
	}
	choice := []byte(`{"index":0`)
	if answered != nil {
		choice = appendMember(choice, "message", answered)
	}
	choice = appendMember(choice, "finish_reason", finishReason(a))
	if ids, ok := intsOf(a, semconv.ResponseTokenIDs); ok {
		choice = appendMember(choice, "token_ids", ids)
	}
	if v, ok := a.Get(semconv.ResponseLogprobs); ok {
		if values, ok := v.([]float64); ok {
			choice = appendMember(choice, "logprobs", logprobsOf(values))
		}
	}
	out := appendMember([]byte{'{'}, "id", textOf(a, semconv.GenAIResponseID))
	out = appendMember(out, "model", textOf(a, semconv.GenAIResponseModel))
	if ids, ok := intsOf(a, semconv.PromptTokenIDs); ok {
		out = appendMember(out, "prompt_token_ids", ids)
	}
	out = appendMember(out, "choices", append(append([]byte{'['}, append(choice, '}')...), ']'))
	return append(appendMember(out, "usage", usageOf(a)), '}')
}

func logprobsOf(values []float64) jsonx.Raw {
	out := []byte(`{"content":[`)
	for i, f := range values {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(jsonx.AppendFloat(append(out, `{"logprob":`...), f), '}')
	}
	return append(out, "]}"...)
}

func usageOf(a agl.Attributes) jsonx.Raw {
	out := []byte{'{'}
	for _, u := range [...]struct{ name, key string }{
		{"prompt_tokens", semconv.GenAIInputTokens},
		{"completion_tokens", semconv.GenAIOutputTokens},
		{"total_tokens", semconv.GenAITotalTokens},
	} {
		if n := numberOf(a, u.key, ""); len(n) > 0 {
			out = appendMember(out, u.name, n)
		}
	}
	if len(out) == 1 {
		return jsonx.Raw("null")
	}
	return append(out, '}')
}

func finishReason(a agl.Attributes) jsonx.Raw {
	return textOf(a, semconv.CompletionKey(0, "finish_reason"))
}

func textOf(a agl.Attributes, key string) jsonx.Raw {
	s, ok := a.String(key)
	if !ok {
		return jsonx.Raw("null")
	}
	return jsonx.AppendString(nil, s)
}

func numberOf(a agl.Attributes, key, missing string) jsonx.Raw {
	v, _ := a.Get(key)
	n, ok := v.(int64)
	if !ok {
		return jsonx.Raw(missing)
	}
	return strconv.AppendInt(nil, n, 10)
}

func intsOf(a agl.Attributes, key string) (jsonx.Raw, bool) {
	v, _ := a.Get(key)
	ids, ok := v.([]int64)
	if !ok {
		return nil, false
	}
	out := []byte{'['}
	for i, id := range ids {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, id, 10)
	}
	return append(out, ']'), true
}
