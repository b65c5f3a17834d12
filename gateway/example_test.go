package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"

	"agentlightning/gateway"
	"agentlightning/llmproxy"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// A trainer makes a rollout, a controller runs it, the agent posts its reward,
// and the trainer reads it.
func Example() {
	ctx := context.Background()
	kept := engine.New(memory.New(), engine.Config{})
	defer kept.Close()
	proxy, err := llmproxy.New(llmproxy.Config{Sink: kept, Attempts: kept, Models: kept})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer proxy.Close()
	handler, err := gateway.NewHandler(gateway.Config{Store: kept, Proxy: proxy, Calls: gateway.DefaultCalls()})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	client := &gateway.Client{BaseURL: server.URL}

	made, err := client.CreateRollouts(ctx, gateway.RolloutCreate{Input: json.RawMessage(`{"question":"6*7"}`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	id, attempt := made[0].RolloutID, new("0")
	_, err = client.PatchRollout(ctx, id, gateway.StatusPatch{State: gateway.Running, LastAttemptID: &attempt})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := client.PostEvent(ctx, id, "0", "reward", json.RawMessage(`{"value":1.0}`)); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := client.PatchRollout(ctx, id, gateway.StatusPatch{State: gateway.Succeeded}); err != nil {
		fmt.Println(err)
		return
	}
	events, err := client.Events(ctx, id, gateway.EventQuery{Triplets: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(events[0].EventType, string(events[0].Data))
	// Output: reward {"value":1.0}
}
