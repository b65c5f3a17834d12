package openai_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3/option"

	"agentlightning/algorithm/prompt"
	"agentlightning/algorithm/prompt/openai"
)

func serve(t *testing.T, answer string, saw *string) *openai.Completer {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		*saw = r.URL.Path + " " + string(body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(s.Close)
	return openai.New(openai.Price{Input: 2, Output: 10}, option.WithBaseURL(s.URL+"/v1"), option.WithAPIKey("none"), option.WithMaxRetries(0))
}

func TestComplete(t *testing.T) {
	t.Parallel()
	var saw string
	c := serve(t, `{"choices":[{"finish_reason":"stop","message":{"content":"better"}}],"usage":{"prompt_tokens":500000,"completion_tokens":100000}}`, &saw)
	got, err := c.Complete(t.Context(), prompt.Request{
		Model: "m", Temperature: 0.5,
		Messages: []prompt.Message{{Role: prompt.RoleSystem, Content: "s"}, {Role: prompt.RoleUser, Content: "u"}},
	})
	want := prompt.Answer{Text: "better", InputTokens: 500000, OutputTokens: 100000, Cost: 2}
	if err != nil || got != want {
		t.Errorf("Complete() = %+v, %v, want %+v", got, err, want)
	}
	path, body, _ := strings.Cut(saw, " ")
	var sent struct {
		Model       string           `json:"model"`
		Temperature float64          `json:"temperature"`
		Messages    []prompt.Message `json:"messages"`
	}
	if err := json.Unmarshal([]byte(body), &sent); err != nil {
		t.Fatal(err)
	}
	if path != "/v1/chat/completions" || sent.Model != "m" || sent.Temperature != 0.5 || len(sent.Messages) != 2 ||
		sent.Messages[0] != (prompt.Message{Role: "system", Content: "s"}) || sent.Messages[1] != (prompt.Message{Role: "user", Content: "u"}) {
		t.Errorf("sent %s", saw)
	}
}

func TestCompleteRefuses(t *testing.T) {
	t.Parallel()
	for want, answer := range map[string]string{
		"no choice":      `{"choices":[]}`,
		`"length"`:       `{"choices":[{"finish_reason":"length","message":{"content":"half a pro"}}]}`,
		"content_filter": `{"choices":[{"finish_reason":"content_filter","message":{"content":""}}]}`,
	} {
		var saw string
		_, err := serve(t, answer, &saw).Complete(t.Context(), prompt.Request{Model: "m", Messages: []prompt.Message{{Role: prompt.RoleUser, Content: "u"}}})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"m"`) {
			t.Errorf("Complete(%s) = %v, want %s", answer, err, want)
		}
	}
	var saw string
	if _, err := serve(t, "{}", &saw).Complete(t.Context(), prompt.Request{Messages: []prompt.Message{{Role: "critic"}}}); err == nil || saw != "" {
		t.Errorf("Complete(role critic) = %v, sent %q", err, saw)
	}
}
