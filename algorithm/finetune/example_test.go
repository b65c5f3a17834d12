package finetune_test

import (
	"fmt"

	agl "agentlightning"
	"agentlightning/algorithm/finetune"
	"agentlightning/dataset"
	"agentlightning/learner/openai"
)

// The best quarter of what agents did is tuned on, three times over. A runnable
// program is in examples/jobs.
func ExampleNew() {
	tuner, err := openai.New(openai.Config{
		Model: "gpt-4.1-mini-2025-04-14", Epochs: 2, PricePerMillion: 5,
		LookupEnv: func(string) (string, bool) { return "the key", true },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	config := finetune.Config{
		Tuner:     tuner,
		Base:      agl.Model{Endpoint: "https://api.openai.com/v1", Target: "gpt-4.1-mini-2025-04-14", APIKeyEnv: "OPENAI_API_KEY"},
		Selection: dataset.Selection{Top: 0.25},
	}
	_, err = finetune.New(config) // goes to trainer.Config.Algorithm
	fmt.Println(err)
	config.Selection.Top = 25
	_, err = finetune.New(config)
	fmt.Println(err)
	// Output:
	// <nil>
	// finetune: Selection: invalid selection: top 25: must be above 0 and at most 1, or 0 for all
}
