package problem

import (
	"math/rand/v2"
	"regexp"
	"strconv"
)

// Noise says how often a demonstration chooses with care, from 0 to 1.
type Noise struct {
	// Operation is the share of first steps whose operation is chosen with care.
	// The others add or subtract, whatever the question says.
	Operation float64
	// Operands is the share of first steps whose numbers are chosen with care.
	// The others use any two numbers of the question in any order.
	Operands float64
	// Later is the same share for both choices of later steps.
	Later float64
	// Length is the share of problems whose number of steps is chosen with care.
	// The others have one or two.
	Length float64
}

// Demonstration is one worked example. Its conversation is sound as far as form
// goes: every result is the calculator's and the answer repeats the last one.
type Demonstration struct {
	Question string
	Calls    []Call
	Answer   string
}

// Call is one use of the calculator.
type Call struct {
	Expression string
	Result     string
}

// Demonstrate works an example of the problem, choosing as the noise says.
func Demonstrate(p Problem, noise Noise, r *rand.Rand) Demonstration {
	mentioned := digits.FindAllString(p.Question, -1)
	careful := func(share float64) bool { return r.Float64() < share }
	length := len(p.Steps)
	if !careful(noise.Length) {
		length = 1 + r.IntN(2)
	}
	d := Demonstration{Question: p.Question}
	for i := range length {
		var right Step // none beyond the end of the solution
		if i < len(p.Steps) {
			right = p.Steps[i]
		}
		operation, operands := noise.Operation, noise.Operands
		if i > 0 {
			operation, operands = noise.Later, noise.Later
		}
		operator, left, operand := right.Operator, strconv.Itoa(right.Left), strconv.Itoa(right.Right)
		if !careful(operation) || i >= len(p.Steps) {
			operator = careless[r.IntN(len(careless))]
		}
		if !careful(operands) || i >= len(p.Steps) {
			j, k := r.IntN(len(mentioned)), r.IntN(len(mentioned)-1)
			if k >= j {
				k++
			}
			left, operand = mentioned[j], mentioned[k]
		}
		if i > 0 {
			left = d.Answer
		}
		expression := left + string(operator) + operand
		result, err := Calculate(expression)
		if err != nil {
			// Numbers of a question are above 0, and only they are divisors.
			panic("problem: " + err.Error())
		}
		d.Calls = append(d.Calls, Call{expression, result})
		d.Answer = result
	}
	return d
}

// careless are the operations of those who do not read the question.
var careless = [...]Operator{Add, Subtract}

var digits = regexp.MustCompile(`\d+`)
