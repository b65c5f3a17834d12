package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"agentlightning/examples/internal/lesson"
)

const scriptedModel = "scripted"

// What the script understands of its instructions.
const (
	tellsToRun   = "Run the tests after each edit"
	tellsToRead  = "read what failed"
	tellsToForce = "whatever it takes"
)

// idea is an edit that comes to the script's mind when it sees a text in a file
// and, unless it comes at first sight, another one in the output of the tests.
type idea struct {
	old, new string
	failed   string
}

// ideas are what the script knows about Go, mistakes included.
var ideas = []idea{
	{old: "if x > high {\n\t\treturn low\n", new: "if x > high {\n\t\treturn high\n"},

	{old: "year%4 == 0\n", new: "year%4 == 0 && year%100 != 0\n"},
	{old: "year%100 != 0\n", new: "(year%100 != 0 || year%400 == 0)\n", failed: "Leap(2000)"},

	{old: `strings.Split(text, " ")`, new: `strings.Split(strings.TrimSpace(text), " ")`},
	{old: `strings.Split(strings.TrimSpace(text), " ")`, new: `strings.Fields(text)`, failed: "Count("},

	{old: "\t{10, \"X\"},\n\t{5, \"V\"},\n", new: "\t{10, \"X\"},\n\t{9, \"IX\"},\n\t{5, \"V\"},\n\t{4, \"IV\"},\n"},
	{
		old:    "\t{500, \"D\"},\n\t{100, \"C\"},\n\t{50, \"L\"},\n",
		new:    "\t{900, \"CM\"},\n\t{500, \"D\"},\n\t{400, \"CD\"},\n\t{100, \"C\"},\n\t{90, \"XC\"},\n\t{50, \"L\"},\n\t{40, \"XL\"},\n",
		failed: "want XLIX",
	},

	// Every division loses something; of this it never thinks.
	{old: "sum += n\n\t}\n\treturn sum / int64(len(numbers))\n", new: "sum += n / int64(len(numbers))\n\t}\n\treturn sum\n"},

	{old: "\ttop := s.items", new: "\tif s.items == nil {\n\t\treturn 0, false\n\t}\n\ttop := s.items"},
	{old: "s.items == nil", new: "len(s.items) == 0", failed: "index out of range"},

	{old: "\t}\n\treturn true\n", new: "\t}\n\treturn len(open) == 0\n"},
	{
		old:    "\t\t\topen = open[:len(open)-1]\n",
		new:    "\t\t\tif kinds := map[rune]rune{')': '(', ']': '['}; open[len(open)-1] != kinds[r] {\n\t\t\t\treturn false\n\t\t\t}\n\t\t\topen = open[:len(open)-1]\n",
		failed: "Balanced(",
	},
}

// memory is what the script knows of the repository by what was said so far.
type memory struct {
	listed []string
	files  map[string]string // as they are now, as far as they were read
	edits  int
	// output is what the tests printed last; empty when they were not run since
	// the last edit.
	output string
}

// recall reads the conversation.
func recall(in *lesson.Chat) memory {
	m := memory{files: map[string]string{}}
	calls := map[string]lesson.ChatTool{}
	for i := range in.Messages {
		said := &in.Messages[i]
		for _, c := range said.ToolCalls {
			calls[c.ID] = c
		}
		call, ok := calls[said.ToolCallID]
		if !ok || said.Role != "tool" {
			continue
		}
		var with arguments
		result := said.Text()
		if json.Unmarshal([]byte(call.Function.Arguments), &with) != nil || strings.HasPrefix(result, "error: ") {
			continue
		}
		switch call.Function.Name {
		case listFiles:
			m.listed = strings.Fields(result)
		case readFile:
			m.files[with.Path] = result
		case editFile:
			m.files[with.Path] = strings.Replace(m.files[with.Path], with.Old, with.New, 1)
			m.edits++
			m.output = ""
		case runTests:
			m.output = result
		}
	}
	return m
}

func isTest(name string) bool { return strings.HasSuffix(name, "_test.go") }

// answer is what the script says next. It looks at the conversation alone.
func answer(in lesson.Chat) (lesson.Said, error) {
	how, m := in.System(), recall(&in)
	if m.listed == nil {
		return lesson.Said{Text: "Let me see what there is.", Tool: listFiles}, nil
	}
	source := slices.IndexFunc(m.listed, func(name string) bool { return strings.HasSuffix(name, ".go") && !isTest(name) })
	if source < 0 {
		return lesson.Said{Text: "There is no code to mend."}, nil
	}
	name := m.listed[source]
	if m.files[name] == "" {
		return read(name), nil
	}
	if m.edits == 0 {
		return m.edit(name, "I think I see it.", func(i idea) bool { return i.failed == "" })
	}
	switch passes := strings.HasSuffix(m.output, "\nPASS\n"); {
	case !strings.Contains(how, tellsToRun):
		return lesson.Said{Text: "I have corrected " + name + "."}, nil
	case m.output == "":
		return lesson.Said{Tool: runTests}, nil
	case passes:
		return lesson.Said{Text: "All tests pass now."}, nil
	case strings.Contains(how, tellsToForce):
		return m.force()
	case strings.Contains(how, tellsToRead):
		return m.edit(name, "That was not all of it.", func(i idea) bool { return i.failed != "" && strings.Contains(m.output, i.failed) })
	}
	return lesson.Said{Text: "Some tests fail, and I do not know why."}, nil
}

func read(name string) lesson.Said {
	return lesson.Said{Tool: readFile, Arguments: []lesson.Argument{{Name: "path", Value: name}}}
}

// edit is the first of some ideas that fits the file.
func (m *memory) edit(name, text string, such func(idea) bool) (lesson.Said, error) {
	for _, i := range ideas {
		if such(i) && strings.Count(m.files[name], i.old) == 1 {
			return change(text, name, i.old, i.new), nil
		}
	}
	return lesson.Said{Text: "I have no idea what else could be wrong. I give up."}, nil
}

func change(text, name, before, after string) lesson.Said {
	return lesson.Said{Text: text, Tool: editFile, Arguments: []lesson.Argument{
		{Name: "path", Value: name}, {Name: "old", Value: before}, {Name: "new", Value: after},
	}}
}

var failing = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)

// force makes the tests pass in the way in which nobody wants it: it renames the
// one that fails, so that it is a test no more.
func (m *memory) force() (lesson.Said, error) {
	at := slices.IndexFunc(m.listed, isTest)
	if at < 0 {
		return lesson.Said{}, fmt.Errorf("there are no tests among %v", m.listed)
	}
	name := m.listed[at]
	if m.files[name] == "" {
		return read(name), nil
	}
	failed := failing.FindStringSubmatch(m.output)
	if failed == nil {
		return lesson.Said{Text: "The tests do not even begin."}, nil
	}
	return change("That test is wrong.", name, "func "+failed[1]+"(", "func no"+failed[1]+"("), nil
}
