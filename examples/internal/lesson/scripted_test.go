package lesson_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"agentlightning/examples/internal/lesson"
)

// answered is what a script sends.
type answered struct {
	ID      string  `json:"id"`
	Prompt  []int32 `json:"prompt_token_ids"`
	Choices []struct {
		Message  json.RawMessage `json:"message"`
		TokenIDs []int32         `json:"token_ids"`
		Finish   string          `json:"finish_reason"`
	} `json:"choices"`
	Usage struct {
		Prompt int `json:"prompt_tokens"`
	} `json:"usage"`
	Error struct {
		Message string `json:"message"`
	} `json:"error"`
}

// The prompt of the next call begins with all tokens of the one before, also after
// the call of a tool: calls of a script can be joined to one row.
func TestScript(t *testing.T) {
	t.Parallel()
	script := &lesson.Script{Name: "s", ImageTokens: func(string) int { return 3 }, Answer: func(c lesson.Chat) (lesson.Said, error) {
		if last := &c.Messages[len(c.Messages)-1]; last.Role == "tool" {
			return lesson.Said{Text: "It is " + last.Text() + " & more."}, nil
		}
		return lesson.Said{Text: "Let me see.", Tool: "look", Arguments: []lesson.Argument{{Name: "at", Value: "a < b"}, {Name: "n", Value: 2}}}, nil
	}}
	served, err := script.Serve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := served.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	}()
	url := served.Model.Endpoint + "/chat/completions"
	asked := `{"role":"user","content":[{"type":"text","text":"What?"},{"type":"image_url","image_url":{"url":"x"}}]}`
	first := post(t, url, `{"return_token_ids":true,"messages":[`+asked+`]}`)
	if len(first.Choices) != 1 || first.Choices[0].Finish != "tool_calls" || first.Usage.Prompt != len(first.Prompt) {
		t.Fatalf("the first answer is %+v", first)
	}
	said := first.Choices[0].Message
	if !strings.Contains(string(said), `"arguments":"{\"at\": \"a \u003c b\", \"n\": 2}"`) {
		t.Errorf("the first message is %s", said)
	}
	second := post(t, url, `{"return_token_ids":true,"messages":[`+asked+`,`+string(said)+`,{"role":"tool","tool_call_id":"call_1","content":"red"}]}`)
	if history := slices.Concat(first.Prompt, first.Choices[0].TokenIDs); len(second.Prompt) <= len(history) || !slices.Equal(second.Prompt[:len(history)], history) {
		t.Errorf("the second prompt %v does not begin with %v", second.Prompt, history)
	}
	if !strings.Contains(string(second.Choices[0].Message), `It is red`) || second.Choices[0].Finish != "stop" || second.ID == first.ID {
		t.Errorf("the second answer is %+v", second)
	}
	if plain := post(t, url, `{"messages":[`+asked+`]}`); plain.Prompt != nil || plain.Choices[0].TokenIDs != nil {
		t.Errorf("tokens that nobody asked for: %+v", plain)
	}
	for body, want := range map[string]string{`{"stream":true,"messages":[]}`: "answers as a whole", `{"messages":1}`: "cannot unmarshal"} {
		if got := post(t, url, body); !strings.Contains(got.Error.Message, want) {
			t.Errorf("%s is answered %+v, want an error with %q", body, got, want)
		}
	}
}

func post(t *testing.T, url, body string) answered {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var a answered
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&a); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if failed := a.Error.Message != ""; failed != (response.StatusCode == http.StatusBadRequest) {
		t.Errorf("%s is answered with %s", body, response.Status)
	}
	return a
}
