package lesson

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"agentlightning/agent"
)

// Role is one of several agents of a rollout as it reaches its model: its calls
// bear its name.
type Role struct {
	client      openai.Client
	name, model string
}

// NewRole returns the role of that name in a call, whose client repeats a request
// that failed as often as it is told.
func NewRole(c *agent.Call, name string, client *http.Client, retries int) (*Role, error) {
	llm, err := c.AgentLLM(name, "")
	if err != nil {
		return nil, err
	}
	key := "none"
	if llm.APIKey != nil {
		key = *llm.APIKey
	}
	return &Role{
		openai.NewClient(option.WithBaseURL(llm.Endpoint), option.WithAPIKey(key), option.WithHTTPClient(client), option.WithMaxRetries(retries)),
		name, llm.Model,
	}, nil
}

// Say asks the role's model and returns its answer.
func (r *Role) Say(ctx context.Context, params openai.ChatCompletionNewParams) (openai.ChatCompletionMessage, error) {
	params.Model = r.model
	completion, err := r.client.Chat.Completions.New(ctx, params)
	if err != nil {
		return openai.ChatCompletionMessage{}, fmt.Errorf("%s: %w", r.name, Readable(err))
	}
	if len(completion.Choices) == 0 {
		return openai.ChatCompletionMessage{}, errors.New(r.name + ": the answer of " + r.model + " has no choices")
	}
	return completion.Choices[0].Message, nil
}
