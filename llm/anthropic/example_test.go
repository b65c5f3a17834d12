package anthropic_test

import (
	"fmt"

	"agentlightning/llm/anthropic"
	"agentlightning/llm/openai"
)

// A message is asked of a server that speaks chat completions only.
func Example() {
	request, err := openai.ParseRequest([]byte(`{"model":"policy","max_tokens":16,"system":"Be brief.","messages":[{"role":"user","content":"6*7?"}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	chat, refusal := anthropic.ChatRequest(request)
	if refusal != nil {
		fmt.Println(refusal)
		return
	}
	fmt.Println(string(chat.Body()))

	answer, err := openai.ParseAnswer([]byte(`{"id":"c1","model":"policy","choices":[{"message":{"content":"42"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":1}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	message, err := anthropic.NewTranslator(request, "msg_1").AppendAnswer(nil, answer)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(message))
	// Output:
	// {"model":"policy","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"6*7?"}],"max_tokens":16}
	// {"id":"c1","type":"message","role":"assistant","model":"policy","content":[{"type":"text","text":"42"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":9,"output_tokens":1}}
}
