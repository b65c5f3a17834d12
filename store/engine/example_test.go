package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// A failed attempt is retried as often as the rollout allows, and whoever waits
// for the rollout hears of its end.
func Example() {
	ctx := context.Background()
	s := engine.New(memory.New(), engine.Config{HealthScanInterval: engine.DefaultHealthScanInterval})
	defer s.Close()

	rollouts, err := s.EnqueueRollouts(ctx, []store.EnqueueRequest{{
		Input:  json.RawMessage(`{"question":"6*7"}`),
		Config: &agl.RolloutConfig{MaxAttempts: 2, RetryCondition: []agl.AttemptStatus{agl.AttemptFailed}},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, outcome := range []agl.AttemptStatus{agl.AttemptFailed, agl.AttemptSucceeded} {
		claimed, err := s.DequeueRollouts(ctx, store.DequeueRequest{Limit: 1, Wait: time.Minute})
		if err != nil {
			fmt.Println(err)
			return
		}
		a := claimed[0].Attempt
		if _, err := s.UpdateAttempt(ctx, a.RolloutID, a.AttemptID, store.AttemptUpdate{Status: store.To(outcome)}); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("attempt", a.SequenceID, outcome)
	}
	done, err := s.WaitForRollouts(ctx, []string{rollouts[0].RolloutID}, time.Minute)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("rollout", done[0].Status)
	// Output:
	// attempt 1 failed
	// attempt 2 succeeded
	// rollout succeeded
}
