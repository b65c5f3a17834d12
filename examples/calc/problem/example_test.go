package problem_test

import (
	"fmt"

	"agentlightning/examples/calc/problem"
)

// A calculator and a question with a number that does not matter.
func Example() {
	p := problem.Problem{
		ID: "example", Template: "age_buys", Kind: problem.Distractor,
		Question: "Anna is 41 years old, has 17 apples and buys 25 more. How many apples does Anna have now?",
		Answer:   42,
		Steps:    []problem.Step{{Left: 17, Operator: problem.Add, Right: 25}},
	}
	result, err := problem.Calculate(p.Steps[0].Expression())
	fmt.Println(result, err)
	fmt.Println("reward", p.Score(result), "and for using the age", p.Score("66"))
	// Output:
	// 42 <nil>
	// reward 1 and for using the age 0
}
