package llmproxy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/llmproxy"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// An agent is given a base URL of its own attempt. It calls the model there as
// it would call the model itself; what the engine sampled is then in the store.
func Example() {
	ctx := context.Background()
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"id":"c1","choices":[{"index":0,"message":{"role":"assistant","content":"42"},"finish_reason":"stop","token_ids":[19,17]}],`+
			`"prompt_token_ids":[1,2,3],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`)
	}))
	defer model.Close()

	s := engine.New(memory.New(), engine.Config{})
	defer s.Close()
	proxy, err := llmproxy.New(llmproxy.Config{
		Sink: s, Attempts: s, Models: s,
		Static: []agl.Model{{Name: "policy", Endpoint: model.URL + "/v1"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer proxy.Close()
	server := httptest.NewServer(proxy)
	defer server.Close()

	attempt, err := s.StartRollout(ctx, store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: json.RawMessage(`"6*7"`)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	llm := agl.ProxyLLM{Endpoint: server.URL + "/v1", Model: "policy"}.Route(attempt.RolloutID, attempt.Attempt.AttemptID)
	resp, err := server.Client().Post(llm.Endpoint+"/chat/completions", "application/json",
		strings.NewReader(`{"model":"policy","messages":[{"role":"user","content":"6*7?"}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()

	page, err := s.QuerySpans(ctx, store.SpanQuery{RolloutID: attempt.RolloutID})
	if err != nil {
		fmt.Println(err)
		return
	}
	calls, err := adapter.Calls(page.Items)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(calls[0].PromptIDs, calls[0].ResponseIDs, calls[0].FinishReason)
	// Output: [1 2 3] [19 17] stop
}
