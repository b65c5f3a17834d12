package adapter

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	agl "agentlightning"
	"agentlightning/semconv"
)

// Call is one model call of an attempt.
type Call struct {
	SpanID     string
	SequenceID int64
	ResponseID string

	// PromptIDs and ResponseIDs are the ids that the engine read and sampled.
	PromptIDs   []int32
	ResponseIDs []int32
	// Logprobs are the log-probabilities of ResponseIDs under the weights that
	// sampled them, one for each; nil when the engine did not say.
	Logprobs []float32
	// Images are the addresses of the images in the prompt, in order.
	Images []string

	// Agent is the agent that made the call, empty when nobody named it.
	Agent        string
	FinishReason string
	Model        string
	Version      int64 // of the weights
	// Problem says why the call must be left out of training: one of the
	// values of [semconv.CallProblem]. Empty means that it can be used.
	Problem string
	// Detail is Problem in words.
	Detail string
	// Reward is the reward given for this call, nil when there is none. The
	// reward of the attempt as a whole is what [Final] returns.
	Reward *float64
}

// Usable reports whether the call can be trained on.
func (c *Call) Usable() bool { return c.Problem == "" }

// Calls returns the model calls of an attempt by sequence id. None is left
// out: a call that cannot be trained on carries a Problem. When an agent's own
// tracer recorded a call that the proxy recorded too, the proxy's span counts.
//
// A reward belongs to the last call before it, by sequence id, that has none
// yet. An error means that a span carries a reward that cannot be read; the
// calls come with it all the same, without the rewards from there on.
func Calls(spans []agl.Span) ([]Call, error) {
	var r Recording
	r.Add(spans...)
	return r.Calls()
}

// Final returns the reward of the attempt: that of the last span, by sequence
// id, that carries one; nil when none does.
func Final(spans []agl.Span) (*float64, error) {
	var r Recording
	r.Add(spans...)
	final := r.final()
	return final.value, final.err
}

// assignRewards gives each reward to the last of n calls before it, by sequence
// id, that has none yet. An error means that a reward cannot be read.
func assignRewards(ordered []*agl.Span, n int, sequence func(i int) int64, reward func(i int) **float64) error {
	for _, s := range ordered {
		value, err := agl.RewardValue(s)
		if err != nil {
			return err
		}
		if value != nil {
			assign(s.SequenceID, value, n, sequence, reward)
		}
	}
	return nil
}

func assign(at int64, value *float64, n int, sequence func(i int) int64, reward func(i int) **float64) {
	for i := n - 1; i >= 0; i-- {
		if r := reward(i); *r == nil && sequence(i) < at {
			*r = value
			return
		}
	}
}

func newCall(s *agl.Span, source string) Call {
	c := Call{SpanID: s.SpanID, SequenceID: s.SequenceID}
	c.ResponseID, _ = responseID(s)
	c.FinishReason = finishReason(s)
	for _, key := range [...]string{semconv.GenAIRequestModel, semconv.GenAIResponseModel, "llm.model_name", semconv.OperationInput + ".model"} {
		if c.Model == "" {
			c.Model, _ = s.Attributes.String(key)
		}
	}
	if v, ok := s.Attributes.Get(semconv.CallVersion); ok {
		c.Version, _ = v.(int64)
	}
	prompt, hasPrompt := firstInts(s, promptKeys)
	response, hasResponse := firstInts(s, responseKeys)
	content, _ := s.Attributes.String(semconv.LogprobsContent)
	switch source {
	case sourceLiteLLM:
		c.ResponseID = proxyRequestID(s)
		asked, answered := proxyTokenIDs(s)
		prompt, response = asked.narrowed(), answered.narrowed()
		hasPrompt, hasResponse = len(prompt) > 0, len(response) > 0
	case sourceWeave:
		content = cmp.Or(content, string(group(s, semconv.OperationOutput+".choices.0.logprobs.content").orNull()))
	case sourceOpenInference:
		answer := answerOf(s)
		c.ResponseID = answer.ID
		prompt, response = answer.ids()
		hasPrompt, hasResponse = prompt != nil, response != nil
		if len(answer.Choices) > 0 {
			content = string(answer.Choices[0].Logprobs.Content)
		}
	}
	var ok1, ok2 bool
	c.PromptIDs, ok1 = narrow(prompt)
	c.ResponseIDs, ok2 = narrow(response)
	c.Logprobs = logprobs(s, content, len(c.ResponseIDs))
	c.Images = promptImages(s)

	c.Problem, _ = s.Attributes.String(semconv.CallProblem)
	c.Detail, _ = s.Attributes.String(semconv.CallMessage)
	switch {
	case c.Problem != "":
		if c.Detail == "" {
			c.Detail = c.Problem
		}
	case s.Status.StatusCode == agl.StatusError:
		c.Problem, c.Detail = semconv.ProblemUpstreamError, "the call failed"
		if s.Status.Description != nil {
			c.Detail = *s.Status.Description
		}
	case !hasPrompt && !hasResponse:
		c.Problem, c.Detail = semconv.ProblemTokenIDsMissing, "the span has no token ids"
	case !hasPrompt, len(prompt) == 0:
		c.Problem, c.Detail = semconv.ProblemTokenIDsIncomplete, "the span has no token ids of the prompt"
	case !hasResponse, len(response) == 0:
		c.Problem, c.Detail = semconv.ProblemTokenIDsIncomplete, "the span has no token ids of the answer"
	case !ok1 || !ok2:
		c.Problem, c.Detail = semconv.ProblemTokenIDsIncomplete, fmt.Sprintf("a token id is not between 0 and %d", math.MaxInt32)
	}
	return c
}

// promptImages returns the images of the messages of a prompt. Contents of
// several parts are recorded as JSON texts.
func promptImages(s *agl.Span) []string {
	type content struct {
		message int
		urls    []string
	}
	var found []content
	for _, a := range s.Attributes {
		rest, ok := strings.CutPrefix(a.Key, semconv.GenAIPrompt+".")
		if !ok {
			continue
		}
		digits, member, _ := strings.Cut(rest, ".")
		text, _ := a.Value.(string)
		if member != "content" || !strings.Contains(text, "image_url") {
			continue
		}
		if i, ok := index(digits); ok {
			found = append(found, content{i, imageParts([]byte(text))})
		}
	}
	slices.SortStableFunc(found, func(a, b content) int { return cmp.Compare(a.message, b.message) })
	var urls []string
	for _, c := range found {
		urls = append(urls, c.urls...)
	}
	return urls
}

// firstInts returns the first list of integers under one of the keys.
func firstInts(s *agl.Span, keys []string) ([]int64, bool) {
	for _, key := range keys {
		if ids, ok := s.Attributes.Ints(key); ok {
			return ids, true
		}
	}
	return nil, false
}

func narrow(ids []int64) ([]int32, bool) {
	out := make([]int32, len(ids))
	for i, id := range ids {
		if id < 0 || id > math.MaxInt32 {
			return nil, false
		}
		out[i] = int32(id)
	}
	return out, true
}

// logprobs reads the n log-probabilities of the sampled tokens, in the proxy's
// own form or as the engine wrote them, which is text; nil when there are not
// n.
func logprobs(s *agl.Span, text string, n int) []float32 {
	if n == 0 {
		return nil
	}
	if v, ok := s.Attributes.Get(semconv.ResponseLogprobs); ok {
		switch v := v.(type) {
		case []float64:
			return narrowFloats(v, n)
		case []int64: // every one of them was written without a point
			out := make([]float64, len(v))
			for i := range v {
				out[i] = float64(v[i])
			}
			return narrowFloats(out, n)
		}
	}
	var content []struct {
		Logprob *float64 `json:"logprob"`
	}
	if text == "" || json.Unmarshal([]byte(text), &content) != nil {
		return nil
	}
	out := make([]float64, len(content))
	for i, token := range content {
		if token.Logprob == nil {
			return nil
		}
		out[i] = *token.Logprob
	}
	return narrowFloats(out, n)
}

func narrowFloats(values []float64, n int) []float32 {
	if len(values) != n {
		return nil
	}
	out := make([]float32, n)
	for i, v := range values {
		out[i] = float32(v)
	}
	return out
}
