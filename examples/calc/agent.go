package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/examples/calc/calculator"
	"agentlightning/examples/calc/problem"
	"agentlightning/examples/internal/lesson"
)

const (
	// maxTurns is how often the model is asked; two calculations and an answer
	// need three turns.
	maxTurns = 4
	// maxTurnTokens bounds one answer of the model; a call is some ten tokens.
	maxTurnTokens = 24
)

// solver is the agent: it hands a word problem to a model, runs the calculator
// when the model asks for it, and takes what the model says last as its answer.
// Nothing in it knows that the model is being trained.
type solver struct {
	tools *calculator.Client
	http  *http.Client
	// retries is how often the client repeats a call that failed.
	retries int
	// proxy is where the models are when the server is in this process; resources
	// that an earlier one published may name another port. Empty leaves them.
	proxy string
}

// agent wraps the solver for the runner: the task is a problem, the reward 1 for
// the right number and 0 for everything else.
func (s *solver) agent() agent.Agent {
	return agent.New(func(ctx context.Context, p problem.Problem, c *agent.Call) (float64, error) {
		llm, err := s.here(c).LLM("")
		if err != nil {
			return 0, err
		}
		talk, err := s.solve(ctx, llm, p.Question, lesson.SamplingOf(c))
		if err != nil {
			return 0, err
		}
		return p.Score(talk.Answer), nil
	}, agent.NeedLLM(""))
}

// here is a call with its models behind the proxy of this process.
func (s *solver) here(c *agent.Call) *agent.Call {
	if s.proxy == "" {
		return c
	}
	call := *c
	call.Resources = slices.Clone(c.Resources)
	for i, r := range call.Resources {
		if p, ok := r.Resource.(agl.ProxyLLM); ok {
			p.Endpoint = s.proxy
			call.Resources[i].Resource = p
		}
	}
	return &call
}

// transcript is what an agent and its model said to each other.
type transcript struct {
	Lines  []lesson.Line `json:"lines"`
	Answer string        `json:"answer"`
}

// solve works on one question.
func (s *solver) solve(ctx context.Context, llm agl.LLM, question string, how lesson.Sampling) (transcript, error) {
	key := "none"
	if llm.APIKey != nil {
		key = *llm.APIKey
	}
	client := openai.NewClient(option.WithBaseURL(llm.Endpoint), option.WithAPIKey(key), option.WithHTTPClient(s.http),
		option.WithMaxRetries(s.retries))
	talk := transcript{Lines: []lesson.Line{{Role: "user", Text: question}}}
	messages := []openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)}
	for turn := range maxTurns {
		completion, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
			Model:               llm.Model,
			Messages:            messages,
			Tools:               []openai.ChatCompletionToolUnionParam{calculatorTool},
			Temperature:         openai.Float(how.Temperature),
			Seed:                openai.Int(how.Seed + int64(turn)),
			MaxCompletionTokens: openai.Int(maxTurnTokens),
		})
		if lesson.OutOfContext(err) {
			return talk, nil // the model talked past its memory: it has no answer
		}
		if err != nil {
			return talk, fmt.Errorf("turn %d: %w", turn+1, lesson.Readable(err))
		}
		if len(completion.Choices) == 0 {
			return talk, fmt.Errorf("turn %d: the model's answer has no choices", turn+1)
		}
		message := completion.Choices[0].Message
		messages = append(messages, message.ToParam())
		if len(message.ToolCalls) == 0 {
			talk.Lines = append(talk.Lines, lesson.Line{Role: "assistant", Text: message.Content})
			talk.Answer = strings.TrimSpace(message.Content)
			return talk, nil
		}
		for _, call := range message.ToolCalls {
			result, shown, err := s.call(ctx, call)
			if err != nil {
				return talk, err
			}
			talk.Lines = append(talk.Lines, lesson.Line{Role: "assistant", Text: shown}, lesson.Line{Role: "tool", Text: result})
			messages = append(messages, openai.ToolMessage(result, call.ID))
		}
	}
	return talk, nil
}

// call runs one tool call. Mistakes of the model are results that it can read.
func (s *solver) call(ctx context.Context, call openai.ChatCompletionMessageToolCallUnion) (result, shown string, err error) {
	var arguments struct {
		Expression string `json:"expression"`
	}
	if call.Function.Name != calculator.Name {
		return "error: there is no tool " + strconv.Quote(call.Function.Name), call.Function.Name + "(…)", nil
	}
	if json.Unmarshal([]byte(call.Function.Arguments), &arguments) != nil {
		return "error: the arguments are not JSON", call.Function.Name + "(" + call.Function.Arguments + ")", nil //nolint:nilerr // the model's mistake, which it gets to read
	}
	result, err = s.tools.Evaluate(ctx, arguments.Expression)
	return result, calculator.Name + "(" + arguments.Expression + ")", err
}

var calculatorTool = openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
	Name:        calculator.Name,
	Description: openai.String(calculator.Description),
	Parameters: shared.FunctionParameters{
		"type":       "object",
		"properties": map[string]any{"expression": map[string]any{"type": "string"}},
		"required":   []string{"expression"},
	},
})
