package execution_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"agentlightning/execution"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

func ExampleInProcess() {
	s := engine.New(memory.New(), engine.Config{})
	defer s.Close()
	err := execution.InProcess{}.Execute(context.Background(), execution.Work{
		Runners: 2,
		Runner:  echo, // a runner.Runner; see package runner
		Algorithm: func(ctx context.Context, s store.Store) error {
			rollouts, err := s.EnqueueRollouts(ctx, []store.EnqueueRequest{{Input: json.RawMessage(`7`)}})
			if err != nil {
				return err
			}
			done, err := s.WaitForRollouts(ctx, []string{rollouts[0].RolloutID}, time.Minute)
			if err != nil {
				return err
			}
			fmt.Println(done[0].Status)
			return nil
		},
	}, s)
	fmt.Println(err)
	// Output:
	// succeeded
	// <nil>
}
