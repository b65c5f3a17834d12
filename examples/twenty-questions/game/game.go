// Package game is twenty questions in a small world: 16 things and six questions
// that are answered with yes or no.
//
// [New] begins a game about one thing, [ParseMove] reads what the asker says,
// [Game.Answered] notes what the answerer said and [Game.Guess] ends it.
// [DemonstrateAsker] and [DemonstrateAnswerer] write the careless play that a
// model is warmed up on. The package does no I/O and holds no state.
package game

import (
	"fmt"
	"slices"
	"strings"
)

// questions are what can be asked: whether the thing is, or can be called, this.
var questions = [...]string{"alive", "flying", "swimming", "large", "metal", "loud"}

// MaxTurns is how often the asker may speak; the last time it had better guess.
const MaxTurns = 7

// things are what can be thought of, each with the questions that have a yes. No
// two have the same.
var things = []struct{ name, yes string }{
	{"ant", "alive"},
	{"wolf", "alive loud"},
	{"eagle", "alive flying"},
	{"bee", "alive flying loud"},
	{"carp", "alive swimming"},
	{"whale", "alive swimming large"},
	{"camel", "alive large"},
	{"elephant", "alive large loud"},
	{"kite", "flying"},
	{"plane", "flying large metal loud"},
	{"submarine", "swimming large metal"},
	{"house", "large"},
	{"bridge", "large metal"},
	{"truck", "large metal loud"},
	{"anchor", "metal"},
	{"bell", "metal loud"},
}

// Things are the names of all that can be thought of.
func Things() []string {
	out := make([]string, len(things))
	for i, t := range things {
		out[i] = t.name
	}
	return out
}

// Truth is the true answer to a question about a thing; both must be known.
func Truth(thing, question string) bool {
	i := slices.Index(Things(), thing)
	return slices.Contains(strings.Fields(things[i].yes), question)
}

// Task says what the answerer thinks of.
type Task struct {
	Thing string `json:"thing"`
}

// Tasks are all that there are.
func Tasks() []Task {
	out := make([]Task, len(things))
	for i, t := range things {
		out[i] = Task{t.name}
	}
	return out
}

// Game is one game. The asker's notes are all that it remembers.
type Game struct {
	thing string
	notes map[string]bool

	turns, questions, truths int
	over, solved             bool
}

// New begins a game.
func New(t Task) (*Game, error) {
	if !slices.Contains(Things(), t.Thing) {
		return nil, fmt.Errorf("task: thing: %q is not one of %d known things", t.Thing, len(things))
	}
	return &Game{thing: t.Thing, notes: map[string]bool{}}, nil
}

// Move is what the asker says: a question or a guess; neither when it is
// something else.
type Move struct{ Question, Guess string }

// ParseMove reads what the asker says.
func ParseMove(text string) Move {
	if q, ok := strings.CutPrefix(text, "Is it "); ok {
		if q, ok = strings.CutSuffix(q, "?"); ok && slices.Contains(questions[:], q) {
			return Move{Question: q}
		}
	}
	if t, ok := strings.CutPrefix(text, "It is the "); ok {
		if t, ok = strings.CutSuffix(t, "."); ok && slices.Contains(Things(), t) {
			return Move{Guess: t}
		}
	}
	return Move{}
}

// String is the move as the asker says it.
func (m Move) String() string {
	if m.Question != "" {
		return "Is it " + m.Question + "?"
	}
	return "It is the " + m.Guess + "."
}

// Notes are what the asker sees: every question with its last answer, in an order
// of their own.
func (g *Game) Notes() string { return notes(g.notes) }

func notes(known map[string]bool) string {
	var facts []string
	for _, q := range questions {
		if yes, ok := known[q]; ok {
			facts = append(facts, q+" "+word(yes))
		}
	}
	if len(facts) == 0 {
		return "You know nothing."
	}
	return "You know: " + strings.Join(facts, ", ") + "."
}

// Secret is what the answerer sees when it is asked.
func (g *Game) Secret(question string) string { return secret(g.thing, question) }

func secret(thing, question string) string {
	return "You think of the " + thing + ". " + Move{Question: question}.String()
}

// Answered notes what the answerer said to a question. What is neither yes nor no
// is not noted and is not true.
func (g *Game) Answered(question, answer string) {
	g.questions++
	g.turn()
	if answer != word(true) && answer != word(false) {
		return
	}
	yes := answer == word(true)
	g.notes[question] = yes
	if yes == Truth(g.thing, question) {
		g.truths++
	}
}

// Guess ends the game.
func (g *Game) Guess(thing string) {
	g.turn()
	g.over, g.solved = true, thing == g.thing
}

// Waste is a turn in which the asker said neither a question nor a guess.
func (g *Game) Waste() { g.turn() }

func (g *Game) turn() {
	g.turns++
	g.over = g.over || g.turns >= MaxTurns
}

// Over tells that the game has ended.
func (g *Game) Over() bool { return g.over }

// Solved tells that the guess was right.
func (g *Game) Solved() bool { return g.solved }

// Questions is how many were asked, Truths how many of them were answered with
// the truth.
func (g *Game) Questions() int { return g.questions }

// Truths is how many answers were true.
func (g *Game) Truths() int { return g.truths }

// Turns is how often the asker spoke.
func (g *Game) Turns() int { return g.turns }

func word(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

// Words is the vocabulary of a model that plays.
func Words() []string {
	out := []string{
		"You know nothing.", "You know:", "You think of the", " yes", " no", "yes", "no",
		"Is it", " Is it", "It is the",
	}
	for _, q := range questions {
		out = append(out, " "+q, " "+q+"?")
	}
	for _, t := range things {
		out = append(out, " "+t.name+".")
	}
	return out
}
