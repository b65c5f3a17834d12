package gepa

import (
	"errors"
	"fmt"
	"strings"

	"agentlightning/adapter"
	"agentlightning/algorithm"
	"agentlightning/algorithm/prompt"
)

// longestPart bounds what a task or a conversation takes of a request, in bytes.
const longestPart = 6000

// request asks for a rewrite of a component in the light of what happened.
func (s *search) request(c *Candidate, component string, batch []trial) prompt.Request {
	var b strings.Builder
	fmt.Fprintf(&b, "An agent works with %d prompts. One of them, %q, is to become better. It reads:\n\n<prompt>\n%s\n</prompt>\n", len(c.Templates), component, prompt.Text(c.Templates[component]))
	for _, name := range s.Components {
		if name != component {
			fmt.Fprintf(&b, "\nThe prompt %q, which stays as it is, reads:\n\n%s\n", name, prompt.Text(c.Templates[name]))
		}
	}
	for i, t := range batch {
		fmt.Fprintf(&b, "\n## Task %d\n\n%s\n", i+1, shorten(string(s.env.Train[t.task])))
		for _, o := range t.outcomes {
			b.WriteString("\n" + describe(o) + "\n")
		}
	}
	b.WriteString("\nSay first, shortly, what the tasks have in common and what went wrong for want of an instruction. Put facts and rules that the feedback reveals into the prompt, in general words where they hold in general. Keep what works.")
	if names := c.Templates[component].Placeholders(); len(names) > 0 {
		fmt.Fprintf(&b, " A program fills in {%s}: every one of them must stay, written as it is, and there must be no others.", strings.Join(names, "}, {"))
	}
	b.WriteString(" Then give the whole new prompt between <prompt> and </prompt>.")
	return prompt.Request{
		Model: s.Model, Temperature: *s.Temperature, Purpose: "reflect",
		Messages: []prompt.Message{{Role: prompt.RoleUser, Content: b.String()}},
	}
}

// describe tells how a rollout went.
func describe(o algorithm.Outcome) string {
	var b strings.Builder
	switch {
	case o.Failure != "":
		fmt.Fprintf(&b, "The agent failed: %s\n", shorten(o.Failure))
	case o.Reward == nil:
		b.WriteString("There was no reward.\n")
	default:
		fmt.Fprintf(&b, "Reward: %v\n", *o.Reward)
	}
	for _, line := range prompt.Feedback(o.Spans) {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	calls, err := adapter.Messages(o.Spans)
	if err != nil {
		fmt.Fprintf(&b, "(Its model calls cannot be read: %v)\n", err)
	}
	if n := len(calls); n > 0 { // the last one holds those before
		for _, m := range calls[n-1].Messages {
			fmt.Fprintf(&b, "%s\n", shorten(string(m)))
		}
	}
	return b.String()
}

func shorten(text string) string {
	if len(text) <= longestPart {
		return text
	}
	return strings.ToValidUTF8(text[:longestPart], "") + " …"
}

// extract finds the new prompt in an answer.
func extract(answer string) (string, error) {
	start, end := strings.Index(answer, "<prompt>"), strings.LastIndex(answer, "</prompt>")
	if start < 0 || end < start {
		return "", errors.New("the answer has no prompt between <prompt> and </prompt>")
	}
	return strings.TrimSpace(answer[start+len("<prompt>") : end]), nil
}
