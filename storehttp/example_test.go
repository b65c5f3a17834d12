package storehttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"time"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/storehttp"
)

// One side enqueues, another one works; both see the same store.
func Example() {
	ctx := context.Background()
	s := engine.New(memory.New(), engine.Config{})
	defer s.Close()
	server := httptest.NewServer(storehttp.NewHandler(s, storehttp.Config{}))
	defer server.Close()

	c, err := storehttp.NewClient(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	if _, err := c.EnqueueRollouts(ctx, []store.EnqueueRequest{{Input: json.RawMessage(`{"question":"6 × 7"}`)}}); err != nil {
		fmt.Println(err)
		return
	}

	claimed, err := c.DequeueRollouts(ctx, store.DequeueRequest{Limit: 1, Wait: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	r := claimed[0]
	fmt.Println(string(r.Input), r.Status)
	_, err = c.UpdateAttempt(ctx, r.RolloutID, r.Attempt.AttemptID, store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)})
	if err != nil {
		fmt.Println(err)
		return
	}
	done, err := c.Rollout(ctx, r.RolloutID)
	fmt.Println(done.Status, err)

	_, err = c.Rollout(ctx, "ro-unknown")
	fmt.Println(err, errors.Is(err, store.ErrNotFound))
	// Output:
	// {"question":"6 × 7"} preparing
	// succeeded <nil>
	// Rollout ro-unknown not found true
}
