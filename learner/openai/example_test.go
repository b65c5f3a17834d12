package openai_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"time"

	"agentlightning/learner"
	"agentlightning/learner/openai"
	"agentlightning/learner/openai/openaitest"
)

// A job from its upload to its model, at a service for tests.
func Example() {
	server := httptest.NewServer(openaitest.New(openaitest.Config{
		Base: map[string]openaitest.Model{"gpt-small": func([]openaitest.Message) string { return "?" }},
	}))
	defer server.Close()
	tuner, err := openai.New(openai.Config{
		Model: "gpt-small", BaseURL: server.URL + "/v1", Epochs: 2, PollEvery: time.Millisecond,
		LookupEnv: func(string) (string, bool) { return "any", true },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ticket, err := tuner.Start(context.Background(), learner.TuningJob{Training: []byte(
		`{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello."}]}`,
	)})
	if err != nil {
		fmt.Println(err)
		return
	}
	made, err := tuner.Wait(context.Background(), ticket, func(p learner.TuningProgress) {
		if p.Message == "" {
			fmt.Println(p.Status)
		}
	})
	fmt.Println(made.Model, err)
	// Output:
	// queued
	// running
	// succeeded
	// ft:gpt-small:test:agl-b02e9749a025:ftjob-001 <nil>
}
