package openai_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/openai/openai-go/v3/option"

	"agentlightning/algorithm/prompt"
	"agentlightning/algorithm/prompt/openai"
)

func ExampleNew() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"choices":[{"finish_reason":"stop","message":{"content":"Answer in one word."}}]}`)
	}))
	defer server.Close()

	c := openai.New(openai.Price{}, option.WithBaseURL(server.URL), option.WithAPIKey("none"))
	a, err := c.Complete(context.Background(), prompt.Request{
		Model: "any", Messages: []prompt.Message{{Role: prompt.RoleUser, Content: "Write a shorter prompt."}},
	})
	fmt.Println(a.Text, err)
	// Output: Answer in one word. <nil>
}
