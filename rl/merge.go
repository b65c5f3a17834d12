package rl

import (
	"math"
	"slices"
)

// Turn is one call of the model: the ids it was given, the ids it sampled and,
// when they were captured, their log-probabilities.
type Turn struct {
	Prompt, Response []int32
	// Logprobs has one entry a response token, or is nil. Entries that are not
	// finite make the whole slice unusable.
	Logprobs []float32
}

func (t Turn) usableLogprobs() bool {
	if len(t.Logprobs) != len(t.Response) {
		return false
	}
	for _, v := range t.Logprobs {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return false
		}
	}
	return true
}

// Sequence is one training row: turns of which each continues the one before.
// All slices but Turns have one entry a token.
type Sequence struct {
	// IDs are the first prompt, then responses and what was put between them.
	IDs []int32
	// Mask is 1 on tokens that the policy sampled in this sequence, 0 elsewhere.
	Mask []float32
	// Logprobs are those of the sampled tokens and 0 elsewhere; nil when any
	// turn came without usable ones.
	Logprobs []float32
	// PromptLength is the number of ids before the first response.
	PromptLength int
	// Turns are the indices of the turns, ascending.
	Turns []int
}

// Sampled returns the number of tokens that the policy sampled.
func (s Sequence) Sampled() int { return sampled(s.Mask) }

// Reason says why a turn did not simply continue the sequence before it.
type Reason string

const (
	// PrefixMismatch says that the prompt does not begin with what was said before.
	PrefixMismatch Reason = "prefix_mismatch"
	// NoPrompt says that the turn has no prompt ids and is left out.
	NoPrompt Reason = "no_prompt_ids"
	// NoResponse says that the turn has no response ids and is left out.
	NoResponse Reason = "no_response_ids"
	// NoLogprobs says that log-probabilities are missing, not finite or differ in number
	// from the response ids. The turn is kept, its sequence loses Logprobs.
	NoLogprobs Reason = "no_logprobs"
)

// Finding reports one turn that needs attention.
type Finding struct {
	Turn   int
	Reason Reason
	// Position is, for a mismatch, the first index at which the prompt differs
	// from the latest sequence (its length, if the prompt ends before).
	Position int
}

// MergeConfig chooses how turns are joined.
type MergeConfig struct {
	// LatestOnly compares a prompt with the latest sequence only, as the Python
	// implementation does. Otherwise the longest of all sequences that the
	// prompt continues wins, so that agents which take turns (A1 B1 A2 B2) end
	// up in one sequence each.
	LatestOnly bool
}

// Merge joins the turns of one rollout, in the order of their calls, to as few
// sequences as possible. A turn continues a sequence when its prompt begins,
// id for id, with everything in that sequence; what follows in the prompt is
// context (mask 0), its response is appended with mask 1. Every other turn
// opens a sequence of its own. No turn is dropped except those without ids, and
// each sampled token is masked in exactly one sequence.
//
// The time is linear in the ids of all turns. The results share no memory with
// the turns.
func Merge(turns []Turn, c MergeConfig) ([]Sequence, []Finding) {
	var (
		open     []Sequence
		findings []Finding
		index    = prefixes{lengths: make(map[int]int), at: make(map[prefix][]int)}
		latest   = -1
	)
	for i, t := range turns {
		if len(t.Prompt) == 0 {
			findings = append(findings, Finding{Turn: i, Reason: NoPrompt})
			continue
		}
		if len(t.Response) == 0 {
			findings = append(findings, Finding{Turn: i, Reason: NoResponse})
			continue
		}
		if !t.usableLogprobs() {
			findings = append(findings, Finding{Turn: i, Reason: NoLogprobs})
		}
		target := -1
		switch {
		case latest < 0:
		case begins(t.Prompt, open[latest].IDs) && (c.LatestOnly || len(open) == 1):
			target = latest
		case !c.LatestOnly:
			target = index.longest(t.Prompt, open)
		}
		if target < 0 {
			if latest >= 0 {
				findings = append(findings, Finding{Turn: i, Reason: PrefixMismatch, Position: common(t.Prompt, open[latest].IDs)})
			}
			open = append(open, Sequence{PromptLength: len(t.Prompt), Logprobs: []float32{}})
			target = len(open) - 1
		} else {
			index.remove(open[target].IDs, target)
		}
		open[target].append(i, t)
		if !c.LatestOnly {
			index.add(open[target].IDs, target)
		}
		latest = target
	}
	return open, findings
}

// append adds a turn whose prompt begins with the ids of s.
func (s *Sequence) append(turn int, t Turn) {
	context := t.Prompt[len(s.IDs):]
	s.IDs = append(append(s.IDs, context...), t.Response...)
	s.Mask = append(s.Mask, make([]float32, len(context))...)
	for range t.Response {
		s.Mask = append(s.Mask, 1)
	}
	if s.Logprobs != nil {
		if t.usableLogprobs() {
			s.Logprobs = append(append(s.Logprobs, make([]float32, len(context))...), t.Logprobs...)
		} else {
			s.Logprobs = nil
		}
	}
	s.Turns = append(s.Turns, turn)
}

func begins(ids, start []int32) bool {
	return len(ids) >= len(start) && slices.Equal(ids[:len(start)], start)
}

// common returns the length of the longest common start.
func common(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// prefix stands for a run of ids. Hashes may collide; ids are compared in the
// end.
type prefix struct {
	length int
	hash   uint64
}

// prefixes finds open sequences by what they hold. lengths counts the sequences
// of each length, at lists the sequences of one content (more than one when the
// same thing was said twice), the latest last.
type prefixes struct {
	lengths map[int]int
	at      map[prefix][]int
}

const (
	hashStart = 14695981039346656037 // FNV-1a, over ids instead of bytes
	hashPrime = 1099511628211
)

func hash(h uint64, id int32) uint64 { return (h ^ uint64(uint32(id))) * hashPrime }

func hashAll(ids []int32) uint64 {
	h := uint64(hashStart)
	for _, id := range ids {
		h = hash(h, id)
	}
	return h
}

func (p *prefixes) add(ids []int32, sequence int) {
	key := prefix{len(ids), hashAll(ids)}
	p.at[key] = append(p.at[key], sequence)
	p.lengths[key.length]++
}

func (p *prefixes) remove(ids []int32, sequence int) {
	key := prefix{len(ids), hashAll(ids)}
	i := slices.Index(p.at[key], sequence)
	if i < 0 {
		return
	}
	p.lengths[key.length]--
	if p.at[key] = slices.Delete(p.at[key], i, i+1); len(p.at[key]) == 0 {
		delete(p.at, key)
	}
}

// longest returns the sequence with the most ids that prompt begins with, or -1.
func (p *prefixes) longest(prompt []int32, open []Sequence) int {
	best, h := -1, uint64(hashStart)
	for i, id := range prompt {
		h = hash(h, id)
		if p.lengths[i+1] == 0 {
			continue
		}
		if found := p.at[prefix{i + 1, h}]; len(found) > 0 && begins(prompt, open[found[len(found)-1]].IDs) {
			best = found[len(found)-1]
		}
	}
	return best
}
