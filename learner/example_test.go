package learner_test

import (
	"fmt"

	"agentlightning/learner"
	"agentlightning/rl"
)

// A row of a prompt of two tokens and a completion of two that were worth it.
func ExampleBatch() {
	b := learner.Batch{
		Rows: []learner.Row{{
			IDs:        []int32{17, 4, 9, 2},
			Mask:       []float32{0, 0, 1, 1},
			Logprobs:   []float32{0, 0, -0.7, -0.1},
			Advantages: []float32{0, 0, 1.2, 1.2},
		}},
		Options: learner.Options{Objective: learner.PolicyGradient, LearningRate: 6e-4, Epochs: 4, Loss: rl.Loss{Clip: rl.Clip{Low: 0.2, High: 0.3}}},
	}
	fmt.Println(b.Validate())
	b.Rows[0].Logprobs = nil
	fmt.Println(b.Validate())
	// Output:
	// <nil>
	// invalid batch: row 0: 0 logprobs for 4 tokens
}
