package runner_test

import (
	"context"
	"encoding/json"
	"fmt"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/runner"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

func Example() {
	ctx := context.Background()
	s := engine.New(memory.New(), engine.Config{})
	defer s.Close()
	rollouts, err := s.EnqueueRollouts(ctx, []store.EnqueueRequest{{Input: json.RawMessage(`{"n":4}`)}})
	if err != nil {
		fmt.Println(err)
		return
	}

	half := agent.New(func(_ context.Context, t struct{ N float64 }, _ *agent.Call) (float64, error) {
		return t.N / 2, nil
	})
	r, err := runner.New(runner.Config{Store: s, Agent: half, MaxRollouts: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := r.Run(ctx); err != nil {
		fmt.Println(err)
		return
	}

	page, err := s.QuerySpans(ctx, store.SpanQuery{RolloutID: rollouts[0].RolloutID})
	if err != nil {
		fmt.Println(err)
		return
	}
	reward, err := agl.FinalReward(page.Items)
	fmt.Println(*reward, err)
	// Output: 2 <nil>
}
