package modelcall_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/semconv"
	"agentlightning/tracer"
	"agentlightning/tracer/modelcall"
)

// engine answers as vLLM does: token ids for those who ask for them.
func engine(t *testing.T) string {
	t.Helper()
	failures := 1 // of the model "flaky"
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var ask struct {
			Model    string `json:"model"`
			Stream   bool   `json:"stream"`
			TokenIDs bool   `json:"return_token_ids"`
		}
		if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
			t.Errorf("the engine was sent what is no JSON: %v", err)
		}
		switch {
		case ask.Model == "flaky" && failures > 0:
			failures--
			http.Error(w, `{"error":{"message":"overloaded"}}`, http.StatusServiceUnavailable)
			return
		case ask.Model == "small":
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"This model's maximum context length is 8 tokens","code":"context_length_exceeded"}}`)
			return
		}
		ids, first := "", ""
		if ask.TokenIDs {
			ids, first = `,"token_ids":[21,22]`, `,"prompt_token_ids":[11,12,13]`
		}
		logprobs := `"logprobs":{"content":[{"token":"4","logprob":-0.25,"bytes":[52],"top_logprobs":[]},{"token":"!","logprob":-0.5,"bytes":[33],"top_logprobs":[]}]}`
		if !ask.Stream {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"id":"c1","object":"chat.completion","created":1,"model":"m"%s,"choices":[{"index":0,"message":{"role":"assistant","content":"4!"},"finish_reason":"stop",%s%s}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`, first, logprobs, ids)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "data: {\"id\":\"c2\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\"%s,\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"4!\"},%s%s,\"finish_reason\":null}]}\r\n\r\n", first, logprobs, ids)
		_ = http.NewResponseController(w).Flush()
		if ask.Model == "endless" {
			<-r.Context().Done()
			return
		}
		if ask.Model == "cut" {
			return
		}
		_, _ = io.WriteString(w, ": alive\n\ndata: {\"id\":\"c2\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"+
			"data: {\"id\":\"c2\",\"model\":\"m\",\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2,\"total_tokens\":5}}\n\ndata: [DONE]\n\n")
	})
	mux.HandleFunc("POST /v1/messages", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), `"stream":true`) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[{"type":"text","text":"four"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":1}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, event := range []string{
			`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":3,"output_tokens":0}}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"four"}}`,
			`{"type":"content_block_stop","index":0}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":1}}`,
			`{"type":"message_stop"}`,
		} {
			var named struct{ Type string }
			_ = json.Unmarshal([]byte(event), &named)
			_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", named.Type, event)
		}
	})
	mux.HandleFunc("POST /v1/responses", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"resp_1","object":"response","created_at":1,"status":"completed","model":"m","output":[{"type":"message","id":"i1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"four","annotations":[]}]}],"usage":{"input_tokens":3,"output_tokens":1,"total_tokens":4}}`)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL + "/v1"
}

// record runs an agent and returns the spans of what it did.
func record(t *testing.T, agent func(ctx context.Context)) []agl.Span {
	t.Helper()
	ctx, tr := tracer.New(tracer.Config{}).Start(t.Context(), "", "")
	agent(ctx)
	spans, err := tr.End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range spans {
		spans[i].SequenceID = int64(i + 1)
	}
	return spans
}

func ask(model string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("2+2?")}}
}

func openAI(url string, cfg modelcall.Config, o ...option.RequestOption) *openai.Client {
	client := openai.NewClient(append([]option.RequestOption{
		option.WithBaseURL(url), option.WithAPIKey("secret"), option.WithMaxRetries(0), option.WithMiddleware(modelcall.New(cfg).Middleware),
	}, o...)...)
	return &client
}

// streamed reads a stream to its end.
func streamed(t *testing.T, ctx context.Context, client *openai.Client, model string) (string, error) { //nolint:revive // t comes first in tests
	t.Helper()
	stream := client.Chat.Completions.NewStreaming(ctx, ask(model))
	defer func() { _ = stream.Close() }()
	text := ""
	for stream.Next() {
		for _, choice := range stream.Current().Choices {
			text += choice.Delta.Content
		}
	}
	return text, stream.Err()
}

func TestChatYieldsTriplets(t *testing.T) {
	client := openAI(engine(t), modelcall.Config{TokenIDs: true})
	spans := record(t, func(ctx context.Context) {
		answer, err := client.Chat.Completions.New(ctx, ask("m"))
		if err != nil || answer.Choices[0].Message.Content != "4!" {
			t.Errorf("answered %v, %v", answer, err)
		}
		if text, err := streamed(t, ctx, client, "m"); err != nil || text != "4!" {
			t.Errorf("streamed %q, %v", text, err)
		}
	})
	if len(spans) != 2 {
		t.Fatalf("%d spans of two calls", len(spans))
	}
	triplets, err := adapter.TracerTriplets(spans, adapter.TracerOptions{})
	if err != nil || len(triplets) != 2 {
		t.Fatalf("%d triplets, %v", len(triplets), err)
	}
	for i := range spans {
		s := &spans[i]
		prompt, _ := s.Attributes.Get(semconv.PromptTokenIDs)
		response, _ := s.Attributes.Get(semconv.ResponseTokenIDs)
		logprobs, _ := s.Attributes.Get(semconv.ResponseLogprobs)
		got := []any{s.Name, s.Status.StatusCode, prompt, response, logprobs}
		want := []any{semconv.SpanModelCall, agl.StatusOK, []int64{11, 12, 13}, []int64{21, 22}, []float64{-0.25, -0.5}}
		if d := cmp.Diff(want, got); d != "" {
			t.Error("span", i, d)
		}
		if problem, there := s.Attributes.Get(semconv.CallProblem); there {
			t.Error("span", i, "has problem", problem)
		}
		for _, a := range s.Attributes {
			if strings.Contains(fmt.Sprint(a.Value), "secret") {
				t.Error("span", i, "holds the key in", a.Key)
			}
		}
	}
}

func TestOtherDialects(t *testing.T) {
	url := engine(t)
	claude := anthropic.NewClient(anthropicoption.WithBaseURL(strings.TrimSuffix(url, "/v1")), anthropicoption.WithAPIKey("secret"),
		anthropicoption.WithMiddleware(modelcall.New(modelcall.Config{TokenIDs: true}).Middleware))
	params := anthropic.MessageNewParams{
		Model: "claude", MaxTokens: 16,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("2+2?"))},
	}
	client := openAI(url, modelcall.Config{TokenIDs: true})
	spans := record(t, func(ctx context.Context) {
		if m, err := claude.Messages.New(ctx, params); err != nil || m.Content[0].Text != "four" {
			t.Errorf("answered %v, %v", m, err)
		}
		stream := claude.Messages.NewStreaming(ctx, params)
		var m anthropic.Message
		for stream.Next() {
			if err := m.Accumulate(stream.Current()); err != nil {
				t.Error(err)
			}
		}
		if err := stream.Close(); stream.Err() != nil || err != nil || m.Content[0].Text != "four" {
			t.Errorf("streamed %v, %v, %v", m.Content, stream.Err(), err)
		}
		r, err := client.Responses.New(ctx, responses.ResponseNewParams{
			Model: "m", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("2+2?")},
		})
		if err != nil || r.OutputText() != "four" {
			t.Errorf("answered %v, %v", r, err)
		}
	})
	if len(spans) != 3 {
		t.Fatalf("%d spans of three calls", len(spans))
	}
	parts := `[{"type":"text","text":"2+2?"}]` // as the client sends it
	for i, call := range []struct{ dialect, prompt string }{{"messages", parts}, {"messages", parts}, {"responses", "2+2?"}} {
		s := &spans[i]
		said := map[string]string{}
		for _, key := range []string{
			semconv.CallDialect, semconv.CallProblem, semconv.PromptKey(0, "content"), semconv.CompletionKey(0, "content"),
		} {
			said[key], _ = s.Attributes.String(key)
		}
		want := map[string]string{
			semconv.CallDialect: call.dialect, semconv.CallProblem: semconv.ProblemTokenIDsMissing,
			semconv.PromptKey(0, "content"): call.prompt, semconv.CompletionKey(0, "content"): "four",
		}
		if d := cmp.Diff(want, said); d != "" {
			t.Error("span", i, d)
		}
	}
}

func TestFailuresAreRecorded(t *testing.T) {
	url := engine(t)
	problem := func(t *testing.T, s agl.Span) string {
		t.Helper()
		if s.Status.StatusCode != agl.StatusError || s.Status.Description == nil {
			t.Errorf("status %+v of a call that failed", s.Status)
		}
		name, _ := s.Attributes.String(semconv.CallProblem)
		return name
	}
	for _, test := range []struct {
		name, want string
		spans      int
		agent      func(t *testing.T, ctx context.Context)
	}{
		{"refused and tried again", semconv.ProblemUpstreamError, 2, func(t *testing.T, ctx context.Context) {
			client := openAI(url, modelcall.Config{}, option.WithMaxRetries(1))
			if _, err := client.Chat.Completions.New(ctx, ask("flaky")); err != nil {
				t.Error(err)
			}
		}},
		{"too long a prompt", semconv.ProblemContextOverflow, 1, func(t *testing.T, ctx context.Context) {
			_, err := openAI(url, modelcall.Config{}).Chat.Completions.New(ctx, ask("small"))
			var refused *openai.Error
			if !errors.As(err, &refused) || refused.Code != "context_length_exceeded" {
				t.Errorf("the program sees %v", err)
			}
		}},
		{"nobody there", semconv.ProblemUpstreamError, 1, func(t *testing.T, ctx context.Context) {
			if _, err := openAI("http://127.0.0.1:1/v1", modelcall.Config{}).Chat.Completions.New(ctx, ask("m")); err == nil {
				t.Error("no error")
			}
		}},
		{"the stream is cut", semconv.ProblemTruncated, 1, func(t *testing.T, ctx context.Context) {
			if text, err := streamed(t, ctx, openAI(url, modelcall.Config{}), "cut"); text != "4!" || err != nil {
				t.Errorf("streamed %q, %v", text, err)
			}
		}},
		{"the program stops reading", semconv.ProblemCancelled, 1, func(_ *testing.T, ctx context.Context) {
			client := openAI(url, modelcall.Config{})
			stream := client.Chat.Completions.NewStreaming(ctx, ask("endless"))
			stream.Next()
			_ = stream.Close()
		}},
		{"the program is cancelled", semconv.ProblemCancelled, 1, func(_ *testing.T, ctx context.Context) {
			ctx, cancel := context.WithCancel(ctx)
			client := openAI(url, modelcall.Config{})
			stream := client.Chat.Completions.NewStreaming(ctx, ask("endless"))
			stream.Next()
			cancel()
			stream.Next()
			_ = stream.Close()
		}},
		{"longer than is recorded", semconv.ProblemUpstreamError, 1, func(t *testing.T, ctx context.Context) {
			answer, err := openAI(url, modelcall.Config{MaxAnswerBytes: 20}).Chat.Completions.New(ctx, ask("m"))
			if err != nil || answer.Choices[0].Message.Content != "4!" {
				t.Errorf("the program sees %v, %v", answer, err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			spans := record(t, func(ctx context.Context) { test.agent(t, ctx) })
			if len(spans) != test.spans {
				t.Fatalf("%d spans, want %d", len(spans), test.spans)
			}
			if got := problem(t, spans[0]); got != test.want {
				t.Errorf("problem %q, want %q", got, test.want)
			}
		})
	}
}

// TestInvisible holds what a program reads with a recorder against what it
// reads without.
func TestInvisible(t *testing.T) {
	url := engine(t)
	fetch := func(ctx context.Context, client *http.Client, path, body string) string {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		got, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(resp.Status, resp.Header.Get("Content-Type"), string(got))
	}
	recording := &http.Client{Transport: modelcall.New(modelcall.Config{}).Transport(nil)}
	plain := &http.Client{Transport: http.DefaultTransport}
	spans := record(t, func(ctx context.Context) {
		for _, call := range [][2]string{
			{"/chat/completions", `{"model":"m","messages":[]}`},
			{"/chat/completions", `{"model":"m","stream":true}`},
			{"/chat/completions", `{"model":"small"}`},
			{"/messages", `{"stream":true}`},
			{"/embeddings", `{"model":"m","input":"text"}`}, // no model call, and a 404 here
		} {
			if with, without := fetch(ctx, recording, call[0], call[1]), fetch(ctx, plain, call[0], call[1]); with != without {
				t.Errorf("%s: with a recorder\n%s\nwithout\n%s", call[0], with, without)
			}
		}
	})
	if len(spans) != 4 {
		t.Errorf("%d spans, want one of each model call", len(spans))
	}
	// Outside of an attempt nothing is read nor kept.
	if got := fetch(t.Context(), recording, "/chat/completions", `{"model":"m"}`); !strings.Contains(got, "4!") {
		t.Error(got)
	}
}

// TestOwnProvider is a program with an OpenTelemetry provider of its own, whose
// spans are recorded through a bridge.
func TestOwnProvider(t *testing.T) {
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(tracer.Bridge()))
	client := openAI(engine(t), modelcall.Config{Provider: provider, TokenIDs: true})
	spans := record(t, func(ctx context.Context) {
		ctx, span := provider.Tracer("program").Start(ctx, "step")
		if _, err := client.Chat.Completions.New(ctx, ask("m")); err != nil {
			t.Error(err)
		}
		span.End()
	})
	// Outside of an attempt the provider's spans are its own business.
	_, span := provider.Tracer("program").Start(t.Context(), "elsewhere")
	span.End()
	if len(spans) != 2 || spans[1].Name != "step" || spans[1].ParentID != nil {
		t.Fatalf("spans %+v", spans)
	}
	if parent := spans[0].ParentID; parent == nil || *parent != spans[1].SpanID {
		t.Error("the call is not below its step")
	}
	triplets, err := adapter.TracerTriplets(spans, adapter.TracerOptions{})
	if err != nil || len(triplets) != 1 {
		t.Fatalf("%d triplets, %v", len(triplets), err)
	}
}
