package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"agentlightning/algorithm/prompt"
	"agentlightning/examples/internal/lesson"
)

// rule is something that the scripted models understand: the assistant follows it
// when its prompts say so, and the reviser adds it when the grader complains.
type rule struct {
	complaint string // what a note of the grader ends with
	prompt    string // the template that it belongs into
	says      string // the sentence in the prompt
}

var rules = []rule{
	{"look up which rooms are free.", choose, "Look up which rooms are free before you choose."},
	{"mind the seats.", choose, "The room must have a seat for everybody."},
	{"mind the equipment.", choose, "The room must have the equipment that is asked for."},
	{"mind the access.", choose, "For a wheelchair the room must be accessible."},
	{"take the smallest.", choose, "Of the rooms that fit take the smallest."},
	{"give the name alone.", reply, "Answer with the name of the room alone."},
}

var numbers = regexp.MustCompile(`\d+`)

// answer is what the assistant says next: it books rooms as well as its prompts
// tell it to, and no better.
func answer(in lesson.Chat) (lesson.Said, error) {
	told, asked, found := in.System(), "", ""
	for i := range in.Messages {
		switch m := &in.Messages[i]; m.Role {
		case "user":
			asked = m.Text()
		case "tool":
			found = m.Text()
		}
	}
	follows := func(i int) bool { return strings.Contains(told, rules[i].says) }
	figures := numbers.FindAllString(asked, -1)
	if len(figures) != 2 {
		return lesson.Said{Text: "Sorry?"}, nil
	}
	people, _ := strconv.Atoi(figures[0]) // digits
	if follows(0) && found == "" {
		return lesson.Said{Tool: lookUp, Arguments: []lesson.Argument{{Name: "hour", Value: json.Number(figures[1])}}}, nil
	}
	var rooms []room
	if found == "" {
		rooms = slices.Clone(office) // as it remembers them: it does not know who has booked
	} else if json.Unmarshal([]byte(found), &rooms) != nil {
		return lesson.Said{Text: "Sorry?"}, nil //nolint:nilerr // it is what the assistant has to say
	}
	rooms = slices.DeleteFunc(rooms, func(r room) bool {
		return follows(1) && r.Seats < people ||
			follows(2) && slices.ContainsFunc([]string{"screen", "whiteboard", "camera"}, func(e string) bool {
				return strings.Contains(asked, e) && !slices.Contains(r.Equipment, e)
			}) ||
			follows(3) && strings.Contains(asked, "wheelchair") && !r.Accessible
	})
	if follows(4) {
		slices.SortStableFunc(rooms, func(a, b room) int { return a.Seats - b.Seats })
	}
	name := "none"
	if len(rooms) > 0 {
		name = rooms[0].Name
	}
	if !follows(5) {
		name = "I would suggest " + name + "."
	}
	return lesson.Said{Text: name}, nil
}

// reviser is a model of a script that rewrites prompts. It adds the rule that the
// grader's notes ask for most, as one would; now and then it writes something of no
// use instead, as models do.
type reviser struct{ random *rand.Rand }

// uselessShare is how often the reviser has nothing to say.
const uselessShare = 0.25

// Complete implements [prompt.Completer].
func (r *reviser) Complete(_ context.Context, q prompt.Request) (prompt.Answer, error) {
	var said strings.Builder
	for _, m := range q.Messages {
		said.WriteString(m.Content + "\n")
	}
	text := said.String()
	switch q.Purpose {
	case "reflect": // GEPA: notes in, a prompt between marks out
		name, old, err := reflected(text)
		if err != nil {
			return prompt.Answer{}, err
		}
		return prompt.Answer{Text: "The notes say what is missing.\n<prompt>\n" + old + " " + r.advice(text, name) + "\n</prompt>"}, nil
	case "gradient": // APO: notes in, a critique out
		return prompt.Answer{Text: "- Add this sentence: " + r.advice(text, choose)}, nil
	case "edit": // APO: a critique in, a prompt out
		return prompt.Answer{Text: edited(text)}, nil
	}
	return prompt.Answer{}, fmt.Errorf("the script has no answer for %q", q.Purpose)
}

// advice is the sentence that the notes ask for most in a prompt.
func (r *reviser) advice(text, name string) string {
	best, most := "Be friendly.", 0
	for _, rule := range rules {
		if n := strings.Count(text, rule.complaint); rule.prompt == name && n > most {
			best, most = rule.says, n
		}
	}
	if r.random.Float64() < uselessShare {
		return "Think carefully."
	}
	return best
}

var component = regexp.MustCompile(`(?s)One of them, "([a-z]+)".*?<prompt>\n(.*?)\n</prompt>`)

// reflected reads which prompt is to be rewritten, and what it says now.
func reflected(text string) (name, old string, err error) {
	m := component.FindStringSubmatch(text)
	if m == nil {
		return "", "", fmt.Errorf("the script does not find the prompt in the request %.80q", text)
	}
	return m[1], m[2], nil
}

var critique = regexp.MustCompile(`(?s)The prompt:\s+(.*?)\s+The review:\s+- Add this sentence: (.*?)\s*$`)

// edited is the prompt with what the critique asks for.
func edited(text string) string {
	m := critique.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	return m[1] + " " + m[2]
}
