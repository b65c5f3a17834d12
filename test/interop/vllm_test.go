package interop

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	agl "agentlightning"
	"agentlightning/semconv"
)

// vllm is a model backend as vLLM is one: it speaks chat completions and nothing
// else, has a template that turns a conversation into tokens, streams them one
// by one, and says their ids to who asks. What it says is scripted; every id
// that it read or sampled is kept for the test.
type vllm struct {
	url string

	script func(conversation) reply
	// fragment is how many bytes of a stream are sent at once; 0 sends whole events.
	fragment int

	mu         sync.Mutex
	vocabulary map[string]int64
	done       []generation
	changed    chan struct{} // closed and replaced with each generation
}

// conversation is the part of a request that scripts look at.
type conversation struct {
	Model         string
	Messages      []turn
	Tools         json.RawMessage
	Stream        bool
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	ReturnTokenIDs bool `json:"return_token_ids"`
	Logprobs       any

	header http.Header
	body   string
}

type turn struct {
	Role       string
	Content    text
	Reasoning  string     `json:"reasoning_content"`
	ToolCalls  []toolCall `json:"tool_calls"`
	ToolCallID string     `json:"tool_call_id"`
}

type toolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// text is what a message says, in one piece or in parts. A picture is its address
// in angle brackets.
type text string

func (t *text) UnmarshalJSON(raw []byte) error {
	var parts []struct {
		Type, Text string
		ImageURL   struct{ URL string } `json:"image_url"`
	}
	if json.Unmarshal(raw, &parts) == nil {
		for _, p := range parts {
			switch p.Type {
			case "text":
				*t += text(p.Text)
			case "image_url":
				*t += text("<" + p.ImageURL.URL + ">")
			default:
				return fmt.Errorf("a part of type %q is not one that this model reads", p.Type)
			}
		}
		return nil
	}
	return json.Unmarshal(raw, (*string)(t))
}

// said is what the model was told last.
func (c conversation) said() string { return string(c.Messages[len(c.Messages)-1].Content) }

// reply is what the model answers.
type reply struct {
	text      string
	reasoning string // comes before the text
	calls     []toolCall
	finish    string // rather than stop or tool_calls

	status int // an error in place of the answer, with its body and header
	body   string
	header map[string]string

	// after is called when so many tokens were sent, with what ends once the
	// caller is gone. An error breaks the connection.
	after  func(context.Context) error
	tokens int
}

// called makes a tool call; arguments are text, as the model would write it.
func called(id, name, arguments string) toolCall {
	c := toolCall{ID: id, Type: "function"}
	c.Function.Name, c.Function.Arguments = name, arguments
	return c
}

// generation is a call that the backend served.
type generation struct {
	id       string
	asked    conversation
	said     reply
	prompt   []int64
	sampled  []int64   // all that was sent
	logprobs []float64 // of sampled
	finished bool      // the whole answer was sent
}

func newVLLM(t *testing.T, script func(conversation) reply) *vllm {
	t.Helper()
	v := &vllm{script: script, vocabulary: map[string]int64{}, changed: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", v.serve)
	mux.HandleFunc("POST /v1/embeddings", v.embed)
	mux.HandleFunc("POST /tokenize", v.tokenize)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		v.fail(w, http.StatusNotFound, fmt.Sprintf("%s %s is not served here", r.Method, r.URL.Path))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	v.url = server.URL + "/v1"
	return v
}

func (v *vllm) fail(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": message, "type": http.StatusText(status), "param": nil, "code": status}})
}

// until waits for so many generations to have ended, and returns them in that order.
func (v *vllm) until(t *testing.T, n int) []generation {
	t.Helper()
	limit := time.After(30 * time.Second)
	for {
		v.mu.Lock()
		got, changed := slices.Clone(v.done), v.changed
		v.mu.Unlock()
		if len(got) >= n {
			return got
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("the model ended %d calls, want %d", len(got), n)
		}
	}
}

// asked returns the requests for a model name.
func (v *vllm) asked(name string) []conversation {
	v.mu.Lock()
	defer v.mu.Unlock()
	var asked []conversation
	for _, g := range v.done {
		if g.asked.Model == name {
			asked = append(asked, g.asked)
		}
	}
	return asked
}

// triplets returns what adapters must make of those spans that have the ids of
// answers, in their order and without rewards.
func (v *vllm) triplets(t *testing.T, spans []agl.Span) []triplet {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []triplet
	seen := map[string]bool{}
	for _, span := range spans {
		id, ok := span.Attributes.String(semconv.GenAIResponseID)
		if !ok || seen[id] {
			continue
		}
		seen[id] = true
		i := slices.IndexFunc(v.done, func(g generation) bool { return g.id == id })
		if i < 0 {
			t.Fatalf("span %s is of the answer %s, which the model did not give", span.Name, id)
		}
		out = append(out, v.done[i].triplet())
	}
	return out
}

func (g *generation) triplet() triplet {
	var t triplet
	t.Prompt.TokenIDs, t.Response.TokenIDs = g.prompt, g.sampled
	return t
}

// echo is a script.
func echo(c conversation) reply { return reply{text: "It is " + c.said()} }

func (v *vllm) serve(w http.ResponseWriter, r *http.Request) {
	c := conversation{header: r.Header.Clone()}
	raw, err := io.ReadAll(r.Body)
	if err == nil {
		c.body = string(raw)
		err = json.Unmarshal(raw, &c)
	}
	if err == nil && len(c.Messages) == 0 {
		err = errors.New("messages is empty")
	}
	if err != nil {
		v.fail(w, http.StatusBadRequest, err.Error())
		return
	}
	g := &generation{asked: c, said: v.script(c)}
	g.prompt = v.read(c)
	defer func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.done = append(v.done, *g)
		close(v.changed)
		v.changed = make(chan struct{})
	}()
	if g.said.status != 0 {
		for key, value := range g.said.header {
			w.Header().Set(key, value)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(g.said.status)
		_, _ = io.WriteString(w, g.said.body)
		return
	}
	g.id = "chatcmpl-" + agl.NewSpanID()
	if c.Stream {
		v.stream(w, r, g)
		return
	}
	v.whole(w, r, g)
}

// tokenize counts what a conversation would be to the model.
func (v *vllm) tokenize(w http.ResponseWriter, r *http.Request) {
	var c conversation
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil || len(c.Messages) == 0 {
		v.fail(w, http.StatusBadRequest, fmt.Sprintf("no messages: %v", err))
		return
	}
	ids := v.read(c)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"count": len(ids), "max_model_len": 4096, "tokens": ids, "token_strs": nil})
}

// embed places texts by their length.
func (v *vllm) embed(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Model          string
		Input          any
		EncodingFormat string `json:"encoding_format"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		v.fail(w, http.StatusBadRequest, err.Error())
		return
	}
	texts, many := asked.Input.([]any)
	if !many {
		texts = []any{asked.Input}
	}
	var data []any
	for i, text := range texts {
		vector := embedding(fmt.Sprint(text))
		entry := map[string]any{"object": "embedding", "index": i, "embedding": vector}
		if asked.EncodingFormat == "base64" {
			var raw []byte
			for _, x := range vector {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
			}
			entry["embedding"] = raw // which JSON has in base64
		}
		data = append(data, entry)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"object": "list", "model": asked.Model, "data": data, "usage": map[string]any{"prompt_tokens": len(texts), "total_tokens": len(texts)},
	})
}

func embedding(text string) []float32 { return []float32{float32(len(text)), -0.5} }

// pieceLength is how many bytes a token has, so that one may end within a
// character.
const pieceLength = 4

// ids returns the tokens of a text, with new ids for those never seen.
func (v *vllm) ids(text string) []int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	var ids []int64
	for piece := range slices.Chunk([]byte(text), pieceLength) {
		ids = append(ids, v.id(string(piece)))
	}
	return ids
}

func (v *vllm) special(name string) int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.id("<|" + name + "|>")
}

func (v *vllm) id(piece string) int64 {
	if _, known := v.vocabulary[piece]; !known {
		v.vocabulary[piece] = int64(100 + len(v.vocabulary))
	}
	return v.vocabulary[piece]
}

// read is the chat template. Tokens never span two messages, so that a
// conversation that goes on begins with the tokens of what it was.
func (v *vllm) read(c conversation) []int64 {
	var ids []int64
	if len(c.Tools) > 0 {
		ids = append(append(ids, v.special("tools")), v.ids(string(c.Tools))...)
	}
	for _, m := range c.Messages {
		ids = append(ids, v.special(m.Role))
		for _, t := range v.write(reply{reasoning: m.Reasoning, text: string(m.Content), calls: m.ToolCalls}) {
			ids = append(ids, t.id)
		}
	}
	return append(ids, v.special("assistant"))
}

// token is a step of an answer: an id, and what it adds to the message.
type token struct {
	id    int64
	text  string
	delta map[string]any
}

// write returns the tokens of an answer. Characters come with the token that
// completes them; what marks a tool call is not part of the message, nor is the
// end.
func (v *vllm) write(r reply) []token {
	var out []token
	add := func(id int64, text string, delta map[string]any) { out = append(out, token{id, text, delta}) }
	say := func(text string, delta func(string) map[string]any) {
		held := ""
		for i, id := range v.ids(text) {
			piece := text[i*pieceLength : min((i+1)*pieceLength, len(text))]
			whole := held + piece
			end := len(whole)
			for end > 0 && !utf8.ValidString(whole[:end]) {
				end--
			}
			held = whole[end:]
			if end == 0 {
				add(id, piece, map[string]any{})
				continue
			}
			add(id, piece, delta(whole[:end]))
		}
	}
	say(r.reasoning, func(s string) map[string]any { return map[string]any{"reasoning_content": s} })
	if r.reasoning != "" {
		add(v.special("answer"), "", map[string]any{})
	}
	say(r.text, func(s string) map[string]any { return map[string]any{"content": s} })
	for i, c := range r.calls {
		begin := func(function map[string]any) map[string]any {
			return map[string]any{"tool_calls": []any{map[string]any{"index": i, "id": c.ID, "type": "function", "function": function}}}
		}
		add(v.special("call"), "", begin(map[string]any{"name": c.Function.Name, "arguments": ""}))
		say(c.Function.Name, func(string) map[string]any { return map[string]any{} })
		add(v.special("with"), "", map[string]any{})
		say(c.Function.Arguments, func(s string) map[string]any {
			return map[string]any{"tool_calls": []any{map[string]any{"index": i, "function": map[string]any{"arguments": s}}}}
		})
	}
	add(v.special("end"), "", map[string]any{})
	return out
}

func logprob(id int64) float64 { return -float64(id%16) / 16 }

// sample notes that a token was sent, and returns what vLLM says of it.
func (g *generation) sample(t token) map[string]any {
	g.sampled = append(g.sampled, t.id)
	g.logprobs = append(g.logprobs, logprob(t.id))
	return map[string]any{"token": t.text, "logprob": logprob(t.id), "bytes": []byte(nil), "top_logprobs": []any{}}
}

func (g *generation) usage(sampled int) map[string]any {
	return map[string]any{"prompt_tokens": len(g.prompt), "completion_tokens": sampled, "total_tokens": len(g.prompt) + sampled, "prompt_tokens_details": nil}
}

func (g *generation) finishReason() string {
	switch {
	case g.said.finish != "":
		return g.said.finish
	case len(g.said.calls) > 0:
		return "tool_calls"
	}
	return "stop"
}

func (v *vllm) whole(w http.ResponseWriter, r *http.Request, g *generation) {
	var content []any
	for i, t := range v.write(g.said) {
		if g.said.after != nil && i == g.said.tokens && g.said.after(r.Context()) != nil {
			panic(http.ErrAbortHandler)
		}
		content = append(content, g.sample(t))
	}
	message := map[string]any{"role": "assistant", "content": g.said.text, "refusal": nil, "tool_calls": g.said.calls}
	if g.said.text == "" && len(g.said.calls) > 0 {
		message["content"] = nil
	}
	if g.said.calls == nil {
		message["tool_calls"] = []any{}
	}
	if g.said.reasoning != "" {
		message["reasoning_content"] = g.said.reasoning
	}
	choice := map[string]any{"index": 0, "message": message, "logprobs": nil, "finish_reason": g.finishReason(), "stop_reason": nil}
	answer := map[string]any{
		"id": g.id, "object": "chat.completion", "created": 1764000000, "model": g.asked.Model, "choices": []any{choice},
		"service_tier": nil, "system_fingerprint": nil, "usage": g.usage(len(g.sampled)), "prompt_logprobs": nil, "kv_transfer_params": nil,
	}
	if g.asked.ReturnTokenIDs {
		answer["prompt_token_ids"], choice["token_ids"] = g.prompt, g.sampled
	}
	if g.asked.wantsLogprobs() {
		choice["logprobs"] = map[string]any{"content": content}
	}
	w.Header().Set("Content-Type", "application/json")
	g.finished = json.NewEncoder(w).Encode(answer) == nil
}

func (c *conversation) wantsLogprobs() bool { return c.Logprobs == true }

func (v *vllm) stream(w http.ResponseWriter, r *http.Request, g *generation) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	send := func(event string) {
		for rest := []byte("data: " + event + "\n\n"); len(rest) > 0; {
			n := len(rest)
			if v.fragment > 0 {
				n = min(n, v.fragment)
			}
			_, _ = w.Write(rest[:n]) // a caller that is gone is seen by after
			_ = http.NewResponseController(w).Flush()
			rest = rest[n:]
		}
	}
	chunk := func(members map[string]any) {
		members["id"], members["object"], members["created"], members["model"] = g.id, "chat.completion.chunk", 1764000000, g.asked.Model
		text, err := json.Marshal(members)
		if err != nil {
			panic(err)
		}
		send(string(text))
	}
	first := map[string]any{"choices": []any{map[string]any{"index": 0, "delta": map[string]any{"role": "assistant", "content": ""}, "logprobs": nil, "finish_reason": nil}}}
	if g.asked.ReturnTokenIDs {
		first["prompt_token_ids"] = g.prompt
	}
	chunk(first)
	tokens := v.write(g.said)
	for i, t := range tokens {
		if g.said.after != nil && i == g.said.tokens && g.said.after(r.Context()) != nil {
			panic(http.ErrAbortHandler)
		}
		choice := map[string]any{"index": 0, "delta": t.delta, "logprobs": nil, "finish_reason": nil}
		sampled := g.sample(t)
		if g.asked.ReturnTokenIDs {
			choice["token_ids"] = []int64{t.id}
		}
		if g.asked.wantsLogprobs() {
			choice["logprobs"] = map[string]any{"content": []any{sampled}}
		}
		if i == len(tokens)-1 {
			choice["finish_reason"], choice["stop_reason"] = g.finishReason(), nil
		}
		chunk(map[string]any{"choices": []any{choice}})
	}
	if g.asked.StreamOptions.IncludeUsage {
		chunk(map[string]any{"choices": []any{}, "usage": g.usage(len(g.sampled))})
	}
	send("[DONE]")
	g.finished = true
}
