package interop

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// chat is a request that a model got.
type chat struct {
	Model    string
	Messages []struct{ Role, Content string }
	body     string
}

// last is what the model was told last.
func (c chat) last() string { return c.Messages[len(c.Messages)-1].Content }

// model is an OpenAI-compatible server that answers by script, with the ids of
// tokens as an engine gives them.
type model struct {
	url string

	mu   sync.Mutex
	seen []chat
}

func newModel(t *testing.T, script func(chat) string) *model {
	t.Helper()
	m := &model{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var raw json.RawMessage
		var c chat
		if err := json.NewDecoder(r.Body).Decode(&raw); err != nil || json.Unmarshal(raw, &c) != nil || len(c.Messages) == 0 ||
			r.URL.Path != "/v1/chat/completions" {
			http.Error(w, "the script knows only chats", http.StatusBadRequest)
			return
		}
		c.body = string(raw)
		m.mu.Lock()
		m.seen = append(m.seen, c)
		number := len(m.seen)
		m.mu.Unlock()
		content, _ := json.Marshal(script(c))
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"id":"chatcmpl-%d","object":"chat.completion","created":5,"model":%q,"choices":[{"index":0,`+
			`"message":{"role":"assistant","content":%s},"finish_reason":"stop","token_ids":[7,8],"logprobs":{"content":[`+
			`{"token":"a","logprob":-0.5,"top_logprobs":[]},{"token":"b","logprob":-0.25,"top_logprobs":[]}]}}],`+
			`"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5},"prompt_token_ids":[1,2,3]}`, number, c.Model, content)
	}))
	t.Cleanup(server.Close)
	m.url = server.URL + "/v1"
	return m
}

// asked returns the requests for a model name.
func (m *model) asked(name string) []chat {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []chat
	for _, c := range m.seen {
		if c.Model == name {
			out = append(out, c)
		}
	}
	return out
}
