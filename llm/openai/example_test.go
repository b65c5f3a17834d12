package openai_test

import (
	"fmt"
	"strings"

	"agentlightning/llm/openai"
)

// A stream is gathered into the answer that it is, token ids included.
func Example() {
	stream := `data: {"id":"c1","choices":[{"index":0,"delta":{"content":"4"},"token_ids":[19]}],"prompt_token_ids":[1,2,3]}

: a comment keeps the connection alive

data: {"id":"c1","choices":[{"index":0,"delta":{"content":"2"},"token_ids":[17],"finish_reason":"stop"}]}

data: [DONE]

`
	var gather openai.Accumulator
	events := openai.NewEventReader(strings.NewReader(stream))
	for {
		event, err := events.Next()
		if err != nil || event.Done() {
			break
		}
		if event.Data == nil {
			continue
		}
		if _, err := gather.Add(event.Data); err != nil {
			fmt.Println(err)
			return
		}
	}
	answer := gather.Answer()
	first := answer.Choices[0]
	fmt.Println(*first.Content, first.FinishReason, answer.PromptTokenIDs, first.TokenIDs)
	// Output: 42 stop [1 2 3] [19 17]
}

// A request is changed in single members; the rest stays as it was written.
func ExampleRequest_Edit() {
	request, err := openai.ParseRequest([]byte(`{"model":"policy","temperature":1.0,"x_own":{"a": 1}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(request.Edit(
		openai.Edit{Key: "model", Value: openai.Text("policy-v2")},
		openai.Edit{Key: "return_token_ids", Value: []byte("true")},
	)))
	// Output: {"model":"policy-v2","temperature":1.0,"x_own":{"a": 1},"return_token_ids":true}
}
