package dataset_test

import (
	"fmt"
	"os"

	"agentlightning/dataset"
)

// The better of two attempts becomes a line for fine-tuning.
func Example() {
	attempts := []dataset.Scored{{ID: "ro-1", Group: "g", Reward: new(0.2)}, {ID: "ro-2", Group: "g", Reward: new(0.9)}}
	best, err := dataset.Selection{Top: 0.5, PerGroup: true}.Select(attempts)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(attempts[best[0]].ID)
	conversations, err := dataset.Conversations(attempt("So.", 0.9))
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := dataset.WriteOpenAI(os.Stdout, conversations); err != nil {
		fmt.Println(err)
	}
	// Output:
	// ro-2
	// {"messages":[{"content":"How?","role":"user"},{"content":"Like this.","role":"assistant"},{"content":"And?","role":"user"},{"content":"So.","role":"assistant"}]}
}
