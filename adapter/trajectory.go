package adapter

import (
	"math"
	"slices"
)

// Joining says which calls of an attempt become one training row.
type Joining int

const (
	// Lineages lets a call continue any earlier conversation of the attempt: of
	// those whose ids its prompt begins with, the longest. Agents that take
	// turns, calls made side by side and histories that are compacted keep a
	// row each.
	Lineages Joining = iota
	// Linear compares a prompt with the call before it only, as trainers of the
	// 1.0 protocol do at level trajectory.
	Linear
	// Separate makes a row of every call, as level transition does.
	Separate
)

// Limits bound the length of a row in tokens. Zero means no limit.
type Limits struct {
	Prompt   int // before the first answer
	Response int // from the first answer on
	Total    int // both together
}

// TrajectoryConfig says how calls become rows. The zero value joins by
// [Lineages] and cuts nothing.
type TrajectoryConfig struct {
	Joining Joining
	Limits  Limits
}

// Trajectory is one training row: calls of which each continues the one before.
// IDs, Mask, Origin and, unless it is nil, Logprobs have one entry a token.
type Trajectory struct {
	// IDs are the first prompt, then answers and what was put between them.
	IDs []int32
	// Mask is 1 on the tokens that were sampled in this row, 0 elsewhere.
	Mask []float32
	// Logprobs are those of the sampled tokens and 0 elsewhere; nil when a call
	// of the row came without usable ones.
	Logprobs []float32
	// Origin is the call that brought the token, in its prompt or its answer.
	Origin []int32
	// PromptLength is the number of tokens before the first answer.
	PromptLength int
	// Calls are the calls of the row, ascending.
	Calls []int
	// Images are the addresses of the images in the row, in order.
	Images []string
	// TokenWeight is what each sampled token weighs, such that the rows of an
	// attempt weigh 1 together, however many there are: 1 over the number of
	// sampled tokens of its rows. It is 0 for a row that cannot be trained on.
	TokenWeight float64
	// PromptCut tells that the prompt was longer than its limit and lost its
	// end. Such a row no longer shows what the model saw; do not train on it.
	PromptCut bool
	// ResponseCut tells that tokens behind the first prompt were cut off.
	ResponseCut bool
}

// Sampled returns the number of tokens that the model sampled in the row. A
// row that was cut may have none.
func (t *Trajectory) Sampled() int {
	n := 0
	for _, m := range t.Mask {
		if m != 0 {
			n++
		}
	}
	return n
}

// Place says what a row holds where a prompt departs from it.
type Place string

// The places of a [Mismatch].
const (
	// InPrompt is the row's first prompt: the call begins another conversation.
	InPrompt Place = "prompt"
	// InAnswer is a sampled token: the answer was tokenised again, or changed,
	// before it came back as history.
	InAnswer Place = "answer"
	// InContext is what was put between answers, such as the result of a tool.
	InContext Place = "context"
	// AtEnd means that the prompt ends before the row does.
	AtEnd Place = "end"
	// InImages means that the ids agree and the images do not.
	InImages Place = "images"
)

// Mismatch says why a call opened a row of its own instead of continuing one.
type Mismatch struct {
	Call int
	// With is the call that brought the token which the prompt departs from: of
	// all rows, that of the longest common start.
	With int
	// Position is the index in the prompt of the first id that differs, or of
	// the first image for [InImages].
	Position int
	// Want is the id of the row at Position and Got that of the prompt; -1
	// where one of them has ended.
	Want, Got int32
	Where     Place
}

// Trajectories joins the calls of one attempt, in their order, to as few rows
// as possible. A call continues a row when its prompt begins, id for id, with
// everything in that row and shows the same images first; what follows in the
// prompt is context, the answer is appended with mask 1. Every other call opens
// a row of its own, and all but the first of these are reported. Calls that are
// not usable are left out; every other call is in exactly one row, and each
// sampled token is masked in exactly one.
//
// Time and memory are linear in the ids of all calls. The rows share no memory
// with the calls.
func Trajectories(calls []Call, c TrajectoryConfig) ([]Trajectory, []Mismatch) {
	j := joiner{how: c.Joining}
	for i := range calls {
		if call := &calls[i]; call.Usable() && len(call.PromptIDs) > 0 && len(call.ResponseIDs) > 0 {
			j.add(i, call)
		}
	}
	total := 0
	for i := range j.rows {
		j.rows[i].cut(c.Limits)
		if !j.rows[i].PromptCut {
			total += j.rows[i].Sampled()
		}
	}
	for i := range j.rows {
		if r := &j.rows[i]; !r.PromptCut && r.Sampled() > 0 {
			r.TokenWeight = 1 / float64(total)
		}
	}
	return j.rows, j.mismatches
}

// joiner finds the row of each call.
type joiner struct {
	how        Joining
	rows       []Trajectory
	mismatches []Mismatch
	latest     int
	index      *lineage // of the rows; nil while there is one at the most
}

func (j *joiner) add(i int, c *Call) {
	row, m := j.find(c)
	if row < 0 {
		if m != nil {
			m.Call = i
			j.mismatches = append(j.mismatches, *m)
		}
		j.rows = append(j.rows, Trajectory{PromptLength: len(c.PromptIDs), Logprobs: []float32{}})
		row = len(j.rows) - 1
	}
	j.rows[row].extend(i, c)
	j.latest = row
	if j.index != nil {
		j.index.insert(j.rows[row].IDs, row)
	}
}

// find returns the row that a call continues, or -1 and what it departs from.
func (j *joiner) find(c *Call) (int, *Mismatch) {
	if len(j.rows) == 0 || j.how == Separate {
		return -1, nil
	}
	if latest := &j.rows[j.latest]; j.how == Linear || len(j.rows) == 1 {
		if begins(c.PromptIDs, latest.IDs) && begins(c.Images, latest.Images) {
			return j.latest, nil
		}
		if j.how == Linear {
			return -1, latest.departure(c, common(c.PromptIDs, latest.IDs))
		}
	}
	if j.index == nil {
		j.index = &lineage{}
		for i := range j.rows {
			j.index.insert(j.rows[i].IDs, i)
		}
	}
	row, shared, nearest := j.index.find(c.PromptIDs, func(row int) bool {
		return begins(c.Images, j.rows[row].Images)
	})
	if row >= 0 {
		return row, nil
	}
	return -1, j.rows[nearest].departure(c, shared)
}

// departure describes a prompt that shares its first ids with a row and does
// not continue it.
func (t *Trajectory) departure(c *Call, shared int) *Mismatch {
	m := &Mismatch{Position: shared, Want: -1, Got: -1}
	if shared < len(c.PromptIDs) {
		m.Got = c.PromptIDs[shared]
	}
	if shared == len(t.IDs) {
		m.Where, m.Position, m.Got = InImages, common(c.Images, t.Images), -1
		m.With = t.Calls[len(t.Calls)-1]
		return m
	}
	m.Want, m.With = t.IDs[shared], int(t.Origin[shared])
	switch {
	case shared == len(c.PromptIDs):
		m.Where = AtEnd
	case shared < t.PromptLength:
		m.Where = InPrompt
	case t.Mask[shared] != 0:
		m.Where = InAnswer
	default:
		m.Where = InContext
	}
	return m
}

// extend adds a call whose prompt begins with the ids of the row.
func (t *Trajectory) extend(i int, c *Call) {
	context := c.PromptIDs[len(t.IDs):]
	t.IDs = append(append(t.IDs, context...), c.ResponseIDs...)
	t.Mask = append(t.Mask, make([]float32, len(context))...)
	for range c.ResponseIDs {
		t.Mask = append(t.Mask, 1)
	}
	for range len(context) + len(c.ResponseIDs) {
		t.Origin = append(t.Origin, int32(i))
	}
	if t.Logprobs != nil {
		if c.hasLogprobs() {
			t.Logprobs = append(append(t.Logprobs, make([]float32, len(context))...), c.Logprobs...)
		} else {
			t.Logprobs = nil
		}
	}
	t.Calls = append(t.Calls, i)
	t.Images = slices.Clone(c.Images)
}

// hasLogprobs reports whether there is a finite log-probability for each id of
// the answer.
func (c *Call) hasLogprobs() bool {
	return len(c.Logprobs) == len(c.ResponseIDs) && !slices.ContainsFunc(c.Logprobs, func(v float32) bool {
		return math.IsNaN(float64(v)) || math.IsInf(float64(v), 0)
	})
}

// cut shortens the row to the limits.
func (t *Trajectory) cut(l Limits) {
	prompt, response := t.PromptLength, len(t.IDs)-t.PromptLength
	if l.Prompt > 0 && prompt > l.Prompt {
		prompt, t.PromptCut = l.Prompt, true
	}
	limit := response
	if l.Response > 0 {
		limit = min(limit, l.Response)
	}
	if l.Total > 0 {
		limit = min(limit, max(0, l.Total-prompt))
	}
	t.ResponseCut = limit < response
	if !t.PromptCut && !t.ResponseCut {
		return
	}
	start, end := t.PromptLength, t.PromptLength+limit
	t.IDs = slices.Delete(t.IDs[:end], prompt, start)
	t.Mask = slices.Delete(t.Mask[:end], prompt, start)
	t.Origin = slices.Delete(t.Origin[:end], prompt, start)
	if t.Logprobs != nil {
		t.Logprobs = slices.Delete(t.Logprobs[:end], prompt, start)
	}
	t.PromptLength = prompt
}

func begins[E comparable](all, start []E) bool {
	return len(all) >= len(start) && slices.Equal(all[:len(start)], start)
}

// common returns the length of the longest common start.
func common[E comparable](a, b []E) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
