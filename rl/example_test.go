package rl_test

import (
	"fmt"

	"agentlightning/rl"
)

// Two attempts at one task: the first was right, the second wrong. The update
// then finds a token of the first one half as likely again as when it was
// sampled, which is more than the clip allows.
func Example() {
	one, zero := 1.0, 0.0
	advantages, _, err := rl.Advantages([]rl.Member{{Group: "task", Reward: &one}, {Group: "task", Reward: &zero}}, rl.AdvantageConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("advantages %+.3f %+.3f\n", advantages[0].Value, advantages[1].Value)

	a := float32(advantages[0].Value)
	e, err := rl.Loss{Clip: rl.Clip{Low: 0.2, High: 0.28}}.Evaluate(rl.Batch{
		Logprobs:   [][]float32{{0, -0.6, -1.0}},
		Old:        [][]float32{{0, -1.0, -1.0}},
		Advantages: [][]float32{{0, a, a}},
		Mask:       [][]float32{{0, 1, 1}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("loss %.3f, gradient %.3f, clipped %.0f %%\n", e.Value, e.Gradient[0], 100*e.ClipFraction)
	// Output:
	// advantages +0.707 -0.707
	// loss -0.806, gradient [0.000 0.000 -0.354], clipped 50 %
}
