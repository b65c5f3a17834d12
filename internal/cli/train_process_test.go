package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// wordAgent is an agent as people write one: it asks its model with its prompt
// and is rewarded when the model says that the prompt has the word of the task.
// In the role letters the model is one in training, and half of the reward is for
// an answer that is a letter of the first half, half for the prompt.
func wordAgent(role string) error {
	var task struct {
		Word string `json:"word"`
		Fail bool   `json:"fail"`
	}
	if err := json.Unmarshal([]byte(os.Getenv("AGL_TASK")), &task); err != nil {
		return err
	}
	if task.Fail {
		return fmt.Errorf("there is no tool named %q", task.Word)
	}
	prompt := os.Getenv("AGL_PROMPT")
	req := map[string]any{"model": os.Getenv("AGL_MODEL"), "messages": []map[string]string{
		{"role": "system", "content": prompt}, {"role": "user", "content": "word " + task.Word},
	}}
	if role == "letters" {
		req["messages"] = []map[string]string{{"role": "user", "content": task.Word}}
		req["max_tokens"] = 1
	}
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	res, err := http.Post(os.Getenv("OPENAI_BASE_URL")+"/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	var answer struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK || len(answer.Choices) != 1 {
		return fmt.Errorf("the model answered %d with %d choices", res.StatusCode, len(answer.Choices))
	}
	said := answer.Choices[0].Message.Content
	reward := 0.0
	switch {
	case role != "letters" && said == "yes":
		reward = 1
	case role == "letters" && policyAnswer(prompt, "word "+task.Word) == "yes":
		reward = 0.5
	default:
		fmt.Printf("the prompt lacks <%s>\n", task.Word)
	}
	if role == "letters" && len(said) > 0 && said[0] < 128 {
		reward += 0.5
	}
	fmt.Println(reward)
	return nil
}

// wordModels is a backend with two models that are scripts: policy looks for a
// word in the prompt, writer puts words into it that the feedback names. What
// they say depends on nothing but what they are asked.
type wordModels struct {
	*httptest.Server
	before func(call int) // called while a call is in flight

	mu    sync.Mutex
	calls map[string]int // by what was asked
	total int
}

func newWordModels(t *testing.T) *wordModels {
	t.Helper()
	m := &wordModels{calls: map[string]int{}}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

func (m *wordModels) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		_, _ = io.WriteString(w, `{"data":[{"id":"policy"},{"id":"writer"}]}`)
		return
	}
	var req struct {
		Model    string
		Messages []struct{ Role, Content string }
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	key := req.Model
	for _, message := range req.Messages {
		key += "\x00" + message.Content
	}
	m.mu.Lock()
	m.calls[key]++
	m.total++
	n := m.total
	m.mu.Unlock()
	if m.before != nil {
		m.before(n)
	}
	answer := policyAnswer(req.Messages[0].Content, req.Messages[len(req.Messages)-1].Content)
	if req.Model == "writer" {
		answer = writerAnswer(req.Messages[0].Content)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"id": "c", "object": "chat.completion", "model": req.Model,
		"choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": answer}}},
		"usage":   map[string]int{"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
	})
}

// counts returns how often was asked, and how often what had been asked before.
func (m *wordModels) counts() (total int, calls map[string]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total, maps.Clone(m.calls)
}

func policyAnswer(prompt, task string) string {
	word, _ := strings.CutPrefix(task, "word ")
	if slices.Contains(strings.Fields(prompt), word) {
		return "yes"
	}
	return "no"
}

var (
	lacking = regexp.MustCompile(`the prompt lacks <(\w+)>`)
	between = regexp.MustCompile(`(?s)<prompt>\n(.*?)\n</prompt>`)
)

// writerAnswer adds one of the words that the feedback names, forgets one now and
// then, and at times writes nothing of use.
func writerAnswer(request string) string {
	h := fnv.New32a()
	_, _ = io.WriteString(h, request)
	luck := h.Sum32()
	prompt := between.FindStringSubmatch(request)
	if prompt == nil { // not asked by gepa
		return "Say yes to these words one"
	}
	words := strings.Fields(prompt[1])
	var missing []string
	for _, found := range lacking.FindAllStringSubmatch(request, -1) {
		if !slices.Contains(missing, found[1]) {
			missing = append(missing, found[1])
		}
	}
	if luck%7 == 0 {
		return "I would rather not."
	}
	if luck%3 == 0 && len(words) > 4 && !strings.Contains(words[3], "{") {
		words = slices.Delete(words, 3, 4)
	}
	if len(missing) > 0 {
		words = append(words, missing[int(luck/7)%len(missing)])
	} else {
		words = append(words, fmt.Sprintf("filler%d", luck%5))
	}
	return "Better:\n<prompt>" + strings.Join(words, " ") + "</prompt>"
}
