// Package walker is the agent of the grid: it asks a model where to go and goes
// there, until it is out of the house or out of moves. It remembers nothing: each
// call of the model begins with what the walker sees now.
//
// Nothing in it knows that the model is being trained, or how. What it earns on
// the way is emitted where it was earned, so that a rule of credit can look at it.
package walker

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/emit"
	"agentlightning/examples/grid/world"
	"agentlightning/examples/internal/lesson"
	"agentlightning/learner/native"
)

// What is earned on the way: the key, and walking into a wall or saying anything
// but a direction. The final reward is 1 for leaving the house with the key,
// otherwise 0.
const (
	KeyReward  = 0.5
	BumpReward = -0.1
)

// maxTurnTokens bounds one answer of the model; a move is two tokens.
const maxTurnTokens = 4

// Walker is the agent. Client must be set; Retries is how often a call that
// failed is repeated.
type Walker struct {
	Client  *http.Client
	Retries int
}

// Agent wraps the walker for the runner; its tasks are those of package world.
func (w *Walker) Agent() agent.Agent {
	return agent.New(func(ctx context.Context, t world.Task, c *agent.Call) (float64, error) {
		llm, err := c.LLM("")
		if err != nil {
			return 0, err
		}
		return w.walk(ctx, llm, t, lesson.SamplingOf(c))
	}, agent.NeedLLM(""))
}

func (w *Walker) walk(ctx context.Context, llm agl.LLM, t world.Task, how lesson.Sampling) (float64, error) {
	house, err := world.New(t)
	if err != nil {
		return 0, err
	}
	key := "none"
	if llm.APIKey != nil {
		key = *llm.APIKey
	}
	client := openai.NewClient(option.WithBaseURL(llm.Endpoint), option.WithAPIKey(key), option.WithHTTPClient(w.Client),
		option.WithMaxRetries(w.Retries))
	for turn := 0; !house.Over(); turn++ {
		completion, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
			Model:               llm.Model,
			Messages:            []openai.ChatCompletionMessageParamUnion{openai.UserMessage(house.Situation())},
			Temperature:         openai.Float(how.Temperature),
			Seed:                openai.Int(how.Seed + int64(turn)),
			MaxCompletionTokens: openai.Int(maxTurnTokens),
		})
		if err != nil {
			return 0, fmt.Errorf("move %d: %w", turn+1, lesson.Readable(err))
		}
		if len(completion.Choices) == 0 {
			return 0, fmt.Errorf("move %d: the model's answer has no choices", turn+1)
		}
		move, err := house.Go(strings.TrimSpace(completion.Choices[0].Message.Content))
		if err != nil {
			move.Bumped = true // the model's mistake
		}
		if err := reward(ctx, move); err != nil {
			return 0, err
		}
	}
	if house.Out() {
		return 1, nil
	}
	return 0, nil
}

// reward puts on the trace what a move earned by itself.
func reward(ctx context.Context, m world.Move) error {
	switch {
	case m.Found:
		return emit.Reward(ctx, KeyReward)
	case m.Bumped:
		return emit.Reward(ctx, BumpReward)
	}
	return nil
}

// Messages is a demonstration in the form in which the model is asked later.
func Messages(d world.Demonstration) []native.Message {
	return []native.Message{
		{Role: native.RoleUser, Text: d.Situation},
		{Role: native.RoleAssistant, Text: d.Direction},
	}
}

// Tokenizer is that of a model that is to walk.
func Tokenizer() *native.Tokenizer { return native.NewTokenizer(world.Words()) }
