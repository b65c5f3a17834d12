package main

import (
	"math/rand/v2"
	"strings"
)

// ticket is a task: a message of a customer, and the desk that it belongs to.
type ticket struct {
	Text string `json:"text"`
	Desk string `json:"desk"`
}

// desks are the answers that there are.
func desks() []string { return []string{"billing", "shipping", "returns", "technical"} }

// phrases are what customers of a desk say; openings and endings are what all of
// them say.
func phrases() map[string][]string {
	return map[string][]string{
		"billing":   {"I was charged twice", "the invoice shows a wrong amount", "my card was declined", "please send me a receipt", "the discount is missing on the bill"},
		"shipping":  {"the parcel has not arrived", "tracking shows no movement", "the courier left it at a wrong address", "when will it be delivered", "I need another delivery date"},
		"returns":   {"it does not fit and I want to send it back", "I want to exchange the colour", "where do I get a return label", "please take it back", "it came damaged and I want a replacement"},
		"technical": {"the app crashes at the start", "I cannot log in", "the screen stays black", "the update fails with an error", "it does not connect to the network"},
	}
}

// tickets makes n of them, no two alike.
func tickets(r *rand.Rand, n int) []ticket {
	openings := []string{"Hello,", "Hi there,", "Good morning,", "Dear team,", "Sorry to bother you,"}
	things := []string{"my order", "the lamp", "the headphones", "the printer", "the jacket", "the kettle", "the router", "the desk"}
	endings := []string{"Can you help?", "Thank you.", "This is urgent.", "Please answer soon.", "What can I do?"}
	pick := func(of []string) string { return of[r.IntN(len(of))] }
	all := phrases()
	seen := map[string]bool{}
	out := make([]ticket, 0, n)
	for len(out) < n {
		desk := pick(desks())
		text := strings.Join([]string{pick(openings), "it is about", pick(things) + ":", pick(all[desk]) + ".", pick(endings)}, " ")
		if !seen[text] {
			seen[text] = true
			out = append(out, ticket{text, desk})
		}
	}
	return out
}
