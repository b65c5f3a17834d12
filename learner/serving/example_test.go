package serving_test

import (
	"fmt"

	"agentlightning/learner/serving"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// An engine that is told which model to serve, and one that is not.
func ExampleNew() {
	st := engine.New(memory.New(), engine.Config{})
	defer st.Close()
	_, err := serving.New(serving.Config{
		Command: []string{"vllm", "serve", "Qwen/Qwen3-4B", "--max-model-len", "8192"}, Name: "policy", Models: st,
	})
	fmt.Println(err) // Run starts it
	_, err = serving.New(serving.Config{Command: []string{"vllm", "serve"}, Name: "policy", Models: st})
	fmt.Println(err)
	// Output:
	// <nil>
	// serving: Command: names no model; write {model} where it goes
}
