package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	agl "agentlightning"
	"agentlightning/learner"
	"agentlightning/learner/native"
	"agentlightning/semconv"
	"agentlightning/store"
)

// task is what an agent is asked.
type task struct {
	Country string `json:"country"`
	Capital string `json:"capital"`
}

func tasks() []task {
	return []task{
		{"france", "paris"},
		{"italy", "rome"},
		{"spain", "madrid"},
		{"japan", "tokyo"},
		{"kenya", "nairobi"},
		{"peru", "lima"},
		{"norway", "oslo"},
		{"egypt", "cairo"},
	}
}

// right tells whether a text names the capital, and no other one.
func (t task) right(text string) bool {
	for _, other := range tasks() {
		if strings.Contains(text, other.Capital) != (other == t) {
			return false
		}
	}
	return true
}

func (t task) question() string { return "what is the capital of " + t.Country + "?" }

// phrases are how the policy learns to talk, at first; %s is a capital.
func phrases() []string {
	return []string{
		"%s",
		"it is %s",
		"well the capital is %s i think",
		"that is a good question the capital is %s please ask me more",
	}
}

// policy is the built-in model with a folder for its weights.
type policy struct {
	model *native.Model
	tok   *native.Tokenizer
	seed  int64
	dir   string
}

func newPolicy(seed int64) (*policy, error) {
	var texts []string
	for _, t := range tasks() {
		for _, p := range phrases() {
			texts = append(texts, t.question(), fmt.Sprintf(p, t.Capital))
		}
	}
	tok := native.NewTokenizer(native.Words(texts, 256))
	model, err := native.New(native.Config{Dim: 32, Layers: 1, Heads: 2, Context: 64, Seed: seed}, tok)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "agl-rescore-")
	if err != nil {
		_ = model.Close() // the folder is what failed
		return nil, err
	}
	return &policy{model, tok, seed, dir}, nil
}

func (p *policy) close() {
	_ = p.model.Close()
	_ = os.RemoveAll(p.dir)
}

func (p *policy) weights() string { return filepath.Join(p.dir, "weights") }

func (p *policy) keep(ctx context.Context) error { return p.model.Save(ctx, p.weights()) }

// back goes back to the weights that were kept.
func (p *policy) back(ctx context.Context) error {
	if err := p.model.Load(ctx, p.weights()); err != nil {
		return err
	}
	p.model.ResetOptimizer()
	return nil
}

// warmUp teaches all phrases alike, and the right capital in half of the cases.
func (p *policy) warmUp(ctx context.Context, steps int) error {
	all := tasks()
	for step := range steps {
		random := rand.New(rand.NewPCG(uint64(p.seed), uint64(step)))
		var rows []learner.Row
		for range 32 {
			t := all[random.IntN(len(all))]
			capital := t.Capital
			if random.IntN(2) == 0 {
				capital = all[random.IntN(len(all))].Capital
			}
			phrase := phrases()[random.IntN(len(phrases()))]
			ids, mask, err := p.tok.Render([]native.Message{
				{Role: native.RoleUser, Text: t.question()}, {Role: native.RoleAssistant, Text: fmt.Sprintf(phrase, capital)},
			})
			if err != nil {
				return err
			}
			rows = append(rows, learner.Row{IDs: ids, Mask: mask})
		}
		if _, err := p.model.Update(ctx, learner.Batch{Rows: rows, Options: learner.Options{
			Objective: learner.Imitation, LearningRate: 0.01, Seed: p.seed + int64(step),
		}}); err != nil {
			return err
		}
	}
	return nil
}

// answer samples one answer.
func (p *policy) answer(ctx context.Context, t task, seed int64) (prompt []int32, got *native.Result, text string, err error) {
	prompt, err = p.tok.Prompt([]native.Message{{Role: native.RoleUser, Text: t.question()}})
	if err != nil {
		return nil, nil, "", err
	}
	got, err = p.model.Generate(ctx, native.Request{Prompt: prompt, Temperature: 1, Seed: seed, MaxTokens: 24})
	if err != nil {
		return nil, nil, "", err
	}
	ids := got.IDs()
	if got.FinishReason == native.FinishStop {
		ids = ids[:len(ids)-1] // the end token
	}
	return prompt, got, strings.TrimSpace(p.tok.Decode(ids)), nil
}

// figures are what the policy is worth.
type figures struct {
	Right  float64 `json:"right"`  // share of answers that name the capital and no other: the old reward
	Brief  float64 `json:"brief"`  // share of those that do so briefly: the new one
	Tokens float64 `json:"tokens"` // of an answer, the end token included
}

// measured is how many answers are measured.
const measured = 800

func (p *policy) measure(ctx context.Context) (figures, error) {
	var f figures
	all := tasks()
	for i := range measured {
		t := all[i%len(all)]
		_, got, text, err := p.answer(ctx, t, 1_000_000+int64(i)+1)
		if err != nil {
			return f, err
		}
		if t.right(text) {
			f.Right += 1.0 / measured
			if len(got.Tokens) <= 4 {
				f.Brief += 1.0 / measured
			}
		}
		f.Tokens += float64(len(got.Tokens)) / measured
	}
	return f, nil
}

// record is the past: agents had tasks, eight at a time the same one, the proxy
// recorded what they said with the engine's own token ids and log-probabilities,
// and they gave themselves a reward.
func (p *policy) record(ctx context.Context, s store.Store, rollouts int) error {
	all := tasks()
	for i := range rollouts {
		group := i / 8
		t := all[group%len(all)]
		input, err := json.Marshal(t)
		if err != nil {
			return err
		}
		r, err := s.StartRollout(ctx, store.StartRequest{EnqueueRequest: store.EnqueueRequest{
			Input: input, Mode: agl.ModeTrain,
			Metadata: fmt.Appendf(nil, `{"agl.run_id":"run-of-last-week","agl.step":%d,"agl.group":"%d"}`, 1+group/len(all), group),
		}})
		if err != nil {
			return err
		}
		prompt, got, text, err := p.answer(ctx, t, int64(i)+1)
		if err != nil {
			return err
		}
		reward := 0.0
		if t.right(text) {
			reward = 1
		}
		spans := []agl.SpanCore{call(t.question(), text, prompt, got), {
			Name: semconv.SpanAnnotation, Attributes: agl.Attributes{
				{Key: semconv.RewardName(0), Value: semconv.PrimaryReward}, {Key: semconv.RewardValue(0), Value: reward},
			},
		}}
		if err := finish(ctx, s, &r, spans); err != nil {
			return err
		}
	}
	return nil
}

// call is the span of a model call, as the proxy stores it.
func call(question, text string, prompt []int32, got *native.Result) agl.SpanCore {
	logprobs := make([]float64, len(got.Tokens))
	for i, t := range got.Tokens {
		logprobs[i] = float64(t.Logprob)
	}
	return agl.SpanCore{Name: semconv.SpanModelCall, Status: agl.TraceStatus{StatusCode: agl.StatusOK}, Attributes: agl.Attributes{
		{Key: semconv.GenAIRequestModel, Value: "capitals"},
		{Key: semconv.PromptKey(0, "role"), Value: "user"},
		{Key: semconv.PromptKey(0, "content"), Value: question},
		{Key: semconv.CompletionKey(0, "role"), Value: "assistant"},
		{Key: semconv.CompletionKey(0, "content"), Value: text},
		{Key: semconv.PromptTokenIDs, Value: widened(prompt)},
		{Key: semconv.ResponseTokenIDs, Value: widened(got.IDs())},
		{Key: semconv.ResponseLogprobs, Value: logprobs},
	}}
}

func widened(ids []int32) []int64 {
	out := make([]int64, len(ids))
	for i, id := range ids {
		out[i] = int64(id)
	}
	return out
}

func finish(ctx context.Context, s store.Store, r *agl.AttemptedRollout, cores []agl.SpanCore) error {
	spans := make([]agl.Span, len(cores))
	for i := range cores {
		spans[i] = cores[i].Span(r.RolloutID, r.Attempt.AttemptID, int64(i+1), r.StartTime)
	}
	added, err := s.AddSpans(ctx, spans)
	if err != nil {
		return err
	}
	for _, a := range added {
		if a.Err != nil {
			return a.Err
		}
	}
	_, err = s.UpdateAttempt(ctx, r.RolloutID, r.Attempt.AttemptID, store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)})
	return err
}
