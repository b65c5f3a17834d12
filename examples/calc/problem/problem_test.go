package problem_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentlightning/examples/calc/problem"
)

func generate(t *testing.T, c problem.Config) problem.Dataset {
	t.Helper()
	d, err := problem.Generate(c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestGenerate(t *testing.T) {
	t.Parallel()
	d := generate(t, problem.Config{Seed: 7, Train: 3000, Validation: 400, Test: 200, TestUnseen: 200})
	parts := map[string][]problem.Problem{"train": d.Train, "validation": d.Validation, "test": d.Test}
	sizes := map[string]int{"train": 3000, "validation": 400, "test": 400}
	seen := map[string]string{}
	templates := map[string]map[string]bool{}
	for name, part := range parts {
		if len(part) != sizes[name] {
			t.Errorf("%s: %d problems, want %d", name, len(part), sizes[name])
		}
		templates[name] = map[string]bool{}
		for _, p := range part {
			if err := p.Validate(); err != nil {
				t.Errorf("%s: %v", p.ID, err)
			}
			if other, dup := seen[p.Question]; dup {
				t.Errorf("%s and %s share the question %q", p.ID, other, p.Question)
			}
			seen[p.Question] = p.ID
			templates[name][p.Template] = true
			if p.Answer <= 0 {
				t.Errorf("%s: answer %d, want one above 0", p.ID, p.Answer)
			}
			if p.Score(" "+itoa(p.Answer)+"\n") != 1 || p.Score(itoa(p.Answer)+"1") != 0 || p.Score("") != 0 {
				t.Errorf("%s: Score does not tell the answer from others", p.ID)
			}
		}
	}
	unseen := d.Unseen()
	if len(unseen) != 200 {
		t.Errorf("%d unseen problems, want 200", len(unseen))
	}
	for _, p := range unseen {
		if templates["train"][p.Template] || templates["validation"][p.Template] {
			t.Errorf("template %s is called unseen and occurs in training or validation", p.Template)
		}
	}
}

func itoa(n int) string {
	return problem.Step{Left: n}.Expression()[:len(problem.Step{Left: n}.Expression())-1]
}

func TestGenerateRepeats(t *testing.T) {
	t.Parallel()
	c := problem.Config{Seed: 3, Train: 50, Validation: 50, Test: 20, TestUnseen: 20}
	first := generate(t, c)
	if diff := cmp.Diff(first, generate(t, c)); diff != "" {
		t.Errorf("the same seed gave two datasets (-first +second):\n%s", diff)
	}
	c.Train = 500
	more := generate(t, c)
	if diff := cmp.Diff(first.Validation, more.Validation); diff != "" {
		t.Errorf("validation depends on the number of training problems:\n%s", diff)
	}
	c.Seed = 4
	if cmp.Equal(first.Validation, generate(t, c).Validation) {
		t.Error("two seeds gave the same validation problems")
	}
	if _, err := problem.Generate(problem.Config{Train: -1}); err == nil || !strings.Contains(err.Error(), "Train") {
		t.Errorf("Generate with Train -1: error %v, want one that names the field", err)
	}
	if _, err := problem.Generate(problem.Config{TestUnseen: 20_000}); err == nil || !strings.Contains(err.Error(), "fewer test") {
		t.Errorf("Generate with more problems than there are questions: error %v, want one that says so", err)
	}
}

var number = regexp.MustCompile(`\d+`)

// Every number of a solution is in the question (or is a result), the numbers
// of a question differ, and what a template is said to be about is true.
func TestTemplates(t *testing.T) {
	t.Parallel()
	kinds := map[problem.Kind]int{}
	unseen := 0
	names := map[string]problem.Template{}
	for _, tmpl := range problem.Templates() {
		if _, dup := names[tmpl.Name]; dup {
			t.Errorf("two templates are called %s", tmpl.Name)
		}
		names[tmpl.Name] = tmpl
		if tmpl.Unseen {
			unseen++
		} else {
			kinds[tmpl.Kind]++
		}
	}
	if len(names)-unseen < 20 || unseen < 5 {
		t.Errorf("%d templates for training and %d unseen, want at least 20 and 5", len(names)-unseen, unseen)
	}
	for _, k := range []problem.Kind{problem.Operation, problem.Order, problem.Distractor, problem.TwoSteps} {
		if kinds[k] < 3 {
			t.Errorf("%d templates of kind %s, want at least 3", kinds[k], k)
		}
	}
	d := generate(t, problem.Config{Seed: 11, Train: 3000, TestUnseen: 600})
	for _, p := range slices.Concat(d.Train, d.Test) {
		mentioned := number.FindAllString(p.Question, -1)
		if sorted := slices.Sorted(slices.Values(mentioned)); len(slices.Compact(sorted)) != len(mentioned) {
			t.Errorf("%s: %q mentions a number twice", p.ID, p.Question)
		}
		if strings.ContainsAny(p.Question, "{}") {
			t.Errorf("%s: %q has an open slot", p.ID, p.Question)
		}
		var used []string
		for i, s := range p.Steps {
			if i == 0 {
				used = append(used, itoa(s.Left))
			} else if before, _ := p.Steps[i-1].Solve(); before != s.Left {
				t.Errorf("%s: step %d begins with %d, not with the result %d", p.ID, i, s.Left, before)
			}
			used = append(used, itoa(s.Right))
		}
		for _, u := range used {
			if !slices.Contains(mentioned, u) {
				t.Errorf("%s: %q does not mention %s", p.ID, p.Question, u)
			}
		}
		switch p.Kind {
		case problem.Operation:
			if !slices.Equal(used, mentioned) {
				t.Errorf("%s: %q uses %v, want all numbers in their order", p.ID, p.Question, used)
			}
		case problem.Order:
			if slices.Equal(used, mentioned) || len(used) != len(mentioned) {
				t.Errorf("%s: %q uses %v, want all numbers in another order", p.ID, p.Question, used)
			}
		case problem.Distractor:
			if len(used) >= len(mentioned) {
				t.Errorf("%s: %q uses %v, want one number left over", p.ID, p.Question, used)
			}
		case problem.TwoSteps:
			if len(p.Steps) != 2 {
				t.Errorf("%s: %d steps, want 2", p.ID, len(p.Steps))
			}
		}
	}
}

// The words of unseen templates are all known from others: what is new about
// them is how they are put together.
func TestUnseenUseKnownWords(t *testing.T) {
	t.Parallel()
	words := regexp.MustCompile(`\{?[A-Za-z]+\}?`)
	known, texts := map[string]bool{}, map[string]bool{}
	for _, tmpl := range problem.Templates() {
		if texts[tmpl.Text] {
			t.Errorf("%s: its text is another template's too", tmpl.Name)
		}
		texts[tmpl.Text] = true
		for _, w := range words.FindAllString(tmpl.Text, -1) {
			if tmpl.Unseen && !known[w] {
				t.Errorf("%s: the word %q is in no training template", tmpl.Name, w)
			}
			if !tmpl.Unseen {
				known[w] = true
			}
		}
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	words := problem.Words()
	if !slices.IsSorted(words) || len(slices.Compact(slices.Clone(words))) != len(words) {
		t.Error("Words: want them sorted and without repetition")
	}
	for _, w := range words {
		if number.MatchString(w) {
			t.Errorf("Words holds %q: numbers must stay apart", w)
		}
	}
	for _, want := range []string{" apples", "Anna", " Anna", " How", " with "} {
		if !slices.Contains(words, want) {
			t.Errorf("Words does not hold %q", want)
		}
	}
}
