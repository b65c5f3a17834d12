package memory_test

import (
	"context"
	"encoding/json"
	"fmt"

	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// A store in memory needs nothing but a process.
func Example() {
	ctx := context.Background()
	s := engine.New(memory.New(), engine.Config{})
	defer s.Close()

	_, err := s.EnqueueRollouts(ctx, []store.EnqueueRequest{{Input: json.RawMessage(`{"question":"6*7"}`)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	claimed, err := s.DequeueRollouts(ctx, store.DequeueRequest{Limit: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(claimed[0].Status, claimed[0].Attempt.SequenceID, string(claimed[0].Input))
	// Output: preparing 1 {"question":"6*7"}
}
