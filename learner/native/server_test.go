package native

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"

	"agentlightning/learner"
)

// taught is a model that has learnt a few conversations by heart.
var taught = sync.OnceValues(func() (*Model, error) {
	texts := []string{"add one and two", "call malformed please", "say hello", "calc done hello there"}
	m, err := New(Config{Dim: 32, Heads: 2, Hidden: 64, Context: 48, Seed: 9}, NewTokenizer(Words(texts, 50)))
	if err != nil {
		return nil, err
	}
	var rows []learner.Row
	for _, c := range [][]Message{
		{{RoleUser, "add one and two"}, {RoleAssistant, "calc(1+2)"}, {RoleTool, "3"}, {RoleAssistant, "3"}},
		{{RoleUser, "malformed call please"}, {RoleAssistant, "calc(1+2"}, {RoleUser, "add one and two"}, {RoleAssistant, "done"}},
		{{RoleUser, "say hello"}, {RoleAssistant, "hello there é"}},
		{{RoleUser, "json"}, {RoleAssistant, `find({"a":1})`}},
	} {
		ids, mask, err := m.Tokenizer().Render(c)
		if err != nil {
			return nil, err
		}
		rows = append(rows, learner.Row{IDs: ids, Mask: mask})
	}
	for range 250 {
		_, err := m.Update(context.Background(), learner.Batch{Rows: rows, Options: learner.Options{Objective: learner.Imitation, LearningRate: 5e-3}})
		if err != nil {
			return nil, err
		}
	}
	return m, nil
})

func taughtServer(t *testing.T) (*Server, string) {
	t.Helper()
	m, err := taught()
	if err != nil {
		t.Fatalf("teach: %v", err)
	}
	s := NewServer(m, ServerConfig{Name: "tiny"})
	return s, serve(t, s)
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	ts := httptest.NewServer(h)
	t.Cleanup(func() {
		ts.Client().CloseIdleConnections()
		ts.Close()
	})
	return ts.URL
}

func clientOf(t *testing.T, url string) openai.Client {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return openai.NewClient(option.WithBaseURL(url+"/v1"), option.WithAPIKey("none"),
		option.WithHTTPClient(&http.Client{Transport: tr}), option.WithMaxRetries(0))
}

func calcTools() []openai.ChatCompletionToolUnionParam {
	return []openai.ChatCompletionToolUnionParam{
		openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: "calc",
			Parameters: shared.FunctionParameters{
				"type": "object", "properties": map[string]any{"expression": map[string]any{"type": "string"}},
			},
		}),
		openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: "find",
			Parameters: shared.FunctionParameters{
				"type": "object", "properties": map[string]any{"a": map[string]any{"type": "integer"}, "b": map[string]any{"type": "string"}},
			},
		}),
	}
}

// idsOf reads a list of token ids that the client's types do not know.
func idsOf(t *testing.T, raw, field string) []int32 {
	t.Helper()
	var v map[string]json.RawMessage
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		t.Fatalf("unmarshal %s: %v", raw, err)
	}
	var out []int32
	if err := json.Unmarshal(v[field], &out); err != nil {
		t.Fatalf("%s of %s: %v", field, raw, err)
	}
	return out
}

var returnIDs = option.WithJSONSet("return_token_ids", true)

// A conversation with a tool, as the official client has it; the second prompt
// begins with exactly what was sampled.
func TestChatWithTools(t *testing.T) {
	t.Parallel()
	_, url := taughtServer(t)
	client := clientOf(t, url)
	p := openai.ChatCompletionNewParams{
		Model: "tiny", Tools: calcTools(), Temperature: param.NewOpt(0.0), Logprobs: param.NewOpt(true), TopLogprobs: param.NewOpt(int64(2)),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("add one and two")},
	}
	first, err := client.Chat.Completions.New(t.Context(), p, returnIDs)
	if err != nil {
		t.Fatalf("first turn: %v", err)
	}
	c := first.Choices[0]
	if c.FinishReason != "tool_calls" || len(c.Message.ToolCalls) != 1 {
		t.Fatalf("first turn finished with %q: %s", c.FinishReason, first.RawJSON())
	}
	call := c.Message.ToolCalls[0].Function
	if call.Name != "calc" || call.Arguments != `{"expression":"1+2"}` {
		t.Errorf("call = %s %s, want calc {\"expression\":\"1+2\"}", call.Name, call.Arguments)
	}
	ids := idsOf(t, c.RawJSON(), "token_ids")
	prompt := idsOf(t, first.RawJSON(), "prompt_token_ids")
	if n := len(c.Logprobs.Content); n != len(ids) || n != int(first.Usage.CompletionTokens) {
		t.Errorf("%d logprobs and %d usage tokens for %d ids", n, first.Usage.CompletionTokens, len(ids))
	}
	for _, l := range c.Logprobs.Content {
		if len(l.TopLogprobs) != 2 || l.TopLogprobs[0].Token != l.Token || l.Logprob > 0 {
			t.Errorf("logprobs of greedy token %q: %v, top %v", l.Token, l.Logprob, l.TopLogprobs)
		}
	}

	p.Messages = append(p.Messages, c.Message.ToParam(), openai.ToolMessage("3", c.Message.ToolCalls[0].ID))
	second, err := client.Chat.Completions.New(t.Context(), p, returnIDs)
	if err != nil {
		t.Fatalf("second turn: %v", err)
	}
	if got := second.Choices[0].Message.Content; got != "3" || second.Choices[0].FinishReason != "stop" {
		t.Errorf("second turn = %q, %q, want 3, stop", got, second.Choices[0].FinishReason)
	}
	got := idsOf(t, second.RawJSON(), "prompt_token_ids")
	want := slices.Concat(prompt, ids, []int32{ToolToken, '3', EndToken, AssistantToken})
	if !slices.Equal(got, want) {
		t.Errorf("second prompt = %v, want %v", got, want)
	}
	if second.Usage.PromptTokensDetails.CachedTokens == 0 {
		t.Errorf("second turn took nothing from the cache")
	}
}

func TestMalformedCallStaysContent(t *testing.T) {
	t.Parallel()
	_, url := taughtServer(t)
	client := clientOf(t, url)
	p := openai.ChatCompletionNewParams{
		Model: "tiny", Tools: calcTools(), Temperature: param.NewOpt(0.0),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("malformed call please")},
	}
	res, err := client.Chat.Completions.New(t.Context(), p, returnIDs)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	c := res.Choices[0]
	if c.Message.Content != "calc(1+2" || c.FinishReason != "stop" || len(c.Message.ToolCalls) != 0 {
		t.Errorf("answer = %s, want content calc(1+2", res.RawJSON())
	}
	p.Messages = append(p.Messages, c.Message.ToParam(), openai.UserMessage("add one and two"))
	next, err := client.Chat.Completions.New(t.Context(), p, returnIDs)
	if err != nil {
		t.Fatalf("second turn: %v", err)
	}
	before := slices.Concat(idsOf(t, res.RawJSON(), "prompt_token_ids"), idsOf(t, c.RawJSON(), "token_ids"))
	if got := idsOf(t, next.RawJSON(), "prompt_token_ids"); !slices.Equal(got[:len(before)], before) {
		t.Errorf("second prompt %v does not begin with %v", got, before)
	}
}

func TestToolsWithJSONArguments(t *testing.T) {
	t.Parallel()
	_, url := taughtServer(t)
	client := clientOf(t, url)
	p := openai.ChatCompletionNewParams{
		Model: "tiny", Tools: calcTools(), Temperature: param.NewOpt(0.0),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("json")},
	}
	res, err := client.Chat.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	calls := res.Choices[0].Message.ToolCalls
	if len(calls) != 1 || calls[0].Function.Name != "find" || calls[0].Function.Arguments != `{"a":1}` {
		t.Errorf("answer = %s, want a call of find with {\"a\":1}", res.RawJSON())
	}
	p.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: param.NewOpt("none")}
	res, err = client.Chat.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatalf("New with tool_choice none: %v", err)
	}
	if got := res.Choices[0].Message.Content; got != `find({"a":1})` {
		t.Errorf("with tool_choice none content = %q", got)
	}
}

// A stream, put together again, is the whole answer.
func TestStreamEqualsWhole(t *testing.T) {
	t.Parallel()
	_, url := taughtServer(t)
	client := clientOf(t, url)
	for _, text := range []string{"add one and two", "say hello", "malformed call please", "json", "anything else"} {
		for _, temperature := range []float64{0, 1, 3} {
			p := openai.ChatCompletionNewParams{
				Model: "tiny", Tools: calcTools(), Temperature: param.NewOpt(temperature), Seed: param.NewOpt(int64(11)),
				Logprobs:      param.NewOpt(true),
				StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: param.NewOpt(true)},
				Messages:      []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)},
			}
			whole, err := client.Chat.Completions.New(t.Context(), p, returnIDs)
			if err != nil {
				t.Fatalf("whole: %v", err)
			}
			acc := openai.ChatCompletionAccumulator{}
			var ids, prompt []int32
			stream := client.Chat.Completions.NewStreaming(t.Context(), p, returnIDs)
			for stream.Next() {
				chunk := stream.Current()
				acc.AddChunk(chunk)
				if prompt == nil {
					prompt = idsOf(t, chunk.RawJSON(), "prompt_token_ids")
				}
				if len(chunk.Choices) > 0 && strings.Contains(chunk.Choices[0].RawJSON(), `"token_ids"`) {
					ids = append(ids, idsOf(t, chunk.Choices[0].RawJSON(), "token_ids")...)
				}
			}
			if err := stream.Err(); err != nil {
				t.Fatalf("stream: %v", err)
			}
			w, s := whole.Choices[0], acc.Choices[0]
			if w.Message.Content != s.Message.Content || w.FinishReason != s.FinishReason {
				t.Errorf("%q at %v: stream %q (%s), whole %q (%s)", text, temperature, s.Message.Content, s.FinishReason, w.Message.Content, w.FinishReason)
			}
			if len(w.Message.ToolCalls) != len(s.Message.ToolCalls) ||
				len(w.Message.ToolCalls) > 0 && w.Message.ToolCalls[0].Function.Arguments != s.Message.ToolCalls[0].Function.Arguments {
				t.Errorf("%q at %v: stream calls %v, whole calls %v", text, temperature, s.Message.ToolCalls, w.Message.ToolCalls)
			}
			if want := idsOf(t, w.RawJSON(), "token_ids"); !slices.Equal(ids, want) {
				t.Errorf("%q at %v: stream ids %v, whole ids %v", text, temperature, ids, want)
			}
			if want := idsOf(t, whole.RawJSON(), "prompt_token_ids"); !slices.Equal(prompt, want) {
				t.Errorf("%q: stream prompt ids %v, whole %v", text, prompt, want)
			}
			if len(s.Logprobs.Content) != len(ids) {
				t.Errorf("%q: stream has %d logprobs for %d ids", text, len(s.Logprobs.Content), len(ids))
			}
			if acc.Usage.TotalTokens != whole.Usage.TotalTokens {
				t.Errorf("%q: stream usage %d, whole %d", text, acc.Usage.TotalTokens, whole.Usage.TotalTokens)
			}
		}
	}
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatalf("NewRequest: %v", err)
	}
	tr := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		t.Fatalf("POST %s: %v", url, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return resp.StatusCode, string(text)
}

func TestChatErrors(t *testing.T) {
	t.Parallel()
	_, url := taughtServer(t)
	const msg = `"messages":[{"role":"user","content":"hi"}]`
	for _, tt := range []struct {
		name, body  string
		status      int
		param, code string
	}{
		{"no JSON", `{`, 400, "", ""},
		{"no object", `[]`, 400, "", ""},
		{"no messages", `{}`, 400, "messages", ""},
		{"unknown role", `{"messages":[{"role":"judge","content":""}]}`, 400, "messages[0].role", ""},
		{"image", `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, 400, "", ""},
		{"other model", `{"model":"gpt-5",` + msg + `}`, 404, "model", "model_not_found"},
		{"n", `{"n":2,` + msg + `}`, 400, "n", ""},
		{"penalty", `{"frequency_penalty":0.5,` + msg + `}`, 400, "frequency_penalty", ""},
		{"bias", `{"logit_bias":{"5":1},` + msg + `}`, 400, "logit_bias", ""},
		{"format", `{"response_format":{"type":"json_object"},` + msg + `}`, 400, "response_format", ""},
		{"top_k", `{"top_k":5,` + msg + `}`, 400, "top_k", ""},
		{"forced tool", `{"tool_choice":"required",` + msg + `}`, 400, "tool_choice", ""},
		{"temperature", `{"temperature":-1,` + msg + `}`, 400, "temperature", ""},
		{"top_p", `{"top_p":0,` + msg + `}`, 400, "top_p", ""},
		{"max_tokens", `{"max_tokens":0,` + msg + `}`, 400, "max_tokens", ""},
		{"top_logprobs", `{"logprobs":true,"top_logprobs":21,` + msg + `}`, 400, "top_logprobs", ""},
		{"too long", `{"messages":[{"role":"user","content":"` + strings.Repeat("0", 60) + `"}]}`, 400, "messages", "context_length_exceeded"},
		{"too long, streamed", `{"stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("0", 60) + `"}]}`, 400, "messages", "context_length_exceeded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			status, body := post(t, url+"/v1/chat/completions", tt.body)
			var e errorBody
			if err := json.Unmarshal([]byte(body), &e); err != nil {
				t.Fatalf("body %q: %v", body, err)
			}
			deref := func(s *string) string {
				if s == nil {
					return ""
				}
				return *s
			}
			if status != tt.status || deref(e.Error.Param) != tt.param || deref(e.Error.Code) != tt.code || e.Error.Type != "invalid_request_error" || e.Error.Message == "" {
				t.Errorf("got %d %s, want %d param %q code %q", status, body, tt.status, tt.param, tt.code)
			}
		})
	}
}

// Fields that ask for nothing, and fields without a bearing on the samples, do
// no harm.
func TestNeutralFieldsAreAccepted(t *testing.T) {
	t.Parallel()
	_, url := taughtServer(t)
	status, body := post(t, url+"/v1/chat/completions", `{"model":"tiny","n":1,"frequency_penalty":0,"presence_penalty":0.0,
		"logit_bias":{},"top_k":-1,"response_format":{"type":"text"},"tool_choice":"auto","modalities":["text"],"stop":null,
		"logprobs":1,"return_token_ids":0,"user":"x","metadata":{"a":"b"},"foo":"bar","parallel_tool_calls":true,"max_tokens":3,
		"messages":[{"role":"developer","content":[{"type":"text","text":"say "},{"type":"text","text":"hello"}]}]}`)
	if status != http.StatusOK {
		t.Errorf("got %d %s, want 200", status, body)
	}
}

func TestStopTexts(t *testing.T) {
	t.Parallel()
	_, url := taughtServer(t)
	client := clientOf(t, url)
	p := openai.ChatCompletionNewParams{
		Model: "tiny", Temperature: param.NewOpt(0.0),
		Stop:     openai.ChatCompletionNewParamsStopUnion{OfStringArray: []string{"xyz", "o the"}},
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("say hello")},
	}
	whole, err := client.Chat.Completions.New(t.Context(), p)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	if c := whole.Choices[0]; c.Message.Content != "hell" || c.FinishReason != "stop" {
		t.Errorf("got %q (%s), want hell (stop)", c.Message.Content, c.FinishReason)
	}
	var got strings.Builder
	stream := client.Chat.Completions.NewStreaming(t.Context(), p)
	for stream.Next() {
		if c := stream.Current().Choices; len(c) > 0 {
			got.WriteString(c[0].Delta.Content)
		}
	}
	if stream.Err() != nil || got.String() != "hell" {
		t.Errorf("stream gave %q, %v, want hell", got.String(), stream.Err())
	}
}

func TestModelsHealthAndUnknownPath(t *testing.T) {
	t.Parallel()
	s, url := taughtServer(t)
	client := clientOf(t, url)
	page, err := client.Models.List(t.Context())
	if err != nil || len(page.Data) != 1 || page.Data[0].ID != "tiny" {
		t.Errorf("models = %v, %v, want tiny", page, err)
	}
	for path, want := range map[string]int{"/health": 200, "/nothing": 404, "/v1/chat/completions": 405} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("GET %s = %d, want %d", path, w.Code, want)
		}
	}
}

func TestClosedModelAnswers503(t *testing.T) {
	t.Parallel()
	m := smallModel(t, Config{})
	url := serve(t, NewServer(m, ServerConfig{}))
	if err := m.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if status, body := post(t, url+"/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`); status != 503 {
		t.Errorf("got %d %s, want 503", status, body)
	}
}

func TestTextCompletions(t *testing.T) {
	t.Parallel()
	s, url := taughtServer(t)
	ids, err := s.m.tok.Prompt([]Message{{RoleUser, "say hello"}})
	if err != nil {
		t.Fatalf("Prompt: %v", err)
	}
	prompt, err := json.Marshal(ids)
	if err != nil {
		t.Fatalf("Marshal: %v", err)
	}
	status, body := post(t, url+"/v1/completions", `{"prompt":`+string(prompt)+`,"temperature":0,"logprobs":1,"return_token_ids":true}`)
	var res completionResponse
	if err := json.Unmarshal([]byte(body), &res); err != nil || status != 200 {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	c := res.Choices[0]
	if c.Text != "hello there é" || *c.FinishReason != FinishStop || len(c.Logprobs.Logprobs) != len(c.TokenIDs) || !slices.Equal(c.PromptTokenIDs, ids) {
		t.Errorf("answer = %s", body)
	}
	_, events := post(t, url+"/v1/completions", `{"prompt":`+string(prompt)+`,"temperature":0,"stream":true}`)
	var text strings.Builder
	sc := bufio.NewScanner(strings.NewReader(events))
	for sc.Scan() {
		data, ok := bytes.CutPrefix(sc.Bytes(), []byte("data: {"))
		if !ok {
			continue
		}
		var chunk completionResponse
		if err := json.Unmarshal(append([]byte("{"), data...), &chunk); err != nil {
			t.Fatalf("chunk %s: %v", data, err)
		}
		text.WriteString(chunk.Choices[0].Text)
	}
	if text.String() != c.Text {
		t.Errorf("stream gave %q, want %q", text.String(), c.Text)
	}
}

// A client that leaves frees its place.
func TestCancelledRequestLeavesTheEngine(t *testing.T) {
	t.Parallel()
	m := smallModel(t, Config{Slots: 1})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	prompt := []int32{UserToken, AssistantToken}
	n := 0
	for _, err := range m.Stream(ctx, Request{Prompt: prompt, Temperature: 1}, nil) {
		n++
		if n == 1 {
			cancel()
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("stream error = %v", err)
		}
	}
	for range m.Stream(t.Context(), Request{Prompt: prompt, Temperature: 1}, nil) {
		break
	}
	if _, err := m.Generate(t.Context(), Request{Prompt: prompt, Temperature: 1}); err != nil {
		t.Errorf("Generate after cancelled ones: %v", err)
	}
}
