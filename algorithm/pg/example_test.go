package pg_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"agentlightning/agent"
	"agentlightning/algorithm"
	"agentlightning/algorithm/pg"
	"agentlightning/learner"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/trainer"
)

// An agent that never earns a reward stops the training, with its reason,
// instead of being trained on zeros.
func Example() {
	broken := agent.New(func(context.Context, int, *agent.Call) (float64, error) {
		return 0, fmt.Errorf("the tool is not installed")
	})
	train, err := pg.New(pg.Config{Learner: &arms{}, Steps: 10, LearningRate: learner.Schedule{Peak: 0.01}})
	if err != nil {
		fmt.Println(err)
		return
	}
	st := engine.New(memory.New(), engine.Config{})
	defer st.Close()
	tasks, err := algorithm.Tasks([]int{0, 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = trainer.Fit(context.Background(), trainer.Config{
		Agent: broken, Algorithm: train, Store: st,
		Concurrency: 8, Logger: slog.New(slog.DiscardHandler),
	}, tasks, []json.RawMessage(nil))
	fmt.Println(err)
	// Output: algorithm: pg: step 1 of 10: no rollout of the first step was rewarded: the tool is not installed
}
