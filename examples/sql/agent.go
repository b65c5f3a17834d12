package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/emit"
	"agentlightning/examples/internal/lesson"
	"agentlightning/examples/sql/library"
	"agentlightning/learner/native"
)

// The agents that work on a question. Their names are in the spans of their
// calls; training takes those of the writer alone.
const (
	writer  = "writer"
	checker = "checker"
)

const (
	// accepted is what the checker says of a result that may be the answer; after
	// anything else the writer tries again.
	accepted = "ok"
	refused  = "again"

	// maxQueryTokens and maxVerdictTokens bound one answer of each model.
	maxQueryTokens   = 40
	maxVerdictTokens = 4
)

// clerk is the agent: the writer writes a query, the database executes it, the
// checker looks at what came back, and the writer writes again when that was not
// accepted.
type clerk struct {
	library *library.Library
	http    *http.Client
	// retries is how often the client repeats a call that failed.
	retries int
}

// agent wraps the clerk for the runner: the task is a question, the reward 1 when
// the last query returns what the right one returns, otherwise 0.
func (k *clerk) agent() agent.Agent {
	return agent.New(func(ctx context.Context, q library.Question, c *agent.Call) (float64, error) {
		writing, err := c.AgentLLM(writer, writer)
		if err != nil {
			return 0, err
		}
		checking, err := c.AgentLLM(checker, checker)
		if err != nil {
			return 0, err
		}
		answer, err := k.work(ctx, k.client(writing), k.client(checking), q, lesson.SamplingOf(c))
		if err != nil {
			return 0, err
		}
		right, err := k.library.Query(ctx, q.Branch, q.Gold.SQL())
		if err != nil {
			return 0, err
		}
		if library.Same(answer, right) {
			return 1, nil
		}
		return 0, nil
	}, agent.NeedLLM(writer), agent.NeedLLM(checker))
}

// model is one of the two models as the clerk reaches it.
type model struct {
	openai.Client
	name string
}

func (k *clerk) client(llm agl.LLM) model {
	key := "none"
	if llm.APIKey != nil {
		key = *llm.APIKey
	}
	return model{openai.NewClient(option.WithBaseURL(llm.Endpoint), option.WithAPIKey(key), option.WithHTTPClient(k.http),
		option.WithMaxRetries(k.retries)), llm.Model}
}

// work returns the result of the last query.
func (k *clerk) work(ctx context.Context, writing, checking model, q library.Question, how lesson.Sampling) (library.Result, error) {
	var result library.Result
	messages := []openai.ChatCompletionMessageParamUnion{openai.UserMessage(q.Text)}
	for attempt := range library.MaxAttempts {
		query, err := writing.ask(ctx, messages, maxQueryTokens, how.Temperature, how.Seed+int64(attempt))
		if lesson.OutOfContext(err) {
			return result, nil // the writer talked past its memory: the last result stands
		}
		if err != nil {
			return result, fmt.Errorf("%s, attempt %d: %w", writer, attempt+1, err)
		}
		result, err = emit.Do(ctx, "query", func(ctx context.Context) (library.Result, error) { return k.library.Query(ctx, q.Branch, query) })
		if err != nil {
			return result, err
		}
		seen := []openai.ChatCompletionMessageParamUnion{openai.UserMessage(toCheck(query, result))}
		// The checker is not trained: it always says what it thinks likeliest.
		verdict, err := checking.ask(ctx, seen, maxVerdictTokens, 0, 0)
		if err != nil {
			return result, fmt.Errorf("%s, attempt %d: %w", checker, attempt+1, err)
		}
		if verdict == accepted {
			break
		}
		messages = append(messages, openai.AssistantMessage(query), openai.UserMessage(result.String()))
	}
	return result, nil
}

func (m *model) ask(ctx context.Context, messages []openai.ChatCompletionMessageParamUnion, tokens int64, temperature float64, seed int64) (string, error) {
	completion, err := m.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
		Model: m.name, Messages: messages, MaxCompletionTokens: openai.Int(tokens),
		Temperature: openai.Float(temperature), Seed: openai.Int(seed),
	})
	if err != nil {
		return "", lesson.Readable(err)
	}
	if len(completion.Choices) == 0 {
		return "", fmt.Errorf("the answer of %s has no choices", m.name)
	}
	return completion.Choices[0].Message.Content, nil
}

// toCheck is what the checker is asked. It sees no question: it cannot know
// whether the query is the right one, only whether there is a result.
func toCheck(query string, result library.Result) string { return query + "\n" + result.String() }

// writerMessages is a demonstration for the writer in the form in which it is
// asked later.
func writerMessages(question string, attempts []library.Attempt) []native.Message {
	out := []native.Message{{Role: native.RoleUser, Text: question}}
	for i, a := range attempts {
		out = append(out, native.Message{Role: native.RoleAssistant, Text: a.Query})
		if i < len(attempts)-1 {
			out = append(out, native.Message{Role: native.RoleUser, Text: a.Result.String()})
		}
	}
	return out
}

// checkerMessages is one for the checker, which knows its work.
func checkerMessages(a library.Attempt) []native.Message {
	verdict := accepted
	if a.Result.Problem != "" || a.Result.Empty() {
		verdict = refused
	}
	return []native.Message{
		{Role: native.RoleUser, Text: toCheck(a.Query, a.Result)},
		{Role: native.RoleAssistant, Text: verdict},
	}
}

// tokenizer is that of both models.
func tokenizer() *native.Tokenizer {
	return native.NewTokenizer(append(library.Words(), accepted, refused))
}
