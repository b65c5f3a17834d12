package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"agentlightning/algorithm/prompt"
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

// assistant is a model of a script behind OpenAI's API: it books rooms as well as
// its prompts tell it to, and no better.
type assistant struct{}

// chat is the part of a request that the assistant reads.
type chat struct {
	Messages []struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	} `json:"messages"`
}

func (assistant) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in chat
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&in); err != nil {
		http.Error(w, `{"error":{"message":"the body is not a chat","type":"invalid_request_error"}}`, http.StatusBadRequest)
		return
	}
	message := answer(in)
	finish := "stop"
	if message["tool_calls"] != nil {
		finish = "tool_calls"
	}
	w.Header().Set("Content-Type", "application/json")
	// A client that has gone away needs no answer.
	_ = json.NewEncoder(w).Encode(map[string]any{
		"id": "chatcmpl-scripted", "object": "chat.completion", "created": 0, "model": scriptedModel,
		"choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": finish}},
		"usage":   map[string]any{"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
	})
}

var numbers = regexp.MustCompile(`\d+`)

// answer is what the assistant says next.
func answer(in chat) map[string]any {
	told, asked, found := "", "", ""
	for _, m := range in.Messages {
		switch m.Role {
		case "system":
			told += m.Content
		case "user":
			asked = m.Content
		case "tool":
			found = m.Content
		}
	}
	follows := func(i int) bool { return strings.Contains(told, rules[i].says) }
	figures := numbers.FindAllString(asked, -1)
	if len(figures) != 2 {
		return map[string]any{"role": "assistant", "content": "Sorry?"}
	}
	people, _ := strconv.Atoi(figures[0]) // digits
	if follows(0) && found == "" {
		call := map[string]any{
			"id": "call_1", "type": "function",
			"function": map[string]any{"name": lookUp, "arguments": `{"hour":` + figures[1] + `}`},
		}
		return map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{call}}
	}
	var rooms []room
	if found == "" {
		rooms = slices.Clone(office) // as it remembers them: it does not know who has booked
	} else if json.Unmarshal([]byte(found), &rooms) != nil {
		return map[string]any{"role": "assistant", "content": "Sorry?"}
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
	return map[string]any{"role": "assistant", "content": name}
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
