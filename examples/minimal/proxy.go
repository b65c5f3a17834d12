package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/examples/internal/lesson"
	"agentlightning/learner"
	"agentlightning/learner/native"
	"agentlightning/store"
	"agentlightning/store/memory"
)

const (
	question = "what is the capital of france?"
	answer   = "the capital is paris"
)

// proxy serves a model behind the proxy, calls it as any program would, and
// prints the span that the proxy made of the call.
func proxy(ctx context.Context, out io.Writer) (err error) {
	site, err := lesson.OpenSite(ctx, 0, memory.New(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, site.Close()) }()
	tok := native.NewTokenizer(native.Words([]string{question, answer}, 64))
	model, err := site.StartPolicy(ctx, "policy", native.Config{Dim: 32, Layers: 1, Heads: 2, Context: 64, Seed: 1}, tok)
	if err != nil {
		return err
	}
	if err := teach(ctx, model, tok); err != nil {
		return err
	}

	// An attempt has an address of its own: what is called there belongs to it.
	input, err := json.Marshal(question)
	if err != nil {
		return err
	}
	r, err := site.Store.StartRollout(ctx, store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: input}})
	if err != nil {
		return err
	}
	llm := agl.ProxyLLM{Endpoint: site.URL + "/v1", Model: "policy"}.Route(r.RolloutID, r.Attempt.AttemptID)
	if err := ask(ctx, llm.Endpoint, out); err != nil {
		return err
	}

	page, err := site.Store.QuerySpans(ctx, store.SpanQuery{RolloutID: r.RolloutID})
	if err != nil {
		return err
	}
	for i := range page.Items {
		fmt.Fprintln(out, "span              ", page.Items[i].Name)
	}
	calls, err := adapter.Calls(page.Items)
	if err != nil {
		return err
	}
	for _, c := range calls {
		if !c.Usable() {
			return fmt.Errorf("the span of the call: %s: %s", c.Problem, c.Detail)
		}
		fmt.Fprintln(out, "prompt token ids  ", c.PromptIDs)
		fmt.Fprintln(out, "response token ids", c.ResponseIDs)
		fmt.Fprintln(out, "log-probabilities ", len(c.Logprobs))
		fmt.Fprintln(out, "finish reason     ", c.FinishReason)
	}
	return nil
}

// ask is the whole agent: OpenAI's client with another base URL.
func ask(ctx context.Context, baseURL string, out io.Writer) error {
	client := openai.NewClient(option.WithBaseURL(baseURL), option.WithAPIKey("any"))
	got, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
		Model:       "policy",
		Messages:    []openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)},
		Temperature: openai.Float(0),
	})
	if err != nil {
		return lesson.Readable(err)
	}
	fmt.Fprintf(out, "asked              %s\nanswered           %s\n", question, got.Choices[0].Message.Content)
	return nil
}

// teach lets an untrained model learn one answer by heart.
func teach(ctx context.Context, model *native.Model, tok *native.Tokenizer) error {
	row := lesson.Row(tok, []native.Message{{Role: native.RoleUser, Text: question}, {Role: native.RoleAssistant, Text: answer}})
	for range 50 {
		if _, err := model.Update(ctx, learner.Batch{Rows: []learner.Row{row}, Options: learner.Options{
			Objective: learner.Imitation, LearningRate: 0.01,
		}}); err != nil {
			return err
		}
	}
	return nil
}
