package main

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/emit"
	"agentlightning/examples/internal/lesson"
	"agentlightning/examples/rag/retriever"
	"agentlightning/examples/rag/world"
	"agentlightning/learner/native"
)

// The two agents. Their names are in the spans of their calls.
const (
	writer   = "writer"   // writes queries
	answerer = "answerer" // answers from what was found
)

// The parts of the reward. The first is the primary one and that of the answerer.
const (
	partAnswer    = "answer"    // F1, less the penalty
	partF1        = "f1"        // of the words of the answer
	partFound     = "found"     // share of the articles that lead to the answer
	partSearches  = "searches"  // how many there were
	partSearching = "searching" // found, less the cost of searches: that of the writer
)

const (
	// formPenalty is taken off the F1 of an answer that does not begin with
	// "Answer:".
	formPenalty = 0.5
	// searchCost is taken off what was found for every search.
	searchCost = 0.03
	// maxTurnTokens bounds one answer of the model; a query is five tokens.
	maxTurnTokens = 8
)

// desk is where both agents work: it carries their calls and holds the retriever.
type desk struct {
	tools *retriever.Client
	http  *http.Client
	// retries is how often the client repeats a call that failed.
	retries int
}

// agent wraps the work on a question for the runner. Both agents call the same
// model, each under its own name.
func (d *desk) agent() agent.Agent {
	return agent.New(func(ctx context.Context, q world.Question, c *agent.Call) (agent.Result, error) {
		how := lesson.SamplingOf(c)
		writing, err := lesson.NewRole(c, writer, d.http, d.retries)
		if err != nil {
			return agent.Result{}, err
		}
		answering, err := lesson.NewRole(c, answerer, d.http, d.retries)
		if err != nil {
			return agent.Result{}, err
		}
		found, searches, err := d.search(ctx, writing, q.Text, how)
		if err != nil {
			return agent.Result{}, err
		}
		seen := []openai.ChatCompletionMessageParamUnion{openai.UserMessage(toRead(q.Text, found))}
		said, err := say(ctx, answering, seen, how.Temperature, how.Seed+world.Hops+1)
		if err != nil && !lesson.OutOfContext(err) {
			return agent.Result{}, err
		}
		return agent.Result{}, emit.Rewards(ctx, rewards(q, found, searches, said.Content))
	}, agent.NeedLLM(""))
}

// search lets the writer search until it says something else, and returns what
// was found, each article once.
func (d *desk) search(ctx context.Context, writing *lesson.Role, question string, how lesson.Sampling) (found []world.Article, searches int, err error) {
	messages := []openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)}
	for turn := range int64(world.Hops) {
		message, err := say(ctx, writing, messages, how.Temperature, how.Seed+turn, searchTool)
		if lesson.OutOfContext(err) {
			break // the writer talked past its memory: what was found stands
		}
		if err != nil {
			return nil, 0, err
		}
		if len(message.ToolCalls) == 0 {
			break
		}
		messages = append(messages, message.ToParam())
		for _, call := range message.ToolCalls {
			searches++
			article, ok, err := d.call(ctx, call)
			if err != nil {
				return nil, 0, err
			}
			text := world.Nothing
			if ok {
				text = article.Text
			}
			if ok && !slices.Contains(found, article) {
				found = append(found, article)
			}
			messages = append(messages, openai.ToolMessage(text, call.ID))
		}
	}
	return found, searches, nil
}

// call runs one tool call. A call that is not one of the tool finds nothing.
func (d *desk) call(ctx context.Context, call openai.ChatCompletionMessageToolCallUnion) (world.Article, bool, error) {
	var query retriever.Query
	if call.Function.Name != retriever.Name || json.Unmarshal([]byte(call.Function.Arguments), &query) != nil {
		return world.Article{}, false, nil //nolint:nilerr // the model's mistake: there is nothing to search for
	}
	var ok bool
	article, err := emit.Do(ctx, retriever.Name, func(ctx context.Context) (a world.Article, err error) {
		a, ok, err = d.tools.Search(ctx, strings.TrimSpace(query.Query))
		return a, err
	})
	return article, ok, err
}

// rewards are the parts of the reward of a question that was worked on.
func rewards(q world.Question, found []world.Article, searches int, said string) []agl.RewardDimension {
	var titles []string
	for _, a := range found {
		titles = append(titles, a.Title)
	}
	score := q.Score(said)
	answer := score.F1
	if !score.Form {
		answer -= formPenalty
	}
	return []agl.RewardDimension{
		{Name: partAnswer, Value: answer},
		{Name: partF1, Value: score.F1},
		{Name: partFound, Value: q.Found(titles)},
		{Name: partSearches, Value: float64(searches)},
		{Name: partSearching, Value: q.Found(titles) - searchCost*float64(searches)},
	}
}

// say asks one of the agents.
func say(ctx context.Context, who *lesson.Role, messages []openai.ChatCompletionMessageParamUnion, temperature float64, seed int64, tools ...openai.ChatCompletionToolUnionParam) (openai.ChatCompletionMessage, error) {
	return who.Say(ctx, openai.ChatCompletionNewParams{
		Messages: messages, Tools: tools,
		Temperature: openai.Float(temperature), Seed: openai.Int(seed), MaxCompletionTokens: openai.Int(maxTurnTokens),
	})
}

var searchTool = openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
	Name:        retriever.Name,
	Description: openai.String(retriever.Description),
	Parameters: shared.FunctionParameters{
		"type":       "object",
		"properties": map[string]any{"query": map[string]any{"type": "string"}},
		"required":   []string{"query"},
	},
})

// toRead is what the answerer is asked.
func toRead(question string, found []world.Article) string {
	lines := []string{question}
	for _, a := range found {
		lines = append(lines, a.Text)
	}
	return strings.Join(lines, "\n")
}

// writerMessages is a demonstration for the writer in the form in which it is
// asked later.
func writerMessages(d world.Demonstration) []native.Message {
	out := []native.Message{{Role: native.RoleUser, Text: d.Question.Text}}
	for _, s := range d.Steps {
		text := world.Nothing
		if s.Found != nil {
			text = s.Found.Text
		}
		out = append(out,
			native.Message{Role: native.RoleAssistant, Text: retriever.Name + "( " + s.Query + ")"},
			native.Message{Role: native.RoleTool, Text: text})
	}
	if len(d.Steps) < world.Hops {
		out = append(out, native.Message{Role: native.RoleAssistant, Text: world.Enough})
	}
	return out
}

// answererMessages is one for the answerer.
func answererMessages(d world.Demonstration) []native.Message {
	var found []world.Article
	for _, s := range d.Steps {
		if s.Found != nil && !slices.Contains(found, *s.Found) {
			found = append(found, *s.Found)
		}
	}
	return []native.Message{
		{Role: native.RoleUser, Text: toRead(d.Question.Text, found)},
		{Role: native.RoleAssistant, Text: d.Answer},
	}
}

func tokenizer() *native.Tokenizer { return native.NewTokenizer(world.Words()) }
