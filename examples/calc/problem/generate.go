package problem

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Config sizes a dataset. A size of zero means none of that part.
type Config struct {
	// Seed decides every draw; the same configuration gives the same dataset.
	Seed uint64
	// Train, Validation and Test are numbers of problems of the templates that
	// training knows.
	Train, Validation, Test int
	// TestUnseen is the number of further test problems, of templates that
	// occur nowhere else.
	TestUnseen int
}

// MaxProblems bounds each part of a dataset.
const MaxProblems = 100_000

// maxDraws bounds the search for a question that is new. The smallest template
// has some 500 questions; when the last of them is out, a draw finds it once in
// 500 times.
const maxDraws = 10_000

// Validate returns an error naming the first field that is out of range.
func (c Config) Validate() error {
	for _, f := range []struct {
		name string
		n    int
	}{{"Train", c.Train}, {"Validation", c.Validation}, {"Test", c.Test}, {"TestUnseen", c.TestUnseen}} {
		if f.n < 0 || f.n > MaxProblems {
			return fmt.Errorf("problem config: %s is %d: must be between 0 and %d", f.name, f.n, MaxProblems)
		}
	}
	return nil
}

// Dataset holds problems of which no two have the same question.
type Dataset struct {
	Train, Validation []Problem
	// Test holds problems of known templates first, then the unseen ones.
	Test []Problem
}

// Unseen returns the test problems whose templates occur nowhere else.
func (d Dataset) Unseen() []Problem {
	var out []Problem
	for _, p := range d.Test {
		if p.Unseen {
			out = append(out, p)
		}
	}
	return out
}

// Generate draws a dataset. The templates of a part take turns, in random
// order, so that each occurs equally often to within one. It is an error to ask
// for more problems than the templates have questions.
func Generate(c Config) (Dataset, error) {
	if err := c.Validate(); err != nil {
		return Dataset{}, err
	}
	known, unseen := Templates(), []Template(nil)
	for i, t := range known {
		if t.Unseen {
			known, unseen = known[:i:i], known[i:]
			break
		}
	}
	g := generator{
		random: rand.New(rand.NewPCG(c.Seed, 0x63616c63)),
		taken:  make(map[string]bool, c.Train+c.Validation+c.Test+c.TestUnseen),
	}
	var d Dataset
	// The small parts come first: their problems then do not depend on how
	// many training problems are asked for.
	g.add(&d.Validation, Validation, known, c.Validation)
	g.add(&d.Test, Test, known, c.Test)
	g.add(&d.Test, Test, unseen, c.TestUnseen)
	g.add(&d.Train, Train, known, c.Train)
	if g.err != nil {
		return Dataset{}, g.err
	}
	return d, nil
}

type generator struct {
	random *rand.Rand
	taken  map[string]bool
	err    error // the first one; nothing is added after it
}

// add appends n new problems to a list.
func (g *generator) add(list *[]Problem, split Split, from []Template, n int) {
	var turn []int
	for range n {
		if len(turn) == 0 {
			turn = g.random.Perm(len(from))
		}
		p, ok := g.draw(from[turn[0]])
		if !ok {
			if g.err == nil {
				g.err = fmt.Errorf("problem config: template %s has too few different questions; ask for fewer %s problems", from[turn[0]].Name, split)
			}
			return
		}
		turn = turn[1:]
		p.ID = fmt.Sprintf("%s-%05d", split, len(*list))
		*list = append(*list, p)
	}
}

// draw draws until the question is one that no part has yet.
func (g *generator) draw(t Template) (Problem, bool) {
	for range maxDraws {
		p := t.write(g.random)
		if !g.taken[p.Question] {
			g.taken[p.Question] = true
			return p, true
		}
	}
	return Problem{}, false
}

// write draws one problem, without an ID.
func (t Template) write(r *rand.Rand) Problem {
	n := t.form.draw(r)
	person, other := r.IntN(len(names)), r.IntN(len(names)-1)
	if other >= person {
		other++
	}
	question := strings.NewReplacer(
		"{a}", strconv.Itoa(n["a"]), "{b}", strconv.Itoa(n["b"]), "{c}", strconv.Itoa(n["c"]), "{x}", strconv.Itoa(n["x"]),
		"{name}", names[person], "{other}", names[other], "{thing}", things[r.IntN(len(things))],
	).Replace(t.Text)
	steps := t.form.steps(n)
	answer, _ := steps[len(steps)-1].Solve()
	return Problem{Template: t.Name, Kind: t.Kind, Unseen: t.Unseen, Question: question, Answer: answer, Steps: steps}
}
