package rescore

import (
	"encoding/json"
	"fmt"
	"strings"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/algorithm"
	"agentlightning/algorithm/prompt"
)

// Attempt is what a scorer sees of a rollout: its last attempt. Its JSON is what
// programs and services are given.
type Attempt struct {
	RolloutID string          `json:"rollout_id"`
	AttemptID string          `json:"attempt_id"`
	Group     string          `json:"group"` // see [algorithm.GroupOf]
	Status    string          `json:"status"`
	Mode      string          `json:"mode"`
	Input     json.RawMessage `json:"input"`
	Metadata  json.RawMessage `json:"metadata"`
	// Reward is the final reward of the base set, nil when there is none, and
	// Rewards are its dimensions by name.
	Reward  *float64           `json:"reward"`
	Rewards map[string]float64 `json:"rewards"`
	// Messages are the last conversation of the attempt, in OpenAI's shapes, and
	// Answer is the text of its last message.
	Messages []json.RawMessage `json:"messages"`
	Answer   string            `json:"answer"`
	// Feedback is what the spans say in words: errors, exceptions, messages.
	Feedback []string `json:"feedback"`
	Calls    []Call   `json:"calls"`
	Seconds  float64  `json:"seconds"` // from the start of the attempt to its end
}

// Call is one model call of an attempt.
type Call struct {
	SpanID         string `json:"span_id"`
	Agent          string `json:"agent"`
	Model          string `json:"model"`
	FinishReason   string `json:"finish_reason"`
	PromptTokens   int    `json:"prompt_tokens"`
	ResponseTokens int    `json:"response_tokens"`
	Problem        string `json:"problem"` // why it is left out of training; empty when it is not
}

// Read makes the view of an attempt of its spans, with the rewards of a base set.
// A reward of that set that cannot be read counts as none.
func Read(r *agl.AttemptedRollout, spans []agl.Span, base string) (Attempt, error) {
	a := Attempt{
		RolloutID: r.RolloutID, Group: algorithm.GroupOf(&r.Rollout), Status: string(r.Status), Mode: string(r.Mode),
		Input: orNull(r.Input), Metadata: orNull(r.Metadata),
		Rewards: map[string]float64{}, Messages: []json.RawMessage{}, Feedback: []string{}, Calls: []Call{},
	}
	if r.Attempt != nil {
		a.AttemptID = r.Attempt.AttemptID
		if r.Attempt.EndTime != nil {
			a.Seconds = *r.Attempt.EndTime - r.Attempt.StartTime
		}
	}
	spans = agl.InRewardSet(spans, base)
	for i := range spans {
		value, err := agl.RewardValue(&spans[i])
		if err != nil || value == nil {
			continue
		}
		a.Reward = value
		clear(a.Rewards)
		dimensions, err := agl.Rewards(&spans[i])
		if err != nil {
			continue
		}
		for _, d := range dimensions {
			a.Rewards[d.Name] = d.Value
		}
	}
	conversations, err := adapter.Conversations(spans)
	if err != nil {
		return a, fmt.Errorf("conversation: %w", err)
	}
	if n := len(conversations); n > 0 {
		a.Messages = conversations[n-1].Messages
		a.Answer = textOf(a.Messages[len(a.Messages)-1])
	}
	a.Feedback = append(a.Feedback, prompt.Feedback(spans)...)
	calls, _ := adapter.Calls(spans) // its error is that of a reward
	for i := range calls {
		c := &calls[i]
		a.Calls = append(a.Calls, Call{
			c.SpanID, c.Agent, c.Model, c.FinishReason, len(c.PromptIDs), len(c.ResponseIDs), c.Problem,
		})
	}
	return a, nil
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

// textOf returns the text of a message; of one in parts, that of its text parts.
func textOf(message json.RawMessage) string {
	var m struct {
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(message, &m) != nil {
		return ""
	}
	var text string
	if json.Unmarshal(m.Content, &text) == nil {
		return text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(m.Content, &parts) != nil {
		return ""
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// Transcript is a conversation as people read it, at most limit bytes long: of a
// longer one the middle is left out. 0 is no limit.
func (a *Attempt) Transcript(limit int) string {
	var b strings.Builder
	for _, raw := range a.Messages {
		var m struct {
			Role      string `json:"role"`
			ToolCalls []struct {
				Function struct {
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
				} `json:"function"`
			} `json:"tool_calls"`
		}
		if json.Unmarshal(raw, &m) != nil {
			continue
		}
		fmt.Fprintf(&b, "[%s] %s\n", m.Role, textOf(raw))
		for _, c := range m.ToolCalls {
			fmt.Fprintf(&b, "[%s calls %s] %s\n", m.Role, c.Function.Name, c.Function.Arguments)
		}
	}
	text := strings.TrimSpace(b.String())
	if limit <= 0 || len(text) <= limit {
		return text
	}
	head := strings.ToValidUTF8(text[:limit/2], "")
	tail := strings.ToValidUTF8(text[len(text)-limit/2:], "")
	return fmt.Sprintf("%s\n… %d bytes left out …\n%s", head, len(text)-len(head)-len(tail), tail)
}
