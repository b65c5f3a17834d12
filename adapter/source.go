package adapter

import (
	"encoding/json"
	"strings"

	agl "agentlightning"
	"agentlightning/semconv"
)

// Who recorded a call.
const (
	sourceProxy         = "proxy"
	sourceTracer        = "tracer" // an agent's own, under the name of model calls
	sourceLiteLLM       = "LiteLLM"
	sourceWeave         = "Weave"
	sourceOpenInference = "OpenInference"
	sourceOpenLLMetry   = "OpenLLMetry"
	sourceLogfire       = "Logfire"
	sourceOpenTelemetry = "OpenTelemetry" // by the conventions for generative models
)

// sourceOf tells who recorded a span that is a model call; it is empty for all
// others.
func sourceOf(s *agl.Span) string {
	text := func(key string) string {
		v, _ := s.Attributes.String(key)
		return v
	}
	has := func(key string) bool {
		_, ok := s.Attributes.Get(key)
		return ok
	}
	switch {
	case s.Name == semconv.SpanModelCall && (has(semconv.CallBackend) || has(semconv.CallProblem)):
		return sourceProxy // a call that failed early had no backend yet
	case s.Name == semconv.SpanModelCall:
		return sourceTracer
	case s.Name == spanRawRequest || s.Name == spanRequest:
		return sourceLiteLLM
	case strings.Contains(s.Name, semconv.SpanModelCall): // as in openai.chat.completions.create
		return sourceWeave
	case text("openinference.span.kind") == "LLM":
		return sourceOpenInference
	case has("llm.request.type"): // before it kept to the conventions
		return sourceOpenLLMetry
	}
	switch text(semconv.GenAIOperation) {
	case "chat", "text_completion", "generate_content":
	default:
		return ""
	}
	switch {
	case text("logfire.span_type") == "span":
		return sourceLogfire
	case has("logfire.span_type"): // a log that belongs to a span
		return ""
	case has("gen_ai.is_streaming") || has("gen_ai.openai.api_base"):
		return sourceOpenLLMetry
	}
	return sourceOpenTelemetry
}

// rawAnswer is what is read of an answer in OpenAI's shape, as OpenInference
// records it whole: with the engine's ids, when the agent asked for them.
type rawAnswer struct {
	ID          string    `json:"id"`
	Prompt      []int64   `json:"prompt_token_ids"`
	ResponseIDs [][]int64 `json:"response_token_ids"`
	Choices     []struct {
		Prompt   []int64 `json:"prompt_token_ids"`
		TokenIDs []int64 `json:"token_ids"`
		Specific struct {
			TokenIDs []int64 `json:"token_ids"`
		} `json:"provider_specific_fields"`
		Logprobs struct {
			Content json.RawMessage `json:"content"`
		} `json:"logprobs"`
	} `json:"choices"`
}

// answerOf reads the answer that a span of OpenInference holds.
func answerOf(s *agl.Span) (a rawAnswer) {
	if text, ok := s.Attributes.String("output.value"); ok && json.Unmarshal([]byte(text), &a) != nil {
		return rawAnswer{} // it need not be an answer of OpenAI's
	}
	return a
}

func (a *rawAnswer) ids() (prompt, response []int64) {
	prompt = a.Prompt
	if len(a.ResponseIDs) > 0 {
		response = a.ResponseIDs[0]
	}
	if len(a.Choices) == 0 {
		return prompt, response
	}
	first := &a.Choices[0]
	if prompt == nil {
		prompt = first.Prompt
	}
	for _, ids := range [][]int64{first.TokenIDs, first.Specific.TokenIDs} {
		if response == nil {
			response = ids
		}
	}
	return prompt, response
}

// finishReason returns why the answer ended, in the first of the ways that it is
// recorded.
func finishReason(s *agl.Span) string {
	for _, key := range [...]string{semconv.CompletionKey(0, "finish_reason"), "llm.finish_reason", semconv.OperationOutput + ".choices.0.finish_reason"} {
		if reason, ok := s.Attributes.String(key); ok {
			return reason
		}
	}
	v, _ := s.Attributes.Get(semconv.GenAIFinishReasons)
	reasons, _ := v.([]string)
	if text, ok := v.(string); ok && json.Unmarshal([]byte(text), &reasons) != nil {
		return text
	}
	if len(reasons) > 0 {
		return reasons[0]
	}
	return ""
}
