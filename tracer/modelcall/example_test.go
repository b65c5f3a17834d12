package modelcall_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"agentlightning/tracer"
	"agentlightning/tracer/modelcall"
)

// A program whose model calls are recorded. The official clients take the
// middleware: openai.NewClient(option.WithMiddleware(recorder.Middleware)).
func Example() {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"id":"c1","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"4"},"finish_reason":"stop"}]}`)
	}))
	defer service.Close()

	recorder := modelcall.New(modelcall.Config{})
	client := &http.Client{Transport: recorder.Transport(nil)}

	// The runner opens the trace of an attempt and hands its context to the agent.
	ctx, trace := tracer.New(tracer.Config{}).Start(context.Background(), "", "")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, service.URL+"/v1/chat/completions",
		strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"2+2?"}]}`))
	if err != nil {
		panic(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		panic(err)
	}
	if err := resp.Body.Close(); err != nil {
		panic(err)
	}
	spans, err := trace.End(context.Background())
	if err != nil {
		panic(err)
	}
	answer, _ := spans[0].Attributes.String("gen_ai.completion.0.content")
	fmt.Println(spans[0].Name, answer)
	// Output: openai.chat.completion 4
}
