package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/emit"
	"agentlightning/examples/internal/lesson"
)

const (
	// maxTurns is how often the model is asked.
	maxTurns = 3

	lookUp = "free_rooms"

	// The templates that are improved: how to choose a room and how to answer.
	choose = "choose"
	reply  = "reply"
)

// booker is the agent: a model is told how to work by two prompts, may ask a tool
// which rooms are free, and names a room.
type booker struct{ http *http.Client }

func (b *booker) agent() agent.Agent {
	return agent.New(func(ctx context.Context, w wish, c *agent.Call) (float64, error) {
		llm, err := c.LLM("")
		if err != nil {
			return 0, err
		}
		how, err := system(c)
		if err != nil {
			return 0, err
		}
		answer, err := b.book(ctx, llm, how, w)
		if err != nil {
			return 0, err
		}
		v := grade(w, answer)
		for _, note := range v.notes {
			if err := emit.Message(ctx, note); err != nil {
				return 0, err
			}
		}
		return v.reward, nil
	}, agent.NeedLLM(""), agent.NeedPrompt(choose), agent.NeedPrompt(reply))
}

// system is what the model is told first.
func system(c *agent.Call) (string, error) {
	var text strings.Builder
	for _, name := range []string{choose, reply} {
		template, err := c.Prompt(name)
		if err != nil {
			return "", err
		}
		part, err := template.Format(nil)
		if err != nil {
			return "", fmt.Errorf("prompt %s: %w", name, err)
		}
		text.WriteString(part + "\n")
	}
	return text.String(), nil
}

func (b *booker) book(ctx context.Context, llm agl.LLM, how string, w wish) (string, error) {
	key := "none"
	if llm.APIKey != nil {
		key = *llm.APIKey
	}
	client := openai.NewClient(option.WithBaseURL(llm.Endpoint), option.WithAPIKey(key), option.WithHTTPClient(b.http))
	messages := []openai.ChatCompletionMessageParamUnion{openai.SystemMessage(how), openai.UserMessage(w.String())}
	for turn := range maxTurns {
		completion, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
			Model: llm.Model, Messages: messages, Tools: []openai.ChatCompletionToolUnionParam{lookUpTool},
		})
		if err != nil {
			return "", fmt.Errorf("turn %d: %w", turn+1, lesson.Readable(err))
		}
		if len(completion.Choices) == 0 {
			return "", fmt.Errorf("turn %d: the model's answer has no choices", turn+1)
		}
		message := completion.Choices[0].Message
		if len(message.ToolCalls) == 0 {
			return message.Content, nil
		}
		messages = append(messages, message.ToParam())
		for _, call := range message.ToolCalls {
			result, err := emit.Do(ctx, call.Function.Name, func(context.Context) (string, error) { return useTool(call.Function.Name, call.Function.Arguments) })
			if err != nil {
				result = "error: " + err.Error() // the model's mistake, which it gets to read
			}
			messages = append(messages, openai.ToolMessage(result, call.ID))
		}
	}
	return "", errors.New("the model asked for tools in every turn and gave no answer")
}

// useTool is the tool that the model may call.
func useTool(name, arguments string) (string, error) {
	var in struct {
		Hour int `json:"hour"`
	}
	if name != lookUp {
		return "", fmt.Errorf("there is no tool %q", name)
	}
	if err := json.Unmarshal([]byte(arguments), &in); err != nil {
		return "", fmt.Errorf("the arguments are not an object with an hour: %w", err)
	}
	rooms, err := json.Marshal(freeAt(in.Hour))
	return string(rooms), err
}

var lookUpTool = openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
	Name:        lookUp,
	Description: openai.String("Lists the rooms that are free at an hour, with seats, equipment and access."),
	Parameters: shared.FunctionParameters{
		"type":       "object",
		"properties": map[string]any{"hour": map[string]any{"type": "integer"}},
		"required":   []string{"hour"},
	},
})
