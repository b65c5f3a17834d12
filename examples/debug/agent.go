package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/emit"
)

// sum is a task.
type sum struct {
	Text   string `json:"text"`
	Answer int    `json:"answer"`
}

// sums are tasks as one has them: right, too hard for the agent, and broken.
func sums() []sum { return []sum{{"2 + 3", 5}, {"4 - 1", 3}, {"2 + x", 5}} }

// adder is the agent that is to be tried out. It stands for one with a model: it
// reads a sum, adds up, and is rewarded for the right answer.
var adder = agent.WithPrompt(func(ctx context.Context, s sum, p agl.PromptTemplate) (float64, error) {
	if err := emit.Message(ctx, strings.ReplaceAll(p.Template, "{sum}", s.Text)); err != nil {
		return 0, err
	}
	got, err := emit.Do(ctx, "add", func(context.Context) (int, error) { return add(s.Text) })
	if err != nil {
		return 0, err
	}
	if got != s.Answer {
		return 0, nil
	}
	return 1, nil
})

// add takes every sign for a plus.
func add(text string) (int, error) {
	total := 0
	for word := range strings.FieldsSeq(text) {
		if word == "+" || word == "-" {
			continue
		}
		n, err := strconv.Atoi(word)
		if err != nil {
			return 0, fmt.Errorf("%q is no number", word)
		}
		total += n
	}
	return total, nil
}

// instruction is what the agent is given.
func instruction() agl.NamedResources {
	return agl.NamedResources{{Name: "instruction", Resource: agl.PromptTemplate{Template: "Add up: {sum}", Engine: agl.EngineFString}}}
}
