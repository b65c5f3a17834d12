package main

import (
	"errors"
	"hash/fnv"
	"math"
	"strings"

	"agentlightning/learner/openai/openaitest"
)

// guess is the model that the service begins with. It knows the desks and no more:
// its answer follows from the letters of the message, as a die would.
func guess(messages []openaitest.Message) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(messages[len(messages)-1].Content)) // never fails
	return desks()[h.Sum32()%uint32(len(desks()))]
}

// tune is how the service makes a model: it counts the words of the messages by
// the answer that was given to them, and answers as a naive Bayes classifier. It
// learns nothing but what is in the conversations, wrong answers too.
func tune(_ string, conversations [][]openaitest.Message, _ int) (openaitest.Model, error) {
	counts, totals, answers := map[string]map[string]float64{}, map[string]float64{}, map[string]float64{}
	vocabulary := map[string]bool{}
	for _, c := range conversations {
		if len(c) < 2 {
			return nil, errors.New("a conversation needs a question and an answer")
		}
		answer := c[len(c)-1].Content
		if counts[answer] == nil {
			counts[answer] = map[string]float64{}
		}
		answers[answer]++
		for _, w := range words(c[len(c)-2].Content) {
			counts[answer][w]++
			totals[answer]++
			vocabulary[w] = true
		}
	}
	return func(messages []openaitest.Message) string {
		best, most := guess(messages), math.Inf(-1)
		for _, desk := range desks() {
			if answers[desk] == 0 {
				continue
			}
			score := math.Log(answers[desk] / float64(len(conversations)))
			for _, w := range words(messages[len(messages)-1].Content) {
				score += math.Log((counts[desk][w] + 1) / (totals[desk] + float64(len(vocabulary))))
			}
			if score > most {
				best, most = desk, score
			}
		}
		return best
	}, nil
}

func words(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return r < 'a' || r > 'z' })
}
