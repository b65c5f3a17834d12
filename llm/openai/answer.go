package openai

// Answer is what a chat completion or a completion says, whole or gathered from its chunks.
type Answer struct {
	ID    string
	Model string
	// Created is in Unix seconds, 0 when the answer does not say.
	Created int64
	// PromptTokenIDs are the ids that the engine read, nil when it did not say.
	PromptTokenIDs []int64
	Choices        []Choice // by index
	Usage          *Usage
}

// Usage counts tokens. Completion tokens are those of all choices.
type Usage struct {
	Prompt, Completion, Total int64
	// Cached are those of the prompt that the engine had at hand, Reasoning
	// those of the completion that are no answer yet.
	Cached, Reasoning int64
}

// Choice is one of the answers to a request.
type Choice struct {
	Index        int
	Role         string
	Content      *string // nil when it was null or absent
	Refusal      string
	Reasoning    string
	ToolCalls    []ToolCall
	FinishReason string
	// StopSequence is the text that ended the choice, where the engine says so.
	StopSequence string

	// TokenIDs are the ids that the engine sampled, nil when it did not say.
	TokenIDs []int64
	// Logprobs are the log-probabilities of the tokens of the content, nil
	// when the engine did not say or one of them is no number.
	Logprobs []float64
	// LogprobsContent and LogprobsRefusal are the lists of which Logprobs are
	// a part, as JSON; nil when they are absent or null.
	LogprobsContent, LogprobsRefusal []byte
}

// ToolCall is a call that the model asks for.
type ToolCall struct {
	ID        string
	Type      string
	Name      string
	Arguments string // as the model wrote them, which need not be JSON
}

// Finished reports whether every choice has come to an end.
func (a *Answer) Finished() bool {
	for i := range a.Choices {
		if a.Choices[i].FinishReason == "" {
			return false
		}
	}
	return len(a.Choices) > 0
}

// ParseAnswer reads a whole answer.
func ParseAnswer(body []byte) (*Answer, error) {
	var acc Accumulator
	if err := acc.AddWhole(body); err != nil {
		return nil, err
	}
	return acc.Answer(), nil
}
