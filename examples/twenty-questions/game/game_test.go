package game_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"agentlightning/examples/twenty-questions/game"
)

var questions = strings.Fields("alive flying swimming large metal loud")

// Whoever asks everything knows the thing and has a turn left to say so.
func TestEveryThingCanBeFound(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, task := range game.Tasks() {
		g, err := game.New(task)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range questions {
			answer := "no"
			if game.Truth(task.Thing, q) {
				answer = "yes"
			}
			g.Answered(q, answer)
		}
		if other := seen[g.Notes()]; other != "" {
			t.Errorf("%s and %s have the same answers", task.Thing, other)
		}
		seen[g.Notes()] = task.Thing
		if g.Over() {
			t.Fatalf("the game about the %s is over before the guess", task.Thing)
		}
		g.Guess(task.Thing)
		if !g.Over() || !g.Solved() || g.Questions() != len(questions) || g.Truths() != len(questions) {
			t.Errorf("the %s: over %v, solved %v, %d of %d answers true", task.Thing, g.Over(), g.Solved(), g.Truths(), g.Questions())
		}
	}
	if len(seen) != len(game.Things()) {
		t.Errorf("%d different things, want %d", len(seen), len(game.Things()))
	}
}

func TestGame(t *testing.T) {
	t.Parallel()
	if _, err := game.New(game.Task{Thing: "unicorn"}); err == nil || !strings.Contains(err.Error(), `"unicorn"`) {
		t.Errorf("New of an unknown thing = %v, want an error that names it", err)
	}
	g, err := game.New(game.Task{Thing: "whale"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := g.Notes(), "You know nothing."; got != want {
		t.Errorf("Notes = %q, want %q", got, want)
	}
	g.Answered("metal", "yes")  // a lie
	g.Answered("alive", "yes")  // true
	g.Answered("metal", "no")   // true, and takes the place of the lie
	g.Answered("loud", "maybe") // neither: not noted
	if got, want := g.Notes(), "You know: alive yes, metal no."; got != want {
		t.Errorf("Notes = %q, want %q", got, want)
	}
	if got, want := g.Secret("large"), "You think of the whale. Is it large?"; got != want {
		t.Errorf("Secret = %q, want %q", got, want)
	}
	if g.Questions() != 4 || g.Truths() != 2 {
		t.Errorf("%d of %d answers true, want 2 of 4", g.Truths(), g.Questions())
	}
	for !g.Over() {
		g.Waste()
	}
	if g.Turns() != game.MaxTurns || g.Solved() {
		t.Errorf("%d turns, solved %v, want %d and no", g.Turns(), g.Solved(), game.MaxTurns)
	}
}

func TestParseMove(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]game.Move{
		"Is it alive?":         {Question: "alive"},
		"It is the whale.":     {Guess: "whale"},
		"Is it whale?":         {},
		"It is the alive.":     {},
		"Is it alive":          {},
		"":                     {},
		"It is the whale. Yes": {},
	} {
		got := game.ParseMove(text)
		if got != want {
			t.Errorf("ParseMove(%q) = %+v, want %+v", text, got, want)
		}
		if want != (game.Move{}) && got.String() != text {
			t.Errorf("ParseMove(%q).String() = %q", text, got.String())
		}
	}
}

// Demonstrations are moves and answers; how many are good is up to the care.
func TestDemonstrations(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, care := range []float64{0, 1} {
		c := game.Care{Fresh: care, Guess: care, Answer: care}
		asked, again, lies := 0, 0, 0
		for range 2000 {
			d := game.DemonstrateAsker(c, random)
			m := game.ParseMove(d.Says)
			if m == (game.Move{}) {
				t.Fatalf("the asker says %q", d.Says)
			}
			if m.Question != "" {
				asked++
				if strings.Contains(d.Sees, m.Question) {
					again++
				}
			}
			a := game.DemonstrateAnswerer(c, random)
			thing, question, _ := strings.Cut(strings.TrimPrefix(a.Sees, "You think of the "), ". ")
			truth := game.Truth(thing, game.ParseMove(question).Question)
			if truth && a.Says != "yes" {
				t.Fatalf("%q is answered %q; careless answers say yes", a.Sees, a.Says)
			}
			if !truth && a.Says == "yes" {
				lies++
			}
		}
		if careful := care == 1; careful != (lies == 0) || careful != (again == 0) || asked < 1000 {
			t.Errorf("care %v: %d lies, %d of %d questions asked before", care, lies, again, asked)
		}
	}
}
