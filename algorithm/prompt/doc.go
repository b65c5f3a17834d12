// Package prompt is what optimisers of prompts share: the model that they ask
// for better ones, templates that stay intact when a model rewrites them, and
// what spans say beside the reward.
package prompt

import "context"

// Completer answers a chat: the model that criticises and rewrites prompts.
// Package [agentlightning/algorithm/prompt/openai] has one over OpenAI's API.
// An optimiser makes one call at a time.
type Completer interface {
	Complete(ctx context.Context, r Request) (Answer, error)
}

// CompleterFunc is a function as a [Completer].
type CompleterFunc func(ctx context.Context, r Request) (Answer, error)

// Complete calls f.
func (f CompleterFunc) Complete(ctx context.Context, r Request) (Answer, error) { return f(ctx, r) }

// Request is a chat to be answered.
type Request struct {
	Model       string
	Temperature float64
	Messages    []Message
	// Purpose is what the answer is for: "gradient", "edit" or "reflect". It is
	// for logs and scripted models and is not sent.
	Purpose string
}

// The roles of messages.
const (
	RoleSystem = "system"
	RoleUser   = "user"
)

// Message is one message of a chat.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Answer is what a model said, and what that took.
type Answer struct {
	Text string `json:"text"`
	// InputTokens and OutputTokens are what the service counted; 0 when it does not say.
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	// Cost is the price of the call, in whatever currency its caps are in.
	Cost float64 `json:"cost"`
}
