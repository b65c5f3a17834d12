package compose

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	agl "agentlightning"
	"agentlightning/algorithm/prompt"
)

var tasks = []Task{{"Paul lives in Geneva.", "Geneva"}, {"In Oslo everybody knows Eva.", "Oslo"}, {"Home is Lima.", "Lima"}}

// Every prompt can be taken apart again.
func TestParse(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for a := range asks {
		for h := range hints {
			for title := range titles {
				for n := range 4 {
					p := Parts{Ask: a, Hint: h, Title: title, Last: n%2 == 1, Examples: tasks[:n]}
					text := p.String()
					got, ok := Parse(text, tasks)
					if !ok || got.String() != text || len(got.Examples) != n {
						t.Fatalf("Parse(%q) = %+v, %v", text, got, ok)
					}
					if seen[text] {
						t.Errorf("two prompts are %q", text)
					}
					seen[text] = true
					if strings.Count(text, "{text}") != 1 || len(Turns(text)) != 2*n+1 {
						t.Errorf("%q has %d turns", text, len(Turns(text)))
					}
				}
			}
		}
	}
	for _, text := range []string{"", "Where is it? {text}", Parts{Examples: []Task{{"x", "Rome"}}}.String(), "x" + separator + Parts{}.String()} {
		if p, ok := Parse(text, tasks); ok {
			t.Errorf("Parse(%q) = %+v", text, p)
		}
	}
}

// ask builds a request as GEPA does.
func ask(p Parts, feedback ...string) prompt.Request {
	var b strings.Builder
	fmt.Fprintf(&b, "An agent works.\n\n<prompt>\n%s\n</prompt>\n", p)
	for i, f := range feedback {
		fmt.Fprintf(&b, "\n## Task %d\n\n{\"text\":%q,\"town\":%q}\n\nReward: 0\n%s\n", i+1, tasks[i].Text, tasks[i].Town, f)
	}
	b.WriteString("\nThen give the whole new prompt between <prompt> and </prompt>.")
	return prompt.Request{Messages: []prompt.Message{{Role: prompt.RoleUser, Content: b.String()}}}
}

// proposals are those of many seeds.
func proposals(t *testing.T, r prompt.Request) []Parts {
	t.Helper()
	var out []Parts
	for seed := range int64(100) {
		c := Composer{Tasks: tasks, Seed: seed}
		first, err := c.Complete(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := c.Complete(t.Context(), r); err != nil || second != first {
			t.Fatalf("the second time it proposes %q, %v, first %q", second.Text, err, first.Text)
		}
		_, text, _ := strings.Cut(first.Text, "<prompt>\n")
		text, _, _ = strings.Cut(text, "\n</prompt>")
		p, ok := Parse(text, tasks)
		if !ok {
			t.Fatalf("it proposes %q", text)
		}
		if _, err := prompt.Revise(agl.PromptTemplate{Template: Parts{}.String(), Engine: agl.EngineFString}, text); err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

func TestProposals(t *testing.T) {
	t.Parallel()
	parent := Parts{Ask: 1, Hint: 2, Examples: tasks[:1]}
	shown, other := 0, 0
	for _, p := range proposals(t, ask(parent, "", "- "+NotNamed+": \"x\"", "")) {
		if slices.Contains(p.Examples, tasks[1]) {
			shown++
		}
		if slices.Contains(p.Examples, tasks[2]) {
			t.Errorf("an example had not failed: %+v", p)
		}
		if p.Ask != parent.Ask || p.Hint != parent.Hint || p.Title != parent.Title || p.Last != parent.Last {
			other++
		}
		if p.String() == parent.String() {
			t.Error("nothing changed")
		}
	}
	if shown < 40 || other < 20 {
		t.Errorf("of 100 proposals %d show what failed and %d change another piece", shown, other)
	}
	for _, p := range proposals(t, ask(parent, "", "- "+MoreSaid+": \"x\"", "- "+NotNamed+": \"x\"")) {
		if len(p.Examples) > mostExamples {
			t.Errorf("%d examples", len(p.Examples))
		}
	}
}

// A prompt does not grow without end.
func TestExamplesEnd(t *testing.T) {
	t.Parallel()
	many := make([]Task, 2*mostExamples)
	for i := range many {
		many[i] = Task{fmt.Sprint("Text ", i), "Rome"}
	}
	p, r := Parts{}, rand.New(rand.NewPCG(1, 2))
	for _, t := range many {
		p.show(t, r)
		p.show(t, r)
	}
	if len(p.Examples) != mostExamples {
		t.Errorf("%d examples", len(p.Examples))
	}
}

func TestCompleteRefusals(t *testing.T) {
	t.Parallel()
	c := Composer{Tasks: tasks}
	for name, r := range map[string]prompt.Request{
		"empty":       {},
		"no prompt":   {Messages: []prompt.Message{{Content: "x"}}},
		"another one": {Messages: []prompt.Message{{Content: "<prompt>\nx {text}\n</prompt>"}}},
		"no task":     {Messages: []prompt.Message{{Content: "<prompt>\n" + Parts{}.String() + "\n</prompt>\n\n## Task 1\n\nx\n"}}},
	} {
		if got, err := c.Complete(t.Context(), r); err == nil {
			t.Errorf("%s: %q", name, got.Text)
		}
	}
}
