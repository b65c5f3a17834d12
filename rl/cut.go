package rl

import "slices"

// Limits bound the length of a training row. Zero means no limit.
type Limits struct {
	Prompt   int // ids before the first response
	Response int // ids after that
	Total    int // both together
}

// Cut is what a sequence looks like within its limits.
type Cut struct {
	Sequence
	// PromptCut: the prompt was too long and lost its end. Such a row no longer
	// shows what the policy saw and should not be trained on.
	PromptCut bool
	// ResponseCut: the response lost its end.
	ResponseCut bool
}

// Cut shortens a copy of the sequence to the limits. It may be left without a
// sampled token ([Sequence.Sampled]); then there is nothing to train on.
func (s Sequence) Cut(l Limits) Cut {
	prompt, response := s.PromptLength, len(s.IDs)-s.PromptLength
	c := Cut{}
	if l.Prompt > 0 && prompt > l.Prompt {
		prompt, c.PromptCut = l.Prompt, true
	}
	limit := response
	if l.Response > 0 {
		limit = min(limit, l.Response)
	}
	if l.Total > 0 {
		limit = min(limit, max(0, l.Total-prompt))
	}
	c.ResponseCut = limit < response
	end := s.PromptLength + limit
	c.Sequence = Sequence{
		IDs:          slices.Concat(s.IDs[:prompt], s.IDs[s.PromptLength:end]),
		Mask:         slices.Concat(s.Mask[:prompt], s.Mask[s.PromptLength:end]),
		PromptLength: prompt,
		Turns:        slices.Clone(s.Turns),
	}
	if s.Logprobs != nil {
		c.Logprobs = slices.Concat(s.Logprobs[:prompt], s.Logprobs[s.PromptLength:end])
	}
	return c
}
