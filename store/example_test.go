package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// life takes one rollout from the queue to its end. It works on any store: in
// memory, in a file, or behind a server.
func life(ctx context.Context, s store.Store) error {
	_, err := s.EnqueueRollouts(ctx, []store.EnqueueRequest{{Input: json.RawMessage(`{"question":"6*7"}`), Mode: agl.ModeTrain}})
	if err != nil {
		return err
	}
	claimed, err := s.DequeueRollouts(ctx, store.DequeueRequest{Limit: 1})
	if err != nil {
		return err
	}
	r := claimed[0]
	fmt.Println(string(r.Input), r.Status)
	_, err = s.UpdateAttempt(ctx, r.RolloutID, r.Attempt.AttemptID, store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)})
	if err != nil {
		return err
	}
	done, err := s.Rollout(ctx, r.RolloutID)
	if err != nil {
		return err
	}
	fmt.Println(done.Status)

	_, err = s.Rollout(ctx, "ro-000000000000")
	fmt.Println(errors.Is(err, store.ErrNotFound))
	return nil
}

func Example() {
	s := engine.New(memory.New(), engine.Config{})
	defer s.Close()
	if err := life(context.Background(), s); err != nil {
		fmt.Println(err)
	}
	// Output:
	// {"question":"6*7"} preparing
	// succeeded
	// true
}
