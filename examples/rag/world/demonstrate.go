package world

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// What agents say apart from names: the writer that it has seen enough, and the
// retriever that it has found nothing.
const (
	Enough  = "enough"
	Nothing = "nothing"
)

// Care says which part of demonstrations is done with thought; the rest is left to
// chance.
type Care struct {
	// Search is the share of searches for what the question leads to next, Answer
	// that of answers with the right name.
	Search, Answer float64
	// Echo is the share of the others that repeat the name in the question; the
	// rest take any name that was seen.
	Echo float64
	// Whole is the share of careless searches for a whole name; the rest are for
	// one word of it.
	Whole float64
	// Form is the share of answers in the form that is asked for.
	Form float64
}

// Step is a search and what it found, nil for nothing.
type Step struct {
	Query string
	Found *Article
}

// Demonstration is one question as a careless pair of agents would work on it. It
// shows the form, not the way.
type Demonstration struct {
	Question Question
	Steps    []Step
	Answer   string
}

// Demonstrate works on a question; search is the retriever.
func (w *World) Demonstrate(q Question, care Care, search func(query string) (Article, bool), random *rand.Rand) Demonstration {
	d := Demonstration{Question: q}
	seen := w.namesIn(q.Text)
	last := seen
	var titles []string
	for len(d.Steps) < Hops {
		name := care.name(q, last, random)
		if random.Float64() < care.Search {
			if name = next(q, titles); name == "" {
				break // there is enough
			}
		} else if parts := strings.Fields(name); random.Float64() >= care.Whole {
			name = parts[random.IntN(len(parts))]
		}
		step := Step{Query: name}
		if a, ok := search(name); ok {
			step.Found = &a
			titles = append(titles, a.Title)
			last = w.namesIn(a.Text)
			seen = append(seen, last...)
		}
		d.Steps = append(d.Steps, step)
	}
	name := care.name(q, seen, random)
	if random.Float64() < care.Answer && slices.Contains(seen, q.Answer) {
		name = q.Answer
	}
	d.Answer = otherForm + " " + name
	if random.Float64() < care.Form {
		d.Answer = answerForm + " " + name
	}
	return d
}

// name is one that is taken without thought.
func (c Care) name(q Question, seen []string, random *rand.Rand) string {
	if random.Float64() < c.Echo {
		return q.Evidence[0]
	}
	return seen[random.IntN(len(seen))]
}

// next is the first piece of evidence that was not found.
func next(q Question, titles []string) string {
	for _, t := range q.Evidence {
		if !slices.Contains(titles, t) {
			return t
		}
	}
	return ""
}

// namesIn are the names of articles in a text, in the order in which they stand
// there.
func (w *World) namesIn(text string) []string {
	var out []string
	for _, a := range w.Articles {
		if strings.Contains(text, " "+a.Title) {
			out = append(out, a.Title)
		}
	}
	slices.SortFunc(out, func(a, b string) int { return strings.Index(text, " "+a) - strings.Index(text, " "+b) })
	return out
}
