package game

import (
	"math"
	"math/rand/v2"
)

// Care says which part of demonstrations is played with thought; the rest is left
// to chance.
type Care struct {
	// Fresh is the share of questions that were not asked before.
	Fresh float64
	// Guess is the share of guesses that fit the notes.
	Guess float64
	// Answer is the share of answers that are true; the others are yes.
	Answer float64
}

// Demonstration is what a player sees and says. It shows the form and a little of
// the matter, not how to play well.
type Demonstration struct{ Sees, Says string }

// DemonstrateAsker shows one turn of the asker: any question or, the likelier the
// more it knows, a guess.
func DemonstrateAsker(care Care, random *rand.Rand) Demonstration {
	thing := things[random.IntN(len(things))].name
	known := map[string]bool{}
	order, asked := random.Perm(len(questions)), random.IntN(len(questions)+1)
	for _, i := range order[:asked] {
		known[questions[i]] = Truth(thing, questions[i])
	}
	move := Move{Question: questions[random.IntN(len(questions))]}
	if asked < len(questions) && random.Float64() < care.Fresh {
		move.Question = questions[order[asked]]
	}
	if random.Float64() < math.Pow(float64(asked)/float64(len(questions)), 3) {
		if random.Float64() >= care.Guess {
			thing = things[random.IntN(len(things))].name
		}
		move = Move{Guess: thing}
	}
	return Demonstration{notes(known), move.String()}
}

// DemonstrateAnswerer shows one answer.
func DemonstrateAnswerer(care Care, random *rand.Rand) Demonstration {
	thing, question := things[random.IntN(len(things))].name, questions[random.IntN(len(questions))]
	yes := Truth(thing, question) || random.Float64() >= care.Answer
	return Demonstration{secret(thing, question), word(yes)}
}
