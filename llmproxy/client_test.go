package llmproxy_test

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/llmproxy"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// running is a proxy over a real store, with one attempt that is running.
type running struct {
	store    store.Store
	attempt  agl.AttemptedRollout
	client   openai.Client
	endpoint string
}

func setupReal(t *testing.T, models ...agl.Model) *running {
	t.Helper()
	s := engine.New(memory.New(), engine.Config{})
	proxy, err := llmproxy.New(llmproxy.Config{Sink: s, Attempts: s, Models: s})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(func() {
		server.Close()
		_ = proxy.Close()
		_ = s.Close()
	})
	if err := s.PutModels(t.Context(), models); err != nil {
		t.Fatal(err)
	}
	a, err := s.StartRollout(t.Context(), store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: json.RawMessage(`1`)}})
	if err != nil {
		t.Fatal(err)
	}
	llm := agl.ProxyLLM{Endpoint: server.URL + "/v1"}.Route(a.RolloutID, a.Attempt.AttemptID)
	return &running{store: s, attempt: a, endpoint: llm.Endpoint, client: openai.NewClient(option.WithBaseURL(llm.Endpoint),
		option.WithAPIKey("unused"), option.WithHTTPClient(client(t)), option.WithMaxRetries(0))}
}

func (r *running) spans(t *testing.T) []agl.Span {
	t.Helper()
	page, err := r.store.QuerySpans(t.Context(), store.SpanQuery{RolloutID: r.attempt.RolloutID})
	if err != nil {
		t.Fatal(err)
	}
	return page.Items
}

// A whole conversation with a tool, half of it streamed, by the official client
// over a real store; then what training gets from it.
func TestConversationOfOpenAIsClient(t *testing.T) {
	t.Parallel()
	turns := []string{
		`{"id":"c1","object":"chat.completion","model":"t","choices":[{"index":0,"message":{"role":"assistant","content":null,` +
			`"tool_calls":[{"id":"call_1","type":"function","function":{"name":"add","arguments":"{\"a\": 1}"}}]},"finish_reason":"tool_calls",` +
			`"token_ids":[10,11],"logprobs":{"content":[{"token":"a","logprob":-0.5,"bytes":null,"top_logprobs":[]},{"token":"b","logprob":-1.5,"bytes":null,"top_logprobs":[]}]}}],` +
			`"prompt_token_ids":[1,2,3],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`,
		`data: {"id":"c2","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"prompt_token_ids":[1,2,3,10,11,4]}` + "\n\n" +
			`data: {"id":"c2","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"It is "},"token_ids":[20],"logprobs":{"content":[{"token":"It is ","logprob":-0.25}]}}]}` + "\n\n" +
			`data: {"id":"c2","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"2."},"token_ids":[21,22],"finish_reason":"stop","logprobs":{"content":[{"token":"2","logprob":0},{"token":".","logprob":-2}]}}]}` + "\n\n" +
			`data: {"id":"c2","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":6,"completion_tokens":3,"total_tokens":9}}` + "\n\n" + done,
	}
	backend := httptest.NewServer(answersInTurn(t, turns))
	t.Cleanup(backend.Close)
	r := setupReal(t, agl.Model{Name: "m", Endpoint: backend.URL + "/v1", Version: 3})

	params := openai.ChatCompletionNewParams{
		Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("1+1?")},
		Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "add"})},
	}
	first, err := r.client.Chat.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	call := first.Choices[0].Message.ToolCalls[0]
	if call.Function.Name != "add" || call.Function.Arguments != `{"a": 1}` {
		t.Errorf("tool call is %+v", call)
	}
	params.Messages = append(params.Messages, first.Choices[0].Message.ToParam(), openai.ToolMessage("2", call.ID))
	stream := r.client.Chat.Completions.NewStreaming(t.Context(), params)
	var acc openai.ChatCompletionAccumulator
	for stream.Next() {
		acc.AddChunk(stream.Current())
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if text := acc.Choices[0].Message.Content; text != "It is 2." || acc.Usage.TotalTokens != 0 {
		t.Errorf("streamed text is %q, usage %+v", text, acc.Usage)
	}

	calls, err := adapter.Calls(r.spans(t))
	if err != nil {
		t.Fatal(err)
	}
	for i := range calls {
		calls[i].SpanID = ""
	}
	want := []adapter.Call{
		{SequenceID: 1, ResponseID: "c1", PromptIDs: []int32{1, 2, 3}, ResponseIDs: []int32{10, 11}, Logprobs: []float32{-0.5, -1.5}, FinishReason: "tool_calls", Model: "m", Version: 3},
		{SequenceID: 2, ResponseID: "c2", PromptIDs: []int32{1, 2, 3, 10, 11, 4}, ResponseIDs: []int32{20, 21, 22}, Logprobs: []float32{-0.25, 0, -2}, FinishReason: "stop", Model: "m", Version: 3},
	}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	conversations, err := adapter.Messages(r.spans(t))
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(conversations[1].Messages)
	const messages = `[{"content":"1+1?","role":"user"},{"content":null,"role":"assistant","tool_calls":[{"id":"call_1","type":"function","function":{"name":"add","arguments":"{\"a\": 1}"}}]},` +
		`{"content":"2","role":"tool","tool_call_id":"call_1"},{"content":"It is 2.","role":"assistant"}]`
	if string(text) != messages {
		t.Errorf("messages are %s, want %s", text, messages)
	}
	triplets, err := adapter.TracerTriplets(r.spans(t), adapter.TracerOptions{})
	if err != nil || len(triplets) != 2 || !strings.Contains(string(triplets[1].Response), `"token_ids":[20,21,22]`) {
		t.Errorf("triplets are %+v (%v)", triplets, err)
	}
}

func TestOpenAIsClientUnderstandsErrors(t *testing.T) {
	t.Parallel()
	r := setupReal(t, agl.Model{Name: "m", Endpoint: "http://" + freeAddress(t) + "/v1"})
	for _, tt := range []struct {
		model  string
		status int
		says   string
	}{
		{"nope", 404, "registered: m"},
		{"m", 502, "cannot be reached"},
	} {
		_, err := r.client.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{Model: tt.model})
		e, ok := errors.AsType[*openai.Error](err)
		if !ok || e.StatusCode != tt.status || !strings.Contains(e.Message, tt.says) {
			t.Errorf("model %s: error is %v, want status %d and %q", tt.model, err, tt.status, tt.says)
		}
	}
	// An error in the middle of a stream reaches the caller, too.
	backend := httptest.NewServer(cutAfter(`data: {"choices":[{"index":0,"delta":{"content":"x"}}]}` + "\n\n"))
	t.Cleanup(backend.Close)
	if err := r.store.PutModels(t.Context(), []agl.Model{{Name: "broken", Endpoint: backend.URL + "/v1"}}); err != nil {
		t.Fatal(err)
	}
	stream := r.client.Chat.Completions.NewStreaming(t.Context(), openai.ChatCompletionNewParams{Model: "broken"})
	for stream.Next() {
	}
	if err := stream.Err(); err == nil || !strings.Contains(err.Error(), "ended its answer early") {
		t.Errorf("error of the stream is %v", err)
	}
}
