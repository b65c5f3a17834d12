package lesson

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	agl "agentlightning"
)

// Chat is what a script is asked.
type Chat struct {
	Messages []ChatMessage `json:"messages"`
	Stream   bool          `json:"stream"`
	TokenIDs bool          `json:"return_token_ids"`
}

// ChatMessage is one message of it.
type ChatMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCalls  []ChatTool      `json:"tool_calls"`
	ToolCallID string          `json:"tool_call_id"`
}

// ChatTool is a call of a tool.
type ChatTool struct {
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// parts are the texts of a message, and the addresses of its images.
func (m *ChatMessage) parts() (text string, images []string) {
	if json.Unmarshal(m.Content, &text) == nil {
		return text, nil
	}
	var parts []struct {
		Text  string `json:"text"`
		Image struct {
			URL string `json:"url"`
		} `json:"image_url"`
	}
	if json.Unmarshal(m.Content, &parts) != nil {
		return "", nil
	}
	var texts strings.Builder
	for _, p := range parts {
		texts.WriteString(p.Text)
		if p.Image.URL != "" {
			images = append(images, p.Image.URL)
		}
	}
	return texts.String(), images
}

// Text is what the message says.
func (m *ChatMessage) Text() string {
	text, _ := m.parts()
	return text
}

// Images are the addresses of the images in the message.
func (m *ChatMessage) Images() []string {
	_, images := m.parts()
	return images
}

// System is what the model was told first.
func (c *Chat) System() string {
	var told strings.Builder
	for i := range c.Messages {
		if c.Messages[i].Role == "system" {
			told.WriteString(c.Messages[i].Text())
		}
	}
	return told.String()
}

// Said is the answer of a script: a text, the call of a tool, or both. Arguments
// are written as JSON in the spelling of Python, which most models use.
type Said struct {
	Text      string
	Tool      string
	Arguments []Argument
}

// Argument is one argument of a tool. The value is a text or a number.
type Argument struct {
	Name  string
	Value any
}

// Script is a model that follows a script, behind OpenAI's API. Its tokens are the
// bytes of what is said, and some more for what stands between.
type Script struct {
	Name   string
	Answer func(Chat) (Said, error)
	// ImageTokens is what an image costs; nil is one token each.
	ImageTokens func(url string) int

	answers atomic.Int64
}

// The tokens that are no bytes.
const (
	tokenEnd int32 = 256 + iota
	tokenCall
	tokenImage
	tokenAssistant
	tokenRole // of everybody else; the name follows
)

// call is the call of the tool as the API writes it, nil when there is none.
func (s Said) call(number int) ([]ChatTool, error) {
	if s.Tool == "" {
		return nil, nil
	}
	members := make([]string, len(s.Arguments))
	for i, a := range s.Arguments {
		name, err := spelled(a.Name)
		if err != nil {
			return nil, err
		}
		value, err := spelled(a.Value)
		if err != nil {
			return nil, err
		}
		members[i] = name + ": " + value
	}
	call := ChatTool{ID: fmt.Sprintf("call_%d", number)}
	call.Function.Name, call.Function.Arguments = s.Tool, "{"+strings.Join(members, ", ")+"}"
	return []ChatTool{call}, nil
}

// spelled is a value as JSON, without the care that Go takes of HTML.
func spelled(value any) (string, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return strings.TrimSuffix(out.String(), "\n"), err
}

// tokens are those of one message: what the model says, or would have said.
func (s *Script) tokens(ids []int32, text string, calls []ChatTool) []int32 {
	for _, b := range []byte(text) {
		ids = append(ids, int32(b))
	}
	for _, c := range calls {
		ids = append(ids, tokenCall)
		for _, b := range []byte(c.Function.Name + " " + c.Function.Arguments) {
			ids = append(ids, int32(b))
		}
	}
	return append(ids, tokenEnd)
}

// prompt are the tokens that the model reads.
func (s *Script) prompt(in *Chat) []int32 {
	var ids []int32
	for i := range in.Messages {
		m := &in.Messages[i]
		text, images := m.parts()
		if m.Role == "assistant" {
			ids = append(ids, tokenAssistant)
		} else {
			ids = append(ids, tokenRole)
			text = m.Role + "\n" + text
		}
		for _, url := range images {
			n := 1
			if s.ImageTokens != nil {
				n = s.ImageTokens(url)
			}
			for range n {
				ids = append(ids, tokenImage)
			}
		}
		ids = s.tokens(ids, text, m.ToolCalls)
	}
	return append(ids, tokenAssistant)
}

// maxRequest bounds what a script reads, in bytes.
const maxRequest = 8 << 20

func (s *Script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in Chat
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(&in)
	if err == nil && in.Stream {
		err = errors.New("stream: this model answers as a whole")
	}
	var answer map[string]any
	if err == nil {
		answer, err = s.complete(&in)
	}
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		answer = map[string]any{"error": map[string]any{"message": err.Error(), "type": "invalid_request_error"}}
	}
	// A client that has gone away needs no answer.
	_ = json.NewEncoder(w).Encode(answer)
}

func (s *Script) complete(in *Chat) (map[string]any, error) {
	said, err := s.Answer(*in)
	if err != nil {
		return nil, err
	}
	number := 1
	for i := range in.Messages {
		number += len(in.Messages[i].ToolCalls)
	}
	calls, err := said.call(number)
	if err != nil {
		return nil, err
	}
	message, finish := map[string]any{"role": "assistant", "content": said.Text}, "stop"
	if calls != nil {
		listed := make([]any, len(calls))
		for i, c := range calls {
			listed[i] = map[string]any{"id": c.ID, "type": "function", "function": c.Function}
		}
		message["tool_calls"], finish = listed, "tool_calls"
	}
	prompt, sampled := s.prompt(in), s.tokens(nil, said.Text, calls)
	choice := map[string]any{"index": 0, "message": message, "finish_reason": finish}
	out := map[string]any{
		"id": fmt.Sprintf("chatcmpl-%d", s.answers.Add(1)), "object": "chat.completion", "created": 0, "model": s.Name, "choices": []any{choice},
		"usage": map[string]any{"prompt_tokens": len(prompt), "completion_tokens": len(sampled), "total_tokens": len(prompt) + len(sampled)},
	}
	if in.TokenIDs {
		// A script says what it says with certainty: the logarithm of 1 is 0.
		certain := make([]any, len(sampled))
		for i := range certain {
			certain[i] = map[string]any{"token": "", "logprob": 0.0, "top_logprobs": []any{}}
		}
		choice["token_ids"], choice["logprobs"], out["prompt_token_ids"] = sampled, map[string]any{"content": certain}, prompt
	}
	return out, nil
}

// Served is a script that is served.
type Served struct {
	// Model is what the proxy is told.
	Model agl.Model

	server *http.Server
	ended  chan error
}

// Serve serves the script on a free loopback port.
func (s *Script) Serve(ctx context.Context) (*Served, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve the script: %w", err)
	}
	v := &Served{
		Model:  agl.Model{Name: s.Name, Endpoint: "http://" + listener.Addr().String() + "/v1"},
		server: &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}, ended: make(chan error, 1),
	}
	go func() { v.ended <- v.server.Serve(listener) }()
	return v, nil
}

// Close stops serving.
func (v *Served) Close() error {
	err := v.server.Close()
	if ended := <-v.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}
