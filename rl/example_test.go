package rl_test

import (
	"fmt"

	"agentlightning/rl"
)

// Two attempts at one task: the first answered in two rows and was right, the
// second in one and was wrong. Each weighs as much as the other.
func Example() {
	one, zero := 1.0, 0.0
	advantages, _ := rl.GroupAdvantages([]rl.Member{{Group: "task", Reward: &one}, {Group: "task", Reward: &zero}}, rl.AdvantageConfig{})
	weights, _ := rl.RolloutWeights([]string{"a", "a", "b"}, [][]float32{{0, 1, 1}, {0, 1, 1}, {0, 1}})

	fmt.Printf("advantages %+.3f %+.3f\n", advantages[0].Value, advantages[1].Value)
	fmt.Println("weights of a token", weights)
	// Output:
	// advantages +0.707 -0.707
	// weights of a token [0.25 0.25 1]
}
