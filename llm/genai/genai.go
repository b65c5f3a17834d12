// Package genai puts model calls as attributes of spans, under the names of
// OpenTelemetry's conventions for generative models and the older ones that
// readers of traces of release 0.3 know. Whoever sees a call writes it the same
// way: the proxy between agent and model, or a client within the agent.
package genai

import (
	"strconv"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/llm/openai"
	"agentlightning/semconv"
)

// AppendRequest appends what a call asks for: its operation (chat,
// text_completion), the model, the parameters, the messages and the tools.
// Members of the request that have no place in a span, such as keys, are left
// out.
func AppendRequest(dst agl.Attributes, operation string, req *openai.Request) agl.Attributes {
	a := attributes(dst)
	a.request(operation, req)
	return agl.Attributes(a)
}

// AppendAnswer appends what a call was answered: texts, tool calls, usage, and
// the token ids and log-probabilities of the first choice. Log-probabilities
// are given beside the ids only when there is one for each.
func AppendAnswer(dst agl.Attributes, answer *openai.Answer) agl.Attributes {
	a := attributes(dst)
	a.answer(answer)
	return agl.Attributes(a)
}

// attributes are built in order and never looked up.
type attributes agl.Attributes

func (a *attributes) add(key string, value any) {
	*a = append(*a, agl.Attribute{Key: key, Value: value})
}

func (a *attributes) text(key, value string) {
	if value != "" {
		a.add(key, value)
	}
}

// parameters are the members of a request that are recorded. Others may hold
// what must not be stored, such as keys.
var parameters = [...]string{
	"max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p", "n", "seed",
	"stop", "frequency_penalty", "presence_penalty", "repetition_penalty", "top_logprobs", "tool_choice",
	"parallel_tool_calls", "response_format", "reasoning_effort",
}

func (a *attributes) request(operation string, req *openai.Request) {
	a.add(semconv.GenAIOperation, operation)
	a.add(semconv.GenAIRequestType, "chat")
	a.add(semconv.GenAISystem, "OpenAI")
	a.add(semconv.GenAIRequestModel, req.Model)
	a.add(semconv.GenAIStreaming, req.Stream)
	for _, key := range parameters {
		a.value(semconv.GenAIRequest+"."+key, req.Raw(key))
	}
	a.messages(req.Raw("messages"))
	a.tools(req.Raw("tools"))
}

// value adds a member as it is when attributes can hold it, otherwise as JSON.
func (a *attributes) value(key string, raw []byte) {
	switch jsonx.KindOf(raw) {
	case jsonx.Invalid, jsonx.Null:
	case jsonx.Object:
		a.add(key, string(raw))
	default:
		if v, err := agl.ParseAttributeValue(raw); err == nil {
			a.add(key, v)
		} else {
			a.add(key, string(raw))
		}
	}
}

func (a *attributes) messages(raw []byte) {
	messages, err := jsonx.Elements(raw)
	if err != nil {
		return
	}
	for i, m := range messages {
		members, err := jsonx.Members(m)
		if err != nil {
			continue
		}
		prefix := semconv.GenAIPrompt + "." + strconv.Itoa(i) + "."
		for _, m := range members {
			switch m.Key {
			case "role", "tool_call_id", "name", "refusal", "reasoning_content":
				if text, err := jsonx.Text(m.Value); err == nil {
					a.add(prefix+m.Key, text)
				}
			case "content":
				a.content(prefix+"content", m.Value)
			case "tool_calls":
				a.askedCalls(prefix, m.Value)
			}
		}
	}
}

// content adds a text; parts become their JSON.
func (a *attributes) content(key string, raw []byte) {
	switch jsonx.KindOf(raw) {
	case jsonx.Invalid, jsonx.Null:
	case jsonx.String:
		if text, err := jsonx.Text(raw); err == nil {
			a.add(key, text)
		}
	default:
		a.add(key, string(raw))
	}
}

// askedCalls adds the tool calls of a message that is part of the prompt.
func (a *attributes) askedCalls(prefix string, raw []byte) {
	calls, err := jsonx.Elements(raw)
	if err != nil {
		return
	}
	for i, raw := range calls {
		call, err := jsonx.Members(raw)
		if err != nil {
			continue
		}
		function, _ := jsonx.Members(jsonx.Get(call, "function"))
		a.content(prefix+semconv.ToolCallKey(i, "id"), jsonx.Get(call, "id"))
		a.content(prefix+semconv.ToolCallKey(i, "name"), jsonx.Get(function, "name"))
		a.content(prefix+semconv.ToolCallKey(i, "arguments"), jsonx.Get(function, "arguments"))
	}
}

func (a *attributes) tools(raw []byte) {
	tools, err := jsonx.Elements(raw)
	if err != nil {
		return
	}
	for i, tool := range tools {
		members, _ := jsonx.Members(tool)
		function, err := jsonx.Members(jsonx.Get(members, "function"))
		if err != nil {
			continue
		}
		for _, key := range [...]string{"name", "description", "parameters"} {
			a.content(semconv.FunctionKey(i, key), jsonx.Get(function, key))
		}
	}
}

func (a *attributes) answer(answer *openai.Answer) {
	a.text(semconv.GenAIResponseID, answer.ID)
	a.text(semconv.GenAIResponseModel, answer.Model)
	reasons := make([]string, 0, len(answer.Choices))
	for i := range answer.Choices {
		choice := &answer.Choices[i]
		prefix := semconv.GenAICompletion + "." + strconv.Itoa(i) + "."
		if choice.FinishReason != "" {
			reasons = append(reasons, choice.FinishReason)
			a.add(prefix+"finish_reason", choice.FinishReason)
		}
		role := choice.Role
		if role == "" {
			role = "assistant"
		}
		a.add(prefix+"role", role)
		if choice.Content != nil {
			a.add(prefix+"content", *choice.Content)
		}
		a.text(prefix+"refusal", choice.Refusal)
		a.text(prefix+"reasoning_content", choice.Reasoning)
		for j, call := range choice.ToolCalls {
			a.text(prefix+semconv.ToolCallKey(j, "id"), call.ID)
			a.text(prefix+semconv.ToolCallKey(j, "type"), call.Type)
			a.add(prefix+semconv.ToolCallKey(j, "name"), call.Name)
			a.add(prefix+semconv.ToolCallKey(j, "arguments"), call.Arguments)
		}
	}
	if len(reasons) > 0 {
		a.add(semconv.GenAIFinishReasons, reasons)
	}
	a.usage(answer.Usage)
	a.tokens(answer)
}

// usage adds the counts under the names of the conventions and under the older
// ones that readers of agents' own traces know.
func (a *attributes) usage(u *openai.Usage) {
	if u == nil {
		return
	}
	a.add(semconv.GenAIInputTokens, u.Prompt)
	a.add(semconv.GenAIOutputTokens, u.Completion)
	a.add("gen_ai.usage.prompt_tokens", u.Prompt)
	a.add("gen_ai.usage.completion_tokens", u.Completion)
	a.add(semconv.GenAITotalTokens, u.Total)
}

// tokens adds what training needs: the ids and log-probabilities of the first
// choice.
func (a *attributes) tokens(answer *openai.Answer) {
	if answer.PromptTokenIDs != nil {
		a.add(semconv.PromptTokenIDs, answer.PromptTokenIDs)
	}
	if len(answer.Choices) == 0 {
		return
	}
	first := &answer.Choices[0]
	if first.TokenIDs != nil {
		a.add(semconv.ResponseTokenIDs, first.TokenIDs)
	}
	if len(first.Logprobs) > 0 && len(first.Logprobs) == len(first.TokenIDs) {
		a.add(semconv.ResponseLogprobs, first.Logprobs)
	}
	a.logprobs(semconv.LogprobsContent, first.LogprobsContent)
	a.logprobs(semconv.LogprobsRefusal, first.LogprobsRefusal)
}

// logprobs adds a list of log-probabilities as JSON, without what says nothing:
// it is most of a span already.
func (a *attributes) logprobs(key string, list []byte) {
	if list != nil {
		a.add(key, string(openai.AppendLogprobs(make([]byte, 0, len(list)), list)))
	}
}
