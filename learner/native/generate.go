package native

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
)

// Request asks for a continuation of a prompt.
type Request struct {
	// Prompt is what to continue; it is not modified and must not change while
	// the request is in flight. At least one token.
	Prompt []int32
	// MaxTokens bounds the completion. 0 means as much as the context holds.
	MaxTokens int
	// Temperature divides the logits before sampling. 0 takes the likeliest
	// token every time, 1 samples from the policy itself.
	Temperature float64
	// TopP samples from the smallest set of likeliest tokens that holds this
	// probability. 0 means 1: all tokens.
	TopP float64
	// Seed determines the samples: the same seed, prompt and weights give the
	// same tokens, whatever else is in flight. 0 takes the next seed of the
	// model's own sequence.
	Seed int64
	// Stop ends the completion when its text contains one of these. The tokens
	// that complete the text are part of the result.
	Stop []string
	// TopLogprobs asks for that many likeliest tokens at every position.
	TopLogprobs int
}

// FinishReason says why a completion ended.
type FinishReason string

const (
	// FinishStop is an end token or a stop text.
	FinishStop FinishReason = "stop"
	// FinishLength is MaxTokens or the end of the context.
	FinishLength FinishReason = "length"
)

// Token is one sampled token.
type Token struct {
	ID int32
	// Logprob is the log-probability under the policy itself: at temperature 1
	// and over all tokens, whatever the request sampled with. It is what an
	// update computes for the same weights.
	Logprob float32
	// Top holds the likeliest tokens at this position, the first one first.
	Top []TokenLogprob
}

// TokenLogprob is a token that could have been sampled.
type TokenLogprob struct {
	ID      int32
	Logprob float32
}

// Result is a finished completion.
type Result struct {
	// Tokens are all sampled tokens, the end token included.
	Tokens []Token
	// FinishReason says why it ended.
	FinishReason FinishReason
	// Version is that of the weights which sampled the last token.
	Version int64
	// Cached is how many prompt tokens were taken from an earlier request.
	Cached int
}

// IDs returns the ids of the sampled tokens.
func (r *Result) IDs() []int32 {
	ids := make([]int32, len(r.Tokens))
	for i, t := range r.Tokens {
		ids[i] = t.ID
	}
	return ids
}

// Logprobs returns the log-probabilities of the sampled tokens.
func (r *Result) Logprobs() []float32 {
	out := make([]float32, len(r.Tokens))
	for i, t := range r.Tokens {
		out[i] = t.Logprob
	}
	return out
}

// ContextLengthError is returned for a prompt that leaves no room for a token.
type ContextLengthError struct {
	Prompt  int // tokens of the prompt
	Context int // tokens the model can hold
}

// Error implements error.
func (e *ContextLengthError) Error() string {
	return fmt.Sprintf("this model's maximum context length is %d tokens, and the prompt has %d; shorten the messages", e.Context, e.Prompt)
}

// RequestError is returned for a field of a request that is out of range.
type RequestError struct {
	Field   string
	Message string
}

// Error implements error.
func (e *RequestError) Error() string { return e.Field + " " + e.Message }

func (m *Model) checkRequest(r *Request) error {
	switch {
	case len(r.Prompt) == 0:
		return &RequestError{"prompt", "is empty: at least one token is needed"}
	case !(r.Temperature >= 0 && r.Temperature <= 100):
		return &RequestError{"temperature", fmt.Sprintf("is %v: must be between 0 and 100", r.Temperature)}
	case !(r.TopP >= 0 && r.TopP <= 1):
		return &RequestError{"top_p", fmt.Sprintf("is %v: must be between 0 and 1", r.TopP)}
	case r.MaxTokens < 0:
		return &RequestError{"max_tokens", fmt.Sprintf("is %d: must not be negative", r.MaxTokens)}
	case r.TopLogprobs < 0 || r.TopLogprobs > m.lay.vocab:
		return &RequestError{"top_logprobs", fmt.Sprintf("is %d: must be between 0 and %d", r.TopLogprobs, m.lay.vocab)}
	case len(r.Prompt) >= m.cfg.Context:
		return &ContextLengthError{Prompt: len(r.Prompt), Context: m.cfg.Context}
	}
	for i, id := range r.Prompt {
		if id < 0 || int(id) >= m.lay.vocab {
			return &RequestError{"prompt", fmt.Sprintf("holds id %d at position %d: the vocabulary has %d", id, i, m.lay.vocab)}
		}
	}
	return nil
}

// sequence is a request in flight. Until done is closed the engine owns all
// fields but cancelled.
type sequence struct {
	req       Request
	ids       []int32 // prompt and completion
	limit     int     // length at which it ends
	slot      *slot
	rng       rngState
	text      strings.Builder
	tok       *Tokenizer
	result    Result
	err       error
	finished  bool
	stream    chan Token // nil unless streamed; holds a whole completion
	done      chan struct{}
	cancelled atomic.Bool
}

func (m *Model) newSequence(r Request, stream bool) *sequence {
	limit := m.cfg.Context
	if r.MaxTokens > 0 {
		limit = min(limit, len(r.Prompt)+r.MaxTokens)
	}
	if r.Seed == 0 {
		r.Seed = m.seeds.next()
	}
	s := &sequence{tok: m.tok, req: r, limit: limit, done: make(chan struct{}), ids: make([]int32, len(r.Prompt), limit)}
	copy(s.ids, r.Prompt)
	s.rng.seed(r.Seed)
	if stream {
		s.stream = make(chan Token, limit-len(r.Prompt))
	}
	return s
}

// Generate samples a completion and returns it whole. Requests of many
// goroutines are sampled together. When ctx ends first, its error is returned.
func (m *Model) Generate(ctx context.Context, r Request) (*Result, error) {
	if err := m.checkRequest(&r); err != nil {
		return nil, err
	}
	s := m.newSequence(r, false)
	if err := m.engine.submit(s); err != nil {
		return nil, err
	}
	select {
	case <-s.done:
		if s.err != nil {
			return nil, s.err
		}
		return &s.result, nil
	case <-ctx.Done():
		s.cancelled.Store(true)
		return nil, context.Cause(ctx)
	}
}

// Stream is Generate token by token. finish is called once with the result when
// the completion ended by itself, before the sequence ends; it may be nil. The
// request is made when the sequence is ranged over, and again every time it is;
// leaving the loop cancels it.
func (m *Model) Stream(ctx context.Context, r Request, finish func(*Result)) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		if err := m.checkRequest(&r); err != nil {
			yield(Token{}, err)
			return
		}
		s := m.newSequence(r, true)
		if err := m.engine.submit(s); err != nil {
			yield(Token{}, err)
			return
		}
		defer s.cancelled.Store(true)
		for {
			select {
			case t, more := <-s.stream:
				if more {
					if !yield(t, nil) {
						return
					}
					continue
				}
				<-s.done
				switch {
				case s.err != nil:
					yield(Token{}, s.err)
				case finish != nil:
					finish(&s.result)
				}
				return
			case <-ctx.Done():
				yield(Token{}, context.Cause(ctx))
				return
			}
		}
	}
}
