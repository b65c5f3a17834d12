// Package openai asks a server that speaks OpenAI's chat completions for better
// prompts: OpenAI itself, or any other, among them the model proxy.
package openai

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"agentlightning/algorithm/prompt"
)

// Price is what a million tokens cost, in the currency of an optimiser's cap.
type Price struct{ Input, Output float64 }

// Completer is a [prompt.Completer] over chat completions. It is safe for
// concurrent use.
type Completer struct {
	client openai.Client
	price  Price
}

var _ prompt.Completer = (*Completer)(nil)

// New returns a completer. Base URL and key come from the options, otherwise
// from OPENAI_BASE_URL and OPENAI_API_KEY. The client tries calls again that
// failed for want of capacity; [option.WithMaxRetries] says how often.
func New(price Price, options ...option.RequestOption) *Completer {
	return &Completer{openai.NewClient(options...), price}
}

// NewAt returns a completer for a server at a base URL, such as
// http://127.0.0.1:4747/v1; empty is that of [New]. A server that is named and has
// no key in OPENAI_API_KEY is asked without one.
func NewAt(baseURL string, price Price) *Completer {
	if baseURL == "" {
		return New(price)
	}
	options := []option.RequestOption{option.WithBaseURL(baseURL)}
	if os.Getenv("OPENAI_API_KEY") == "" {
		options = append(options, option.WithAPIKey("none"))
	}
	return New(price, options...)
}

// Complete asks for one answer. An answer without a choice, one that was cut off
// and one that a filter withheld are errors.
func (c *Completer) Complete(ctx context.Context, r prompt.Request) (prompt.Answer, error) {
	p := openai.ChatCompletionNewParams{Model: r.Model, Temperature: openai.Float(r.Temperature)}
	for _, m := range r.Messages {
		switch m.Role {
		case prompt.RoleSystem:
			p.Messages = append(p.Messages, openai.SystemMessage(m.Content))
		case prompt.RoleUser:
			p.Messages = append(p.Messages, openai.UserMessage(m.Content))
		default:
			return prompt.Answer{}, fmt.Errorf("message of role %q: must be %q or %q", m.Role, prompt.RoleSystem, prompt.RoleUser)
		}
	}
	got, err := c.client.Chat.Completions.New(ctx, p)
	if err != nil {
		return prompt.Answer{}, fmt.Errorf("ask model %q: %w", r.Model, err)
	}
	a := prompt.Answer{InputTokens: got.Usage.PromptTokens, OutputTokens: got.Usage.CompletionTokens}
	a.Cost = (float64(a.InputTokens)*c.price.Input + float64(a.OutputTokens)*c.price.Output) / 1e6
	if len(got.Choices) == 0 {
		return a, fmt.Errorf("ask model %q: %w", r.Model, errors.New("the answer has no choice"))
	}
	a.Text = got.Choices[0].Message.Content
	switch why := got.Choices[0].FinishReason; why { // others are whole answers
	case "length", "content_filter":
		return a, fmt.Errorf("ask model %q: the answer ended for %q", r.Model, why)
	}
	return a, nil
}
