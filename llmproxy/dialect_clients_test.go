package llmproxy_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/llmproxy"
)

// chatOnly is a server that has chat completions and nothing else. It answers
// in turn, and keeps what it was asked.
type chatOnly struct {
	url string

	mu    sync.Mutex
	asked []map[string]any
}

func newChatOnly(t *testing.T, turns ...string) *chatOnly {
	t.Helper()
	b := &chatOnly{}
	answer := answersInTurn(t, turns)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/chat/completions" {
			http.NotFound(w, r)
			return
		}
		for key := range r.Header {
			if strings.HasPrefix(key, "Anthropic-") || key == "X-Api-Key" {
				t.Errorf("the backend was sent %s", key)
			}
		}
		raw, _ := io.ReadAll(r.Body)
		var body map[string]any
		if err := json.Unmarshal(raw, &body); err != nil {
			t.Errorf("the backend was sent %s: %v", raw, err)
		}
		b.mu.Lock()
		b.asked = append(b.asked, body)
		b.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	b.url = server.URL + "/v1"
	return b
}

// messages returns what was asked with in a turn.
func (b *chatOnly) messages(t *testing.T, turn int) string {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if turn >= len(b.asked) {
		t.Fatalf("the backend was called %d times", len(b.asked))
	}
	raw, _ := json.Marshal(b.asked[turn]["messages"])
	return string(raw)
}

// The turns of the model in a conversation: thoughts, a text and two calls of
// tools, streamed; then an answer in one piece.
var (
	turnWithTools = `data: {"id":"c1","object":"chat.completion.chunk","created":7,"model":"t","choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"prompt_token_ids":[1,2,3]}` + "\n\n" +
		`data: {"id":"c1","choices":[{"index":0,"delta":{"reasoning_content":"Two sums."},"token_ids":[10],"logprobs":{"content":[{"token":"a","logprob":-0.5}]}}]}` + "\n\n" +
		`data: {"id":"c1","choices":[{"index":0,"delta":{"content":" Grüße\n"},"token_ids":[11],"logprobs":{"content":[{"token":"b","logprob":-1}]}}]}` + "\n\n" +
		`data: {"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"add","arguments":""}}]},"token_ids":[12],"logprobs":{"content":[{"token":"c","logprob":-2}]}}]}` + "\n\n" +
		`data: {"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\": 1,"}}]},"token_ids":[13],"logprobs":{"content":[{"token":"d","logprob":0}]}}]}` + "\n\n" +
		`data: {"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":" \"b\": \"é\"}"}}]}}]}` + "\n\n" +
		`data: {"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_2","type":"function","function":{"name":"add","arguments":"{}"}}]},"token_ids":[14],"logprobs":{"content":[{"token":"e","logprob":-3}]}}]}` + "\n\n" +
		`data: {"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}` + "\n\n" +
		`data: {"id":"c1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":5,"total_tokens":8}}` + "\n\n" + done
	turnWithText = `{"id":"c2","object":"chat.completion","created":8,"model":"t","choices":[{"index":0,"message":{"role":"assistant","content":"It is 2. 👋"},"finish_reason":"stop",` +
		`"token_ids":[20,21],"logprobs":{"content":[{"token":"x","logprob":-0.25},{"token":"y","logprob":-4}]}}],"prompt_token_ids":[1,2,3,10,11],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}`
)

// conversationCalls are what training reads of that conversation, in every
// dialect.
var conversationCalls = []adapter.Call{
	{SequenceID: 1, ResponseID: "c1", PromptIDs: []int32{1, 2, 3}, ResponseIDs: []int32{10, 11, 12, 13, 14}, Logprobs: []float32{-0.5, -1, -2, 0, -3}, FinishReason: "tool_calls", Model: "m", Version: 3},
	{SequenceID: 2, ResponseID: "c2", PromptIDs: []int32{1, 2, 3, 10, 11}, ResponseIDs: []int32{20, 21}, Logprobs: []float32{-0.25, -4}, FinishReason: "stop", Model: "m", Version: 3},
}

func checkConversation(t *testing.T, r *running) {
	t.Helper()
	calls, err := adapter.Calls(r.spans(t))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(conversationCalls, calls, cmpopts.IgnoreFields(adapter.Call{}, "SpanID")); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	for _, s := range r.spans(t) {
		if s.Name != "openai.chat.completion" || problem(s) != "" {
			t.Errorf("span %s has problem %q", s.Name, problem(s))
		}
	}
	s := r.spans(t)[0]
	for key, want := range map[string]string{
		"gen_ai.prompt.0.content":                    "1+1?",
		"gen_ai.completion.0.content":                " Grüße\n",
		"gen_ai.completion.0.reasoning_content":      "Two sums.",
		"gen_ai.completion.0.tool_calls.0.arguments": `{"a": 1, "b": "é"}`,
		"gen_ai.completion.0.tool_calls.1.id":        "call_2",
		"gen_ai.request.functions.0.name":            "add",
	} {
		if got, _ := s.Attributes.String(key); got != want {
			t.Errorf("%s = %q, want %q", key, got, want)
		}
	}
}

const toolSchema = `{"type":"object","properties":{"a":{"type":"number"}}}`

func TestConversationOfAnthropicsClient(t *testing.T) {
	t.Parallel()
	backend := newChatOnly(t, turnWithTools, turnWithText)
	r := setupReal(t, agl.Model{Name: "m", Endpoint: backend.url, Version: 3})
	c := anthropic.NewClient(anthropicoption.WithBaseURL(strings.TrimSuffix(r.endpoint, "/v1")), anthropicoption.WithAPIKey("unused"),
		anthropicoption.WithHTTPClient(client(t)), anthropicoption.WithMaxRetries(0))
	params := anthropic.MessageNewParams{
		Model: "m", MaxTokens: 2048, Thinking: anthropic.ThinkingConfigParamOfEnabled(1024),
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("1+1?"))},
		Tools:    []anthropic.ToolUnionParam{anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{Properties: map[string]any{"a": map[string]any{"type": "number"}}}, "add")},
	}
	stream := c.Messages.NewStreaming(t.Context(), params)
	var first anthropic.Message
	for stream.Next() {
		if err := first.Accumulate(stream.Current()); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, block := range first.Content {
		switch b := block.AsAny().(type) {
		case anthropic.ThinkingBlock:
			said = append(said, "thought "+b.Thinking)
		case anthropic.TextBlock:
			said = append(said, "said "+b.Text)
		case anthropic.ToolUseBlock:
			said = append(said, "called "+b.ID+" "+b.Name+" "+string(b.Input))
		}
	}
	want := []string{"thought Two sums.", "said  Grüße\n", `called call_1 add {"a": 1, "b": "é"}`, "called call_2 add {}"}
	if diff := cmp.Diff(want, said); diff != "" || first.StopReason != "tool_use" || first.Usage.InputTokens != 3 || first.Usage.OutputTokens != 5 {
		t.Errorf("stop reason %s, usage %+v, content (-want +got):\n%s", first.StopReason, first.Usage, diff)
	}
	params.Messages = append(params.Messages, first.ToParam(), anthropic.NewUserMessage(
		anthropic.NewToolResultBlock("call_1", "2", false), anthropic.NewToolResultBlock("call_2", "none", true)))
	second, err := c.Messages.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	if second.Content[0].AsText().Text != "It is 2. 👋" || second.StopReason != "end_turn" || second.Usage.OutputTokens != 2 {
		t.Errorf("second answer is %s", second.RawJSON())
	}
	const asked = `[{"content":[{"text":"1+1?","type":"text"}],"role":"user"},` +
		`{"content":" Grüße\n","reasoning_content":"Two sums.","role":"assistant","tool_calls":[{"function":{"arguments":"{\"a\": 1, \"b\": \"é\"}","name":"add"},"id":"call_1","type":"function"},{"function":{"arguments":"{}","name":"add"},"id":"call_2","type":"function"}]},` +
		`{"content":"2","role":"tool","tool_call_id":"call_1"},{"content":"none","role":"tool","tool_call_id":"call_2"}]`
	if got := backend.messages(t, 1); got != asked {
		t.Errorf("the backend was asked with\n%s, want\n%s", got, asked)
	}
	// The prompt is a list of parts in this dialect.
	spans := r.spans(t)
	if text, _ := spans[0].Attributes.String("gen_ai.prompt.0.content"); text != `[{"type":"text","text":"1+1?"}]` {
		t.Errorf("prompt is %s", text)
	}
	checkCalls(t, r)
}

func checkCalls(t *testing.T, r *running) {
	t.Helper()
	calls, err := adapter.Calls(r.spans(t))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(conversationCalls, calls, cmpopts.IgnoreFields(adapter.Call{}, "SpanID")); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func TestConversationOfOpenAIsResponses(t *testing.T) {
	t.Parallel()
	backend := newChatOnly(t, turnWithTools, turnWithText)
	r := setupReal(t, agl.Model{Name: "m", Endpoint: backend.url, Version: 3})
	var schema map[string]any
	if err := json.Unmarshal([]byte(toolSchema), &schema); err != nil {
		t.Fatal(err)
	}
	params := responses.ResponseNewParams{
		Model: "m", Instructions: openai.String("Be brief."),
		Input: responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{
			responses.ResponseInputItemParamOfMessage("1+1?", responses.EasyInputMessageRoleUser),
		}},
		Tools:     []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{Name: "add", Parameters: schema, Strict: openai.Bool(false)}}},
		Reasoning: shared.ReasoningParam{Effort: shared.ReasoningEffortLow},
	}
	stream := r.client.Responses.NewStreaming(t.Context(), params)
	var kinds []string
	var final *responses.Response
	sequence := int64(0)
	for stream.Next() {
		event := stream.Current()
		if event.SequenceNumber != sequence {
			t.Errorf("event %s has sequence number %d, want %d", event.Type, event.SequenceNumber, sequence)
		}
		sequence++
		if len(kinds) == 0 || kinds[len(kinds)-1] != event.Type {
			kinds = append(kinds, event.Type)
		}
		if event.Type == "response.completed" {
			final = &event.Response
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	message := func(part string) []string {
		return []string{"response.output_item.added", "response.content_part.added", part + ".delta", part + ".done", "response.content_part.done", "response.output_item.done"}
	}
	call := []string{"response.output_item.added", "response.function_call_arguments.delta", "response.function_call_arguments.done", "response.output_item.done"}
	wantKinds := slices.Concat([]string{"response.created", "response.in_progress"}, message("response.reasoning_text"), message("response.output_text"), call, call, []string{"response.completed"})
	if diff := cmp.Diff(wantKinds, kinds); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if final == nil || final.OutputText() != " Grüße\n" || final.Usage.TotalTokens != 8 || len(final.Output) != 4 {
		t.Fatalf("final response is %+v", final)
	}
	items := params.Input.OfInputItemList
	for _, out := range final.Output {
		var item responses.ResponseInputItemUnionParam
		if err := json.Unmarshal([]byte(out.RawJSON()), &item); err != nil {
			t.Fatal(err)
		}
		items = append(items, item)
	}
	for _, out := range final.Output {
		if f := out.AsFunctionCall(); out.Type == "function_call" {
			result := responses.ResponseInputItemParamOfFunctionCallOutput("2")
			result.OfFunctionCallOutput.CallID = openai.String(f.CallID)
			items = append(items, result)
		}
	}
	params.Input.OfInputItemList = items
	second, err := r.client.Responses.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	if second.OutputText() != "It is 2. 👋" || second.Status != "completed" || second.Usage.OutputTokens != 2 || second.Instructions.OfString != "Be brief." {
		t.Errorf("second answer is %s", second.RawJSON())
	}
	const asked = `[{"content":"Be brief.","role":"system"},{"content":"1+1?","role":"user"},` +
		`{"content":" Grüße\n","reasoning_content":"Two sums.","role":"assistant","tool_calls":[{"function":{"arguments":"{\"a\": 1, \"b\": \"é\"}","name":"add"},"id":"call_1","type":"function"},{"function":{"arguments":"{}","name":"add"},"id":"call_2","type":"function"}]},` +
		`{"content":"2","role":"tool","tool_call_id":"call_1"},{"content":"2","role":"tool","tool_call_id":"call_2"}]`
	if got := backend.messages(t, 1); got != asked {
		t.Errorf("the backend was asked with\n%s, want\n%s", got, asked)
	}
	checkCalls(t, r)
}

func TestConversationOfOpenAIsChat(t *testing.T) {
	t.Parallel()
	backend := newChatOnly(t, turnWithTools, turnWithText)
	r := setupReal(t, agl.Model{Name: "m", Endpoint: backend.url, Version: 3})
	params := openai.ChatCompletionNewParams{
		Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("1+1?")},
		Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "add"})},
	}
	stream := r.client.Chat.Completions.NewStreaming(t.Context(), params)
	var acc openai.ChatCompletionAccumulator
	for stream.Next() {
		acc.AddChunk(stream.Current())
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	params.Messages = append(params.Messages, acc.Choices[0].Message.ToParam(), openai.ToolMessage("2", "call_1"), openai.ToolMessage("2", "call_2"))
	if _, err := r.client.Chat.Completions.New(t.Context(), params); err != nil {
		t.Fatal(err)
	}
	checkConversation(t, r)
}

// The same conversation at a backend that has Messages only, which is another
// proxy before one that has chat completions only: what comes back went through
// both translations.
func TestConversationOfOpenAIsChatAtMessages(t *testing.T) {
	t.Parallel()
	backend := newChatOnly(t, turnWithTools, turnWithText)
	far := setupReal(t, agl.Model{Name: "m", Endpoint: backend.url})
	near := setupReal(t, agl.Model{Name: "m", Endpoint: far.endpoint, Kind: agl.BackendAnthropic, APIKey: "unused"})
	params := openai.ChatCompletionNewParams{
		Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage("Be brief."), openai.UserMessage("1+1?")},
		Tools:         []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "add"})},
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	}
	stream := near.client.Chat.Completions.NewStreaming(t.Context(), params)
	var acc openai.ChatCompletionAccumulator
	for stream.Next() {
		if !acc.AddChunk(stream.Current()) {
			t.Errorf("chunk does not follow: %s", stream.Current().RawJSON())
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	first := acc.Choices[0]
	if first.Message.Content != " Grüße\n" || first.FinishReason != "tool_calls" || acc.Usage.TotalTokens != 8 || len(first.Message.ToolCalls) != 2 ||
		first.Message.ToolCalls[0].Function.Arguments != `{"a": 1, "b": "é"}` || first.Message.ToolCalls[1].Function.Arguments != "{}" {
		t.Errorf("the streamed answer is %+v, usage %+v", first, acc.Usage)
	}
	params.StreamOptions = openai.ChatCompletionStreamOptionsParam{}
	params.Messages = append(params.Messages, first.Message.ToParam(), openai.ToolMessage("2", "call_1"), openai.ToolMessage("none", "call_2"))
	second, err := near.client.Chat.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	if second.Choices[0].Message.Content != "It is 2. 👋" || second.Choices[0].FinishReason != "stop" || second.Usage.CompletionTokens != 2 {
		t.Errorf("the second answer is %s", second.RawJSON())
	}
	const asked = `[{"content":[{"text":"Be brief.","type":"text"}],"role":"system"},{"content":[{"text":"1+1?","type":"text"}],"role":"user"},` +
		`{"content":" Grüße\n","role":"assistant","tool_calls":[{"function":{"arguments":"{\"a\": 1, \"b\": \"é\"}","name":"add"},"id":"call_1","type":"function"},{"function":{"arguments":"{}","name":"add"},"id":"call_2","type":"function"}]},` +
		`{"content":"2","role":"tool","tool_call_id":"call_1"},{"content":"none","role":"tool","tool_call_id":"call_2"}]`
	if got := backend.messages(t, 1); got != asked {
		t.Errorf("the backend was asked with\n%s, want\n%s", got, asked)
	}
}

// A completion on a server that has none becomes a chat completion; one whose
// prompt that cannot hold is refused.
func TestOpenAIsCompletions(t *testing.T) {
	t.Parallel()
	chunks := `data: {"id":"c1","created":7,"model":"t","choices":[{"index":0,"delta":{"role":"assistant","content":""}}],"prompt_token_ids":[1,2,3]}` + "\n\n" +
		`data: {"id":"c1","choices":[{"index":0,"delta":{"content":"a"},"token_ids":[10],"logprobs":{"content":[{"token":"a","logprob":-0.5}]}}]}` + "\n\n" +
		`data: {"id":"c1","choices":[{"index":0,"delta":{"content":"b\n"},"finish_reason":"stop","token_ids":[11,12,13,14],"logprobs":{"content":[{"token":"b","logprob":-1},{"token":"b","logprob":-2},{"token":"b","logprob":0},{"token":"b","logprob":-3}]}}]}` + "\n\n" +
		`data: {"id":"c1","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":5,"total_tokens":8}}` + "\n\n" + done
	backend := newChatOnly(t, chunks, turnWithText)
	r := setupReal(t, agl.Model{Name: "m", Endpoint: backend.url, Version: 3})
	params := openai.CompletionNewParams{Model: "m", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("1+1?")}}
	stream := r.client.Completions.NewStreaming(t.Context(), params)
	var text strings.Builder
	for stream.Next() {
		text.WriteString(stream.Current().Choices[0].Text)
	}
	if err := stream.Err(); err != nil || text.String() != "ab\n" {
		t.Errorf("streamed text is %q (%v)", text.String(), err)
	}
	params.Logprobs, params.Echo = openai.Int(1), openai.Bool(false)
	answer, err := r.client.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	choice := answer.Choices[0]
	if choice.Text != "It is 2. 👋" || answer.ID != "c2" || !slices.Equal(choice.Logprobs.TokenLogprobs, []float64{-0.25, -4}) || !strings.Contains(choice.RawJSON(), `"token_ids":[20,21]`) {
		t.Errorf("answer is %s", answer.RawJSON())
	}
	if got := backend.messages(t, 0); got != `[{"content":"1+1?","role":"user"}]` {
		t.Errorf("the backend was asked with %s", got)
	}
	calls, err := adapter.Calls(r.spans(t))
	if err != nil || len(calls) != 2 || !slices.Equal(calls[0].ResponseIDs, []int32{10, 11, 12, 13, 14}) || !slices.Equal(calls[1].Logprobs, []float32{-0.25, -4}) {
		t.Errorf("calls are %+v (%v)", calls, err)
	}
	params.Prompt = openai.CompletionNewParamsPromptUnion{OfArrayOfTokens: []int64{1, 2, 3}}
	_, err = r.client.Completions.New(t.Context(), params)
	if e, ok := errors.AsType[*openai.Error](err); !ok || e.StatusCode != http.StatusBadRequest || e.Param != "prompt" {
		t.Errorf("token ids are answered with %v", err)
	}
}

// A server that has completions takes token ids as a prompt, and its answer is
// passed on as it is.
func TestCompletionsPassThrough(t *testing.T) {
	t.Parallel()
	const answer = `{"id":"cmpl-1","object":"text_completion","created":5,"model":"served","choices":[{"index":0,"text":"ab","finish_reason":"stop","x":[1.0],` +
		`"logprobs":{"tokens":["a","b"],"token_logprobs":[-0.5,-1.5],"top_logprobs":[{"a":-0.5},{"b":-1.5}],"text_offset":[0,1]},"token_ids":[7,8],"prompt_token_ids":[1,2,3]}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`
	var asked string
	f := setup(t, llmproxy.Config{}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = r.URL.Path + " " + string(body)
		answers(answer)(w, r)
	})
	status, _, body := f.post(t, attempt+"/completions", `{"model":"m","prompt":[1,2,3],"max_tokens":2}`)
	if status != 200 || body != answer {
		t.Errorf("answered %d %s", status, body)
	}
	if want := `/v1/completions {"model":"m","prompt":[1,2,3],"max_tokens":2,"return_token_ids":true,"logprobs":1}`; asked != want {
		t.Errorf("the backend was asked %s, want %s", asked, want)
	}
	s := f.store.span(t)
	if problem(s) != "" || !slices.Equal(ints(s, "prompt_token_ids"), []int64{1, 2, 3}) || !slices.Equal(ints(s, "response_token_ids"), []int64{7, 8}) {
		t.Errorf("problem %q, ids %v and %v", problem(s), ints(s, "prompt_token_ids"), ints(s, "response_token_ids"))
	}
	logprobs, _ := s.Attributes.Get("response_logprobs")
	if diff := cmp.Diff(any([]float64{-0.5, -1.5}), logprobs); diff != "" {
		t.Errorf("log-probabilities (-want +got):\n%s", diff)
	}
	if text, _ := s.Attributes.String("gen_ai.prompt.0.content"); text != "[1,2,3]" {
		t.Errorf("prompt is %q", text)
	}
	if text, _ := s.Attributes.String("gen_ai.completion.0.content"); text != "ab" {
		t.Errorf("completion is %q", text)
	}
}
