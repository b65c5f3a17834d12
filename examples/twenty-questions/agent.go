package main

import (
	"context"
	"net/http"
	"strings"

	"github.com/openai/openai-go/v3"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/emit"
	"agentlightning/examples/internal/lesson"
	"agentlightning/examples/twenty-questions/game"
	"agentlightning/learner/native"
)

// The two agents. Their names are in the spans of their calls, and the parts of
// the reward that are theirs are called the same.
const (
	asker    = "asker"
	answerer = "answerer"
)

// The other parts of the reward: whether the thing was guessed, which is the
// primary one, and how many questions it took.
const (
	solved    = "solved"
	questions = "questions"
)

const (
	// questionCost is what each question takes off the asker's part of a game that
	// was won.
	questionCost = 0.02
	// maxTurnTokens bounds one answer of the model; a turn is three tokens.
	maxTurnTokens = 6
)

// table is where both agents play; it carries their calls.
type table struct {
	http *http.Client
	// retries is how often the client repeats a call that failed.
	retries int
}

// agent wraps a game for the runner. Both agents call the same model, each under
// its own name.
func (t *table) agent() agent.Agent {
	return agent.New(func(ctx context.Context, task game.Task, c *agent.Call) (agent.Result, error) {
		g, err := game.New(task)
		if err != nil {
			return agent.Result{}, err
		}
		asking, err := lesson.NewRole(c, asker, t.http, t.retries)
		if err != nil {
			return agent.Result{}, err
		}
		answering, err := lesson.NewRole(c, answerer, t.http, t.retries)
		if err != nil {
			return agent.Result{}, err
		}
		if err := playGame(ctx, g, asking, answering, lesson.SamplingOf(c)); err != nil {
			return agent.Result{}, err
		}
		return agent.Result{}, emit.Rewards(ctx, rewards(g))
	}, agent.NeedLLM(""))
}

// playGame is one game.
func playGame(ctx context.Context, g *game.Game, asking, answering *lesson.Role, how lesson.Sampling) error {
	for turn := int64(0); !g.Over(); turn += 2 {
		said, err := say(ctx, asking, g.Notes(), how.Temperature, how.Seed+turn)
		if err != nil {
			return err
		}
		move := game.ParseMove(said)
		switch {
		case move.Guess != "":
			g.Guess(move.Guess)
		case move.Question != "":
			answer, err := say(ctx, answering, g.Secret(move.Question), how.Temperature, how.Seed+turn+1)
			if err != nil {
				return err
			}
			g.Answered(move.Question, answer)
		default:
			g.Waste()
		}
	}
	return nil
}

// rewards are the parts of the reward of a finished game. The answerer of a game
// without a question has done nothing wrong.
func rewards(g *game.Game) []agl.RewardDimension {
	won, honest := 0.0, 1.0
	if g.Solved() {
		won = 1
	}
	if g.Questions() > 0 {
		honest = float64(g.Truths()) / float64(g.Questions())
	}
	return []agl.RewardDimension{
		{Name: solved, Value: won},
		{Name: questions, Value: float64(g.Questions())},
		{Name: asker, Value: won * (1 - questionCost*float64(g.Questions()))},
		{Name: answerer, Value: honest},
	}
}

// say asks one of the agents, who sees a text.
func say(ctx context.Context, who *lesson.Role, sees string, temperature float64, seed int64) (string, error) {
	message, err := who.Say(ctx, openai.ChatCompletionNewParams{
		Messages:    []openai.ChatCompletionMessageParamUnion{openai.UserMessage(sees)},
		Temperature: openai.Float(temperature), Seed: openai.Int(seed), MaxCompletionTokens: openai.Int(maxTurnTokens),
	})
	return strings.TrimSpace(message.Content), err
}

// messages is a demonstration in the form in which the model is asked later.
func messages(d game.Demonstration) []native.Message {
	return []native.Message{{Role: native.RoleUser, Text: d.Sees}, {Role: native.RoleAssistant, Text: d.Says}}
}

func tokenizer() *native.Tokenizer { return native.NewTokenizer(game.Words()) }
