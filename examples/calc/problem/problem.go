package problem

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Kind says what is hard about a problem.
type Kind string

const (
	// Operation problems hold two numbers in the order they are used; the
	// operation has to be found.
	Operation Kind = "operation"
	// Order problems mention the numbers in another order than the calculation.
	Order Kind = "order"
	// Distractor problems mention a number that must not be used.
	Distractor Kind = "distractor"
	// TwoSteps problems need the result of a first calculation in a second one.
	TwoSteps Kind = "two_steps"
)

func (k Kind) valid() bool {
	switch k {
	case Operation, Order, Distractor, TwoSteps:
		return true
	}
	return false
}

// Split is the part of a dataset that a problem belongs to.
type Split string

const (
	// Train problems are the tasks of training.
	Train Split = "train"
	// Validation problems show progress while training.
	Validation Split = "validation"
	// Test problems are looked at once, at the end.
	Test Split = "test"
)

// Problem is one question with its solution.
type Problem struct {
	// ID names the problem within its dataset, for instance "train-00017".
	ID string `json:"id"`
	// Template is the name of the template the question was written from.
	Template string `json:"template"`
	// Kind says what is hard about it.
	Kind Kind `json:"kind"`
	// Unseen marks a problem whose template occurs in test problems only.
	Unseen bool `json:"unseen,omitempty"`
	// Question is the text that the agent reads.
	Question string `json:"question"`
	// Answer is the whole number that earns the reward.
	Answer int `json:"answer"`
	// Steps is the shortest way to the answer. It is never shown to the agent.
	Steps []Step `json:"steps"`
}

// Step is one calculation of two whole numbers.
type Step struct {
	Left     int      `json:"left"`
	Operator Operator `json:"operator"`
	Right    int      `json:"right"`
}

// Operator is one of the four signs "+", "-", "*" and "/".
type Operator string

// The four operators.
const (
	Add      Operator = "+"
	Subtract Operator = "-"
	Multiply Operator = "*"
	Divide   Operator = "/"
)

// Expression writes the step as the calculator reads it, for instance "17+25".
func (s Step) Expression() string {
	return strconv.Itoa(s.Left) + string(s.Operator) + strconv.Itoa(s.Right)
}

// Solve returns the result of the step; ok is false when it is not a whole
// number or the operator is unknown.
func (s Step) Solve() (result int, ok bool) {
	switch s.Operator {
	case Add:
		return s.Left + s.Right, true
	case Subtract:
		return s.Left - s.Right, true
	case Multiply:
		return s.Left * s.Right, true
	case Divide:
		if s.Right == 0 || s.Left%s.Right != 0 {
			return 0, false
		}
		return s.Left / s.Right, true
	}
	return 0, false
}

// Validate returns an error that names the first rule the problem breaks.
func (p Problem) Validate() error {
	switch {
	case p.ID == "":
		return errors.New("id: must not be empty")
	case p.Template == "":
		return errors.New("template: must not be empty")
	case !p.Kind.valid():
		return fmt.Errorf("kind %q: must be one of operation, order, distractor, two_steps", p.Kind)
	case p.Question == "":
		return errors.New("question: must not be empty")
	case len(p.Steps) == 0:
		return errors.New("steps: at least one is needed")
	}
	var result int
	for i, s := range p.Steps {
		var ok bool
		if result, ok = s.Solve(); !ok {
			return fmt.Errorf("steps[%d] %s: must have a whole number as its result", i, s.Expression())
		}
	}
	if result != p.Answer {
		return fmt.Errorf("answer %d: must equal the result of the last step, %d", p.Answer, result)
	}
	return nil
}

// Score returns the reward of an agent's final text: 1 when it is the answer
// and nothing else but surrounding space, otherwise 0.
func (p Problem) Score(text string) float64 {
	if strings.TrimSpace(text) == strconv.Itoa(p.Answer) {
		return 1
	}
	return 0
}
