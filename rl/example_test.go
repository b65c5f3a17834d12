package rl_test

import (
	"fmt"

	"agentlightning/rl"
)

// Two attempts at one task: the first answered after using a tool and was
// right, the second was wrong.
func Example() {
	one, zero := 1.0, 0.0
	advantages, _ := rl.GroupAdvantages([]rl.Member{{Group: "task", Reward: &one}, {Group: "task", Reward: &zero}}, rl.AdvantageConfig{})

	rows, _ := rl.Merge([]rl.Turn{
		{Prompt: []int32{1, 2}, Response: []int32{3, 4}, Logprobs: []float32{-.1, -.2}},
		{Prompt: []int32{1, 2, 3, 4, 9}, Response: []int32{5}, Logprobs: []float32{-.3}},
	}, rl.MergeConfig{})

	fmt.Printf("advantages %+.3f %+.3f\n", advantages[0].Value, advantages[1].Value)
	fmt.Println("ids ", rows[0].IDs)
	fmt.Println("mask", rows[0].Mask)
	// Output:
	// advantages +0.707 -0.707
	// ids  [1 2 3 4 9 5]
	// mask [0 0 1 1 0 1]
}
