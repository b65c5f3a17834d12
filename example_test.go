package agl_test

import (
	"encoding/json"
	"fmt"

	agl "agentlightning"
	"agentlightning/semconv"
)

// A reward is a span like any other; the readers of this package find it among
// the spans of an attempt.
func Example() {
	spans := []agl.Span{
		{Name: semconv.SpanModelCall},
		{Name: semconv.SpanAnnotation, Attributes: agl.Attributes{
			{Key: semconv.RewardName(0), Value: semconv.PrimaryReward},
			{Key: semconv.RewardValue(0), Value: 0.5},
		}},
	}
	reward, err := agl.FinalReward(spans)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(*reward)
	// Output: 0.5
}

// The JSON of the domain is the protocol's, to the byte: members in order, and
// a float stays a float.
func ExampleRollout() {
	timeout := 30.0
	text, err := json.Marshal(agl.Rollout{
		RolloutID: "ro-0123456789ab",
		Input:     json.RawMessage(`{"question":"6*7"}`),
		Mode:      agl.ModeTrain,
		Status:    agl.RolloutQueuing,
		Config:    agl.RolloutConfig{TimeoutSeconds: &timeout, MaxAttempts: 2},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(text))
	// Output:
	// {"rollout_id":"ro-0123456789ab","input":{"question":"6*7"},"start_time":0.0,"end_time":null,"mode":"train","resources_id":null,"status":"queuing","config":{"timeout_seconds":30.0,"unresponsive_seconds":null,"max_attempts":2,"retry_condition":[]},"metadata":null}
}

// A model behind the proxy is called at an address that says whose call it is.
func ExampleProxyLLM_Route() {
	llm := agl.ProxyLLM{Endpoint: "http://127.0.0.1:4747/v1", Model: "policy"}.Route("ro-1", "at-1")
	fmt.Println(llm.Endpoint)
	// Output: http://127.0.0.1:4747/rollout/ro-1/attempt/at-1/v1
}
