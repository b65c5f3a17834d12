// Package compose proposes prompts by rule, for a search whose model is too small
// to rewrite its own prompt. It is no language model: it puts prompts together of
// sentences that are written down here, and of training tasks as examples, and
// chooses what to change by what went wrong.
package compose

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"agentlightning/algorithm/prompt"
)

// What the feedback on a rollout begins with, for a failure of either kind.
const (
	MoreSaid = "there is more than the town"
	NotNamed = "the town is not in it"
)

// separator is between the turns of a prompt.
const separator = "\n---\n"

// Task is a text and the town that it names.
type Task struct {
	Text string `json:"text"`
	Town string `json:"town"`
}

// The pieces of prompts. The first of each kind are those of the initial prompt.
var (
	asks = []string{
		"Which town is this about?",
		"Which town does the text name?",
		"Find the town in the text.",
		"What is the name of the town?",
		"Name the town.",
	}
	hints = []string{
		"",
		"Answer with one word.",
		"Answer with the name of the town and nothing else.",
		"Write the name alone, no sentence.",
	}
	titles = []string{"", "Text: "}
)

// mostExamples is how many examples a prompt has at the most.
const mostExamples = 6

// Parts are what a prompt is made of; the zero value is the initial one. Numbers
// are places in the lists above.
type Parts struct {
	Ask, Hint, Title int

	Last     bool // the text comes before what is asked about it
	Examples []Task
}

// String is the prompt, with {text} where the text goes. Examples are turns of the
// conversation before, see [Turns].
func (p Parts) String() string {
	var b strings.Builder
	for _, e := range p.Examples {
		b.WriteString(p.question(e.Text) + separator + e.Town + separator)
	}
	return b.String() + p.question("{text}")
}

func (p Parts) question(text string) string {
	text = titles[p.Title] + text
	instruction := strings.TrimSpace(asks[p.Ask] + " " + hints[p.Hint])
	if p.Last {
		return text + "\n" + instruction
	}
	return instruction + "\n" + text
}

// Turns are the parts of a prompt between lines of three dashes: what the user and
// the model say in turn. The last is the user's.
func Turns(prompt string) []string { return strings.Split(prompt, separator) }

// Parse takes a prompt apart; false when it was not put together here, with
// examples among the tasks.
func Parse(text string, tasks []Task) (Parts, bool) {
	turns := Turns(text)
	for a := range asks {
		for h := range hints {
			for t := range titles {
				for _, last := range []bool{false, true} {
					p := Parts{Ask: a, Hint: h, Title: t, Last: last}
					if p.question("{text}") == turns[len(turns)-1] {
						return p, p.read(turns[:len(turns)-1], tasks)
					}
				}
			}
		}
	}
	return Parts{}, false
}

// read finds the examples in turns.
func (p *Parts) read(turns []string, tasks []Task) bool {
	if len(turns)%2 != 0 {
		return false
	}
	for pair := range slices.Chunk(turns, 2) {
		found := slices.IndexFunc(tasks, func(t Task) bool { return p.question(t.Text) == pair[0] && t.Town == pair[1] })
		if found < 0 {
			return false
		}
		p.Examples = append(p.Examples, tasks[found])
	}
	return true
}

// Composer is a prompt.Completer for the requests of GEPA. What it answers depends
// on the request and the seed alone.
type Composer struct {
	Tasks []Task // for training, of which examples are taken
	Seed  int64
}

var _ prompt.Completer = (*Composer)(nil)

// Complete proposes a prompt.
func (c *Composer) Complete(_ context.Context, r prompt.Request) (prompt.Answer, error) {
	if len(r.Messages) == 0 {
		return prompt.Answer{}, errors.New("compose: the request has no message")
	}
	text := r.Messages[len(r.Messages)-1].Content
	_, rest, _ := strings.Cut(text, "<prompt>\n")
	now, _, ok := strings.Cut(rest, "\n</prompt>")
	if !ok {
		return prompt.Answer{}, errors.New("compose: the request has no prompt between <prompt> and </prompt>")
	}
	parts, ok := Parse(now, c.Tasks)
	if !ok {
		return prompt.Answer{}, fmt.Errorf("compose: this prompt was not put together here: %q", now)
	}
	failed, err := failures(rest)
	if err != nil {
		return prompt.Answer{}, fmt.Errorf("compose: %w", err)
	}
	sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte(text), uint64(c.Seed)))
	random := rand.New(rand.NewPCG(binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])))
	next := parts
	for next.String() == now {
		next = parts.change(failed, random)
	}
	return prompt.Answer{Text: fmt.Sprintf("%d answers were not as they should be.\n<prompt>\n%s\n</prompt>", len(failed), next)}, nil
}

// failures returns the tasks of a request that were not answered as they should.
func failures(request string) ([]Task, error) {
	var failed []Task
	for i, section := range strings.Split(request, "\n## Task ")[1:] {
		_, rest, _ := strings.Cut(section, "\n\n")
		line, rest, _ := strings.Cut(rest, "\n")
		var t Task
		if err := json.Unmarshal([]byte(line), &t); err != nil {
			return nil, fmt.Errorf("task %d of the request: %w", i+1, err)
		}
		if strings.Contains(rest, "- "+MoreSaid) || strings.Contains(rest, "- "+NotNamed) {
			failed = append(failed, t)
		}
	}
	return failed, nil
}

// change returns the parts with one or two changes. In half of the cases a task
// that failed becomes an example, otherwise a piece is exchanged or an example left
// out.
func (p Parts) change(failed []Task, r *rand.Rand) Parts {
	p.Examples = slices.Clone(p.Examples)
	for range 1 + r.IntN(2) {
		if len(failed) > 0 && r.IntN(2) == 0 {
			p.show(failed[r.IntN(len(failed))], r)
			continue
		}
		switch choice := r.IntN(5); {
		case choice == 0:
			p.Ask = r.IntN(len(asks))
		case choice == 1:
			p.Hint = r.IntN(len(hints))
		case choice == 2:
			p.Title = r.IntN(len(titles))
		case choice == 3 || len(p.Examples) == 0:
			p.Last = !p.Last
		default:
			at := r.IntN(len(p.Examples))
			p.Examples = slices.Delete(p.Examples, at, at+1)
		}
	}
	return p
}

// show adds a task as an example, in place of another one when there are enough.
func (p *Parts) show(t Task, r *rand.Rand) {
	switch {
	case slices.Contains(p.Examples, t):
	case len(p.Examples) < mostExamples:
		p.Examples = append(p.Examples, t)
	default:
		p.Examples[r.IntN(len(p.Examples))] = t
	}
}
