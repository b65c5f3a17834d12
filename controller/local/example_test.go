package local_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"

	"agentlightning/controller/local"
	"agentlightning/gateway"
	"agentlightning/llmproxy"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
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
	state, err := os.MkdirTemp("", "controller")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(state)

	// A trainer asks for a rollout of an agent that the controller knows.
	client := &gateway.Client{BaseURL: server.URL}
	class := "checker"
	made, err := client.CreateRollouts(ctx, gateway.RolloutCreate{
		Input: json.RawMessage(`{"question":"6*7"}`),
		Config: &gateway.RolloutConfig{Local: &gateway.LocalConfig{
			AgentClass: &class, EnvMap: map[string]string{"QUESTION": "input.question"},
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	controller, err := local.New(local.Config{
		Server: server.URL, StateDir: state,
		Commands: map[string]string{"checker": `test "$QUESTION" = '6*7'`},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan error, 1)
	go func() { done <- controller.Run(ctx) }()
	for {
		r, err := client.Rollout(ctx, made[0].RolloutID)
		if err != nil {
			fmt.Println(err)
			break
		}
		if r.Rollout.Status.State.Terminal() {
			fmt.Println(r.Rollout.Status.State)
			break
		}
	}
	cancel()
	if err := <-done; err != nil {
		fmt.Println(err)
	}
	// Output: succeeded
}
