package baseline_test

import (
	"context"
	"encoding/json"
	"fmt"

	"agentlightning/agent"
	"agentlightning/algorithm/baseline"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/trainer"
)

func Example() {
	s := engine.New(memory.New(), engine.Config{})
	defer s.Close()
	agent := agent.New(func(_ context.Context, word string, _ *agent.Call) (float64, error) {
		return float64(len(word)), nil
	})
	b := baseline.New(baseline.Config{Epochs: 2})
	err := trainer.Fit(context.Background(), trainer.Config{Agent: agent, Algorithm: b, Store: s},
		[]json.RawMessage{json.RawMessage(`"one"`), json.RawMessage(`"three"`)}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range b.Report() {
		fmt.Println(r.Epoch, r.Index, *r.Reward)
	}
	// Output:
	// 0 0 3
	// 0 1 5
	// 1 0 3
	// 1 1 5
}
