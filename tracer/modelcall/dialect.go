package modelcall

import (
	"net/http"
	"strings"

	"agentlightning/llm/anthropic"
	"agentlightning/llm/openai"
)

// dialect is one of the APIs whose calls are recorded.
type dialect struct {
	route     string // the end of the path
	operation string // gen_ai.operation.name
	// capture returns what asks for token ids; nil where engines return none.
	capture func(*openai.Request) []openai.Edit
	// chat puts a call as a chat completion, which is what spans show; nil when
	// it is one.
	chat   func(*openai.Request) (*openai.Request, *openai.Error)
	gather func() gatherer
}

// gatherer takes the answer to a call out of its bytes.
type gatherer interface {
	Add(data []byte) (openai.Chunk, error)
	AddWhole(body []byte) error
	Answer() *openai.Answer
	Finished() bool
	Chunks() int
}

const chatRoute = "/chat/completions"

// dialects are tried in order: a chat completion is no completion.
func dialects() [4]dialect {
	openAI := func() gatherer { return &openai.Accumulator{} }
	return [...]dialect{
		{route: chatRoute, operation: "chat", capture: openai.CaptureChat, gather: openAI},
		{
			route: "/completions", operation: "text_completion", capture: openai.CaptureCompletion,
			chat: openai.CompletionsChat, gather: openAI,
		},
		{
			route: "/responses", operation: "chat", chat: openai.ResponsesChat,
			gather: func() gatherer { return &openai.ResponsesAccumulator{} },
		},
		{
			route: "/messages", operation: "chat", chat: anthropic.ChatRequest,
			gather: func() gatherer { return &anthropic.Accumulator{} },
		},
	}
}

// dialectOf returns the API that a request calls, nil for any other request.
func dialectOf(req *http.Request) *dialect {
	if req.Method != http.MethodPost {
		return nil
	}
	path := strings.TrimSuffix(req.URL.Path, "/")
	for _, d := range dialects() {
		if strings.HasSuffix(path, d.route) {
			return &d
		}
	}
	return nil
}
