package genai_test

import (
	"fmt"

	"agentlightning/llm/genai"
	"agentlightning/llm/openai"
)

// A call whose engine returned token ids, as the attributes of its span.
func Example() {
	request, err := openai.ParseRequest([]byte(`{"model":"qwen","messages":[{"role":"user","content":"2+2?"}],"temperature":0}`))
	if err != nil {
		panic(err)
	}
	answer, err := openai.ParseAnswer([]byte(`{"id":"c1","model":"qwen","prompt_token_ids":[7,8],
		"choices":[{"index":0,"message":{"role":"assistant","content":"4"},"finish_reason":"stop","token_ids":[9]}],
		"usage":{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3}}`))
	if err != nil {
		panic(err)
	}
	attributes := genai.AppendAnswer(genai.AppendRequest(nil, "chat", request), answer)
	for _, key := range []string{"gen_ai.prompt.0.content", "gen_ai.completion.0.content", "response_token_ids"} {
		value, _ := attributes.Get(key)
		fmt.Println(key, "=", value)
	}
	problem, _ := genai.CheckTokenIDs(answer)
	fmt.Printf("problem: %q\n", problem)
	// Output:
	// gen_ai.prompt.0.content = 2+2?
	// gen_ai.completion.0.content = 4
	// response_token_ids = [9]
	// problem: ""
}
