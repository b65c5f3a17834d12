package genai

import (
	"fmt"

	"agentlightning/llm/openai"
	"agentlightning/semconv"
)

// CheckTokenIDs holds the token ids of an answer against its usage. It returns
// one of the names that [semconv] gives to problems and what is wrong in words,
// both empty when the call can be trained on. The answer has a choice.
func CheckTokenIDs(a *openai.Answer) (problem, message string) {
	prompt, first, sampled := a.PromptTokenIDs, a.Choices[0].TokenIDs, int64(0)
	some := prompt != nil
	all := some
	for i := range a.Choices {
		ids := a.Choices[i].TokenIDs
		some = some || ids != nil
		all = all && ids != nil
		sampled += int64(len(ids))
	}
	incomplete := semconv.ProblemTokenIDsIncomplete
	switch {
	case !some:
		return semconv.ProblemTokenIDsMissing, "the backend returned no token ids; it has to support return_token_ids, as vLLM does"
	case prompt == nil, first == nil:
		return incomplete, "the backend returned token ids of only one of prompt and answer"
	case a.Usage == nil: // nothing to compare with
	case int64(len(prompt)) != a.Usage.Prompt:
		return incomplete, fmt.Sprintf("%d prompt token ids, but usage counts %d", len(prompt), a.Usage.Prompt)
	case all && sampled != a.Usage.Completion:
		return incomplete, fmt.Sprintf("%d token ids in the answer, but usage counts %d", sampled, a.Usage.Completion)
	}
	return "", ""
}
