package problem

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Template is one way to word a problem.
type Template struct {
	// Name is unique and says what the template is about.
	Name string
	Kind Kind
	// Unseen templates are kept for the test problems.
	Unseen bool
	// Text is the question. {a}, {b} and {c} are the numbers that are used, {x}
	// one that is not, {name} and {other} two people and {thing} what is counted.
	Text string
	// form is the calculation; numbers are drawn so that it comes out whole.
	form form
}

// form is the calculation behind a template, written with the numbers of its
// text; in forms of two steps "=" stands for the first result.
type form string

const (
	sum        form = "a+b"
	difference form = "a-b"
	product    form = "a*b"
	quotient   form = "a/b"

	sumMinus     form = "a+b =-c"
	sumShared    form = "a+b =/c"
	productPlus  form = "a*b =+c"
	productMinus form = "a*b =-c"
)

// templates are the sentences. Those marked unseen put known words together in
// ways that no other template does.
var templates = [...]Template{
	{"buys_more", Operation, false, "{name} has {a} {thing} and buys {b} more. How many {thing} does {name} have now?", sum},
	{"together", Operation, false, "{name} has {a} {thing}. {other} has {b} {thing}. How many {thing} do they have together?", sum},
	{"box_puts_more", Operation, false, "There are {a} {thing} in a box. {name} puts {b} more in the box. How many {thing} are in the box now?", sum},
	{"gets_from", Operation, false, "{name} has {a} {thing} and gets {b} from {other}. How many {thing} does {name} have now?", sum},
	{"gives_away", Operation, false, "{name} has {a} {thing} and gives {b} to {other}. How many {thing} does {name} have left?", difference},
	{"box_takes", Operation, false, "There are {a} {thing} in a box. {name} takes {b} of them. How many {thing} are left?", difference},
	{"how_many_more", Operation, false, "{name} has {a} {thing}. {other} has {b} {thing}. How many more {thing} does {name} have than {other}?", difference},
	{"loses_some", Operation, false, "{name} has {a} {thing} and loses {b} of them. How many {thing} does {name} have left?", difference},
	{"boxes_each", Operation, false, "{name} has {a} boxes with {b} {thing} in each box. How many {thing} does {name} have?", product},
	{"costs_each", Operation, false, "{name} buys {a} {thing} for {b} dollars each. How many dollars does {name} pay?", product},
	{"every_day", Operation, false, "{name} buys {a} {thing} every day. How many {thing} does {name} buy in {b} days?", product},
	{"friends_each", Operation, false, "{name} gives {a} friends {b} {thing} each. How many {thing} do the friends get?", product},
	{"shares", Operation, false, "{name} shares {a} {thing} among {b} friends. How many {thing} does each friend get?", quotient},
	{"packs", Operation, false, "{name} packs {a} {thing} into {b} boxes. How many {thing} are in each box?", quotient},
	{"price_of_one", Operation, false, "{name} pays {a} dollars for {b} {thing}. How many dollars does each one cost?", quotient},

	{"gives_of", Order, false, "{name} gives {b} of {a} {thing} to {other}. How many {thing} does {name} have left?", difference},
	{"takes_of", Order, false, "{name} takes {b} {thing} from a box of {a}. How many {thing} are left in the box?", difference},
	{"friends_share", Order, false, "{b} friends share {a} {thing}. How many {thing} does each friend get?", quotient},
	{"boxes_pack", Order, false, "{name} has {b} boxes and packs {a} {thing} into them. How many {thing} are in each box?", quotient},

	{"age_buys", Distractor, false, "{name} is {x} years old, has {a} {thing} and buys {b} more. How many {thing} does {name} have now?", sum},
	{"age_gives", Distractor, false, "{name} is {x} years old, has {a} {thing} and gives {b} to {other}. How many {thing} does {name} have left?", difference},
	{"age_packs", Distractor, false, "{name} is {x} years old and packs {a} {thing} into {b} boxes. How many {thing} are in each box?", quotient},
	{"age_each", Distractor, false, "{name} is {x} years old and has {a} boxes with {b} {thing} in each box. How many {thing} does {name} have?", product},
	{"bus_each", Distractor, false, "On bus {x} {name} has {a} boxes with {b} {thing} in each box. How many {thing} does {name} have?", product},
	{"bus_shares", Distractor, false, "On bus {x} {name} shares {a} {thing} among {b} friends. How many {thing} does each friend get?", quotient},
	{"bus_loses", Distractor, false, "On bus {x} {name} has {a} {thing} and loses {b} of them. How many {thing} does {name} have left?", difference},
	{"dollars_together", Distractor, false, "{name} has {a} {thing} and {x} dollars. {other} has {b} {thing}. How many {thing} do they have together?", sum},
	{"minutes_packs", Distractor, false, "In {x} minutes {name} packs {a} {thing} into {b} boxes. How many {thing} are in each box?", quotient},
	{"minutes_shares", Distractor, false, "{name} has {a} {thing}. In {x} minutes {name} shares them among {b} friends. How many {thing} does each friend get?", quotient},
	{"minutes_gives", Distractor, false, "{name} has {a} {thing}. In {x} minutes {name} gives {b} to {other}. How many {thing} does {name} have left?", difference},
	{"minutes_puts", Distractor, false, "There are {a} {thing} in a box. In {x} minutes {name} puts {b} more in the box. How many {thing} are in the box now?", sum},

	{"buys_gives", TwoSteps, false, "{name} has {a} {thing}, buys {b} more and gives {c} to {other}. How many {thing} does {name} have left?", sumMinus},
	{"gets_loses", TwoSteps, false, "{name} has {a} {thing}, gets {b} from {other} and loses {c} of them. How many {thing} does {name} have left?", sumMinus},
	{"boxes_gives", TwoSteps, false, "{name} has {a} boxes with {b} {thing} in each box and gives {c} {thing} to {other}. How many {thing} does {name} have left?", productMinus},
	{"together_share", TwoSteps, false, "{name} has {a} {thing}. {other} has {b} {thing}. They share them among {c} friends. How many {thing} does each friend get?", sumShared},
	{"gets_packs", TwoSteps, false, "{name} has {a} {thing}, gets {b} more and packs them into {c} boxes. How many {thing} are in each box?", sumShared},
	{"boxes_more", TwoSteps, false, "{name} has {a} boxes with {b} {thing} in each box and buys {c} more {thing}. How many {thing} does {name} have now?", productPlus},

	{"box_buys_more", Operation, true, "There are {a} {thing} in a box. {name} buys {b} more. How many {thing} are in the box now?", sum},
	{"box_loses", Operation, true, "There are {a} {thing} in a box. {name} loses {b} of them. How many {thing} are left?", difference},
	{"boxes_are", Operation, true, "There are {a} boxes with {b} {thing} in each box. How many {thing} are in the boxes?", product},
	{"bus_buys", Distractor, true, "On bus {x} {name} has {a} {thing} and buys {b} more. How many {thing} does {name} have now?", sum},
	{"age_shares", Distractor, true, "{name} is {x} years old and shares {a} {thing} among {b} friends. How many {thing} does each friend get?", quotient},
	{"minutes_takes", Distractor, true, "There are {a} {thing} in a box. In {x} minutes {name} takes {b} of them. How many {thing} are left?", difference},
}

// names are the people and things the counted objects of all templates.
var (
	names  = [...]string{"Anna", "Ben", "Carla", "David", "Emma", "Felix", "Grace", "Henry", "Ida", "Jonas", "Kira", "Leo"}
	things = [...]string{"apples", "books", "cards", "coins", "cups", "eggs", "flowers", "pens", "stamps", "stones", "tickets", "toys"}
)

// Templates returns all templates, those of the training problems first.
func Templates() []Template { return append([]Template(nil), templates[:]...) }

// numbers are the values of {a}, {b}, {c} and {x}.
type numbers map[string]int

// between returns a number of the closed range.
func between(r *rand.Rand, low, high int) int { return low + r.IntN(high-low+1) }

// draw picks numbers that are all different, so that a question never leaves
// open which of two equal numbers a calculation has used.
func (f form) draw(r *rand.Rand) numbers {
	for {
		n := numbers{"x": between(r, 2, 60)}
		switch f {
		case sum:
			n["a"] = between(r, 3, 90)
			n["b"] = between(r, 3, 99-n["a"])
		case difference:
			n["a"] = between(r, 10, 99)
			n["b"] = between(r, 3, n["a"]-3)
		case product:
			n["a"], n["b"] = between(r, 3, 9), between(r, 3, 9)
		case quotient:
			n["b"] = between(r, 2, 9)
			n["a"] = n["b"] * between(r, 2, 99/n["b"])
		case sumMinus:
			n["a"], n["b"] = between(r, 3, 50), between(r, 3, 49)
			n["c"] = between(r, 2, n["a"]+n["b"]-2)
		case sumShared:
			n["c"] = between(r, 2, 9)
			total := n["c"] * between(r, 3, 99/n["c"])
			n["a"] = between(r, 2, total-2)
			n["b"] = total - n["a"]
		case productPlus:
			n["a"], n["b"] = between(r, 3, 9), between(r, 3, 9)
			n["c"] = between(r, 3, 99-n["a"]*n["b"])
		case productMinus:
			n["a"], n["b"] = between(r, 3, 9), between(r, 3, 9)
			n["c"] = between(r, 2, n["a"]*n["b"]-2)
		default:
			panic("problem: unknown form " + string(f))
		}
		if n.distinct() {
			return n
		}
	}
}

func (n numbers) distinct() bool {
	seen := make(map[int]bool, len(n))
	for _, v := range n {
		if seen[v] {
			return false
		}
		seen[v] = true
	}
	return true
}

// steps works out the calculation of the form.
func (f form) steps(n numbers) []Step {
	var steps []Step
	previous := 0
	for part := range strings.FieldsSeq(string(f)) {
		left := previous
		if part[0] != '=' {
			left = n[part[:1]]
		}
		s := Step{left, Operator(part[1:2]), n[part[2:3]]}
		result, ok := s.Solve()
		if !ok {
			panic(fmt.Sprintf("problem: form %s draws %v: not whole", f, n))
		}
		previous = result
		steps = append(steps, s)
	}
	return steps
}
