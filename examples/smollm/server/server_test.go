package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"agentlightning/examples/smollm/engine"
	"agentlightning/examples/smollm/server"
)

// open serves the model, or skips the test where it is not.
func open(t *testing.T) (*httptest.Server, *engine.Engine) {
	t.Helper()
	folder := os.Getenv("AGL_SMOLLM")
	if folder == "" {
		t.Skip("AGL_SMOLLM is not set: run AGL_SMOLLM=$(bash setup.sh) go test ./...")
	}
	e, err := engine.Load(engine.Config{Folder: folder, Context: 256, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(server.Handler(e, "m"))
	t.Cleanup(func() {
		s.Close()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, e
}

type likelihood struct {
	Token   string
	Logprob float64
	Bytes   []int
	Top     []likelihood `json:"top_logprobs"`
}

// body is an answer or a chunk of one.
type body struct {
	ID, Object, Model string
	PromptTokenIDs    []int64 `json:"prompt_token_ids"`
	Choices           []struct {
		Message, Delta struct {
			Role    string
			Content *string
		}
		FinishReason *string `json:"finish_reason"`
		TokenIDs     []int64 `json:"token_ids"`
		Logprobs     *struct{ Content []likelihood }
	}
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
	}
	Error *struct{ Message, Type, Code string }
}

func post(t *testing.T, url string, request map[string]any) *http.Response {
	t.Helper()
	text, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.Post(url+"/v1/chat/completions", "application/json", bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func whole(t *testing.T, url string, request map[string]any) (int, body) {
	t.Helper()
	r := post(t, url, request)
	defer r.Body.Close()
	var b body
	if err := json.NewDecoder(r.Body).Decode(&b); err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, b
}

// chunks reads a stream to its end, which must be there.
func chunks(t *testing.T, url string, request map[string]any) []body {
	t.Helper()
	request["stream"] = true
	r := post(t, url, request)
	defer r.Body.Close()
	if got := r.Header.Get("Content-Type"); got != "text/event-stream" {
		text, _ := io.ReadAll(r.Body)
		t.Fatalf("the stream is %s: %s", got, text)
	}
	var out []body
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case data == "[DONE]":
			return out
		case ok:
			var b body
			if err := json.Unmarshal([]byte(data), &b); err != nil {
				t.Fatal(err)
			}
			out = append(out, b)
		}
	}
	t.Fatalf("the stream has no end: %v", lines.Err())
	return nil
}

func request(text string, more map[string]any) map[string]any {
	r := map[string]any{"model": "m", "messages": []any{map[string]any{"role": "user", "content": text}}, "temperature": 0, "max_tokens": 12}
	maps.Copy(r, more)
	return r
}

const question = "Name the three primary colors."

// A stream says the same as the whole answer, and both what the engine says.
func TestChat(t *testing.T) {
	s, e := open(t)
	details := map[string]any{"return_token_ids": true, "logprobs": true, "top_logprobs": 2}
	status, b := whole(t, s.URL, request(question, details))
	if status != http.StatusOK {
		t.Fatalf("%d: %+v", status, b.Error)
	}
	prompt, err := e.Prompt([]engine.Message{{Role: "user", Content: question}})
	if err != nil {
		t.Fatal(err)
	}
	var want []engine.Token
	finish, err := e.Generate(t.Context(), engine.Request{Prompt: prompt, MaxTokens: 12, Top: 2}, func(tok engine.Token) error {
		want = append(want, tok)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	c := b.Choices[0]
	text := ""
	for i, tok := range want {
		text += tok.Text
		l := c.Logprobs.Content[i]
		if c.TokenIDs[i] != tok.ID || l.Token != string(tok.Piece) || len(l.Bytes) != len(tok.Piece) || len(l.Top) != 2 || l.Top[0].Token != l.Token {
			t.Errorf("token %d is %d and %+v, want %+v", i, c.TokenIDs[i], l, tok)
		}
	}
	if !slices.Equal(b.PromptTokenIDs, prompt) || *c.Message.Content != text || *c.FinishReason != string(finish) || c.Message.Role != "assistant" {
		t.Errorf("answer is %+v, want %q and %s", b, text, finish)
	}
	if u := b.Usage; u.Prompt != len(prompt) || u.Completion != len(want) || u.Total != len(prompt)+len(want) {
		t.Errorf("usage is %+v", u)
	}

	details["stream_options"] = map[string]any{"include_usage": true}
	parts := chunks(t, s.URL, request(question, details))
	var ids []int64
	streamed, ended := "", ""
	for i, p := range parts {
		if p.Object != "chat.completion.chunk" || p.ID != parts[0].ID || (len(p.PromptTokenIDs) > 0) != (i == 0) {
			t.Errorf("chunk %d is %+v", i, p)
		}
		for _, c := range p.Choices {
			ids = append(ids, c.TokenIDs...)
			if c.Delta.Content != nil {
				streamed += *c.Delta.Content
				if len(c.Logprobs.Content) != len(c.TokenIDs) {
					t.Errorf("chunk %d has %d ids and %d log-probabilities", i, len(c.TokenIDs), len(c.Logprobs.Content))
				}
			}
			if c.FinishReason != nil {
				ended = *c.FinishReason
			}
		}
	}
	last := parts[len(parts)-1]
	if streamed != text || !slices.Equal(ids, c.TokenIDs) || ended != string(finish) || last.Usage == nil || *last.Usage != *b.Usage {
		t.Errorf("the stream says %q with %v and %q, usage %+v", streamed, ids, ended, last.Usage)
	}

	// Nobody asked for details.
	if _, b = whole(t, s.URL, request(question, nil)); b.PromptTokenIDs != nil || b.Choices[0].TokenIDs != nil || b.Choices[0].Logprobs != nil {
		t.Errorf("unasked: %+v", b)
	}
}

// No part of a stop text is streamed, although it begins within a token.
func TestStopInStream(t *testing.T) {
	s, _ := open(t)
	_, full := whole(t, s.URL, request(question, nil))
	text := *full.Choices[0].Message.Content
	stop := text[9:18]
	for _, stops := range []any{stop, []string{"never", stop}} {
		got := ""
		finish := ""
		for _, p := range chunks(t, s.URL, request(question, map[string]any{"stop": stops})) {
			if c := p.Choices[0]; c.Delta.Content != nil {
				got += *c.Delta.Content
			} else if c.FinishReason != nil {
				finish = *c.FinishReason
			}
		}
		_, b := whole(t, s.URL, request(question, map[string]any{"stop": stops}))
		if want, _, _ := strings.Cut(text, stop); got != want || *b.Choices[0].Message.Content != want || finish != "stop" {
			t.Errorf("stopped by %v: streamed %q (%s), whole %q, want %q", stops, got, finish, *b.Choices[0].Message.Content, want)
		}
	}
}

func TestSeedOfRequests(t *testing.T) {
	s, _ := open(t)
	say := func(seed any) string {
		_, b := whole(t, s.URL, request("Tell a story.", map[string]any{"temperature": 1.5, "seed": seed}))
		return *b.Choices[0].Message.Content
	}
	if a, b, c := say(1), say(1), say(2); a != b || a == c {
		t.Errorf("seed 1 says %q and %q, seed 2 %q", a, b, c)
	}
	if first, second := say(nil), say(nil); first == second {
		t.Error("without a seed the same is said twice")
	}
}

func TestRefusedRequests(t *testing.T) {
	s, _ := open(t)
	long := strings.Repeat("word ", 300)
	for name, tt := range map[string]struct {
		more   map[string]any
		status int
		want   string
		code   string
	}{
		"model":          {map[string]any{"model": "x"}, 404, `"x" is not served here`, "model_not_found"},
		"no messages":    {map[string]any{"messages": []any{}}, 400, "no messages", ""},
		"role":           {map[string]any{"messages": []any{map[string]any{"role": "tool", "content": "x"}}}, 400, "messages[0]: role", ""},
		"no content":     {map[string]any{"messages": []any{map[string]any{"role": "user"}}}, 400, "messages[0]: content", ""},
		"image":          {map[string]any{"messages": []any{map[string]any{"role": "user", "content": []any{map[string]any{"type": "image_url"}}}}}, 400, "reads text alone", ""},
		"zero byte":      {map[string]any{"messages": []any{map[string]any{"role": "user", "content": "a\x00"}}}, 400, "zero byte", ""},
		"too long":       {map[string]any{"messages": []any{map[string]any{"role": "user", "content": long}}}, 400, "do not fit 256", "context_length_exceeded"},
		"no room":        {map[string]any{"max_tokens": 250}, 400, "250 of answer do not fit 256", "context_length_exceeded"},
		"max_tokens":     {map[string]any{"max_tokens": 0}, 400, "max_tokens: 0", ""},
		"temperature":    {map[string]any{"temperature": -1}, 400, "temperature: -1", ""},
		"top_p":          {map[string]any{"top_p": 0}, 400, "top_p: 0", ""},
		"top_logprobs":   {map[string]any{"top_logprobs": 2}, 400, "top_logprobs: 2", ""},
		"stop":           {map[string]any{"stop": 3}, 400, "stop: ", ""},
		"empty stop":     {map[string]any{"stop": ""}, 400, "stop: ", ""},
		"n":              {map[string]any{"n": 2}, 400, "n: ", ""},
		"tools":          {map[string]any{"tools": []any{map[string]any{}}}, 400, "tools: ", ""},
		"penalty":        {map[string]any{"presence_penalty": 0.5}, 400, "presence_penalty: ", ""},
		"unknown member": {map[string]any{"guided_json": map[string]any{}}, 400, "guided_json: ", ""},
		"type":           {map[string]any{"max_tokens": "many"}, 400, "max_tokens", ""},
	} {
		t.Run(name, func(t *testing.T) {
			status, b := whole(t, s.URL, request("Hi", tt.more))
			if b.Error == nil || status != tt.status || !strings.Contains(b.Error.Message, tt.want) || b.Error.Code != tt.code {
				t.Errorf("%d %+v, want %d with %q", status, b.Error, tt.status, tt.want)
			}
		})
	}
	nothing := map[string]any{"n": 1, "tools": []any{}, "user": "u", "presence_penalty": 0, "response_format": map[string]any{"type": "text"}, "logit_bias": nil}
	if status, b := whole(t, s.URL, request("Hi", nothing)); status != http.StatusOK {
		t.Errorf("members that ask for nothing: %d %+v", status, b.Error)
	}
	r, err := http.Get(s.URL + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if text, _ := io.ReadAll(r.Body); !strings.Contains(string(text), `"id":"m"`) {
		t.Errorf("models are %s", text)
	}
}

// A server whose model is gone says so.
func TestClosedEngine(t *testing.T) {
	s, e := open(t)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if status, b := whole(t, s.URL, request("Hi", nil)); status != http.StatusServiceUnavailable || b.Error == nil || b.Error.Type != "server_error" {
		t.Errorf("%d %+v", status, b.Error)
	}
}

// A client that hangs up in the middle makes room for the next.
func TestHangUp(t *testing.T) {
	s, _ := open(t)
	for range 3 {
		text, err := json.Marshal(request("Write a long story.", map[string]any{"stream": true, "max_tokens": 200}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, hangUp := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/v1/chat/completions", bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := answer.Body.Read(make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		hangUp()
		answer.Body.Close()
	}
	if status, b := whole(t, s.URL, request("Hi", map[string]any{"max_tokens": 2})); status != http.StatusOK {
		t.Errorf("after clients that hung up: %d %+v", status, b.Error)
	}
}
