package prompt_test

import (
	"fmt"

	agl "agentlightning"
	"agentlightning/algorithm/prompt"
)

func ExampleRevise() {
	t := agl.PromptTemplate{Template: "Answer {question}", Engine: agl.EngineFString}
	better, err := prompt.Revise(t, `Reply to {question} as {"answer": "…"}`)
	fmt.Println(better.Template, err)

	_, err = prompt.Revise(t, "Reply as you like")
	fmt.Println(err)
	// Output:
	// Reply to {question} as {{"answer": "…"}} <nil>
	// the text loses the placeholder "question"
}
