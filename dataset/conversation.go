package dataset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/algorithm"
)

// Conversation is what an attempt said from its first message to its last
// answer, in OpenAI's shapes.
type Conversation struct {
	Messages []json.RawMessage `json:"messages"`
	Tools    []json.RawMessage `json:"tools,omitempty"`
	// RolloutID and Reward say where it is from; they are written in the
	// conversational form only.
	RolloutID string   `json:"rollout_id,omitempty"`
	Reward    *float64 `json:"reward,omitempty"`
}

// Conversations reads the conversations of an attempt. A call whose messages go
// on in a later call is part of that one's; every other call is a conversation
// of its own. Calls without an answer are left out.
func Conversations(spans []agl.Span) ([]Conversation, error) {
	recorded, err := adapter.Conversations(spans)
	if err != nil {
		return nil, err
	}
	var all []Conversation
	for _, c := range recorded {
		one := Conversation{Tools: c.Tools}
		for _, m := range c.Messages {
			clean, err := withoutNull(m)
			if err != nil {
				return nil, err
			}
			one.Messages = append(one.Messages, clean)
		}
		if n := len(one.Messages); n > 0 && roleOf(one.Messages[n-1]) == "assistant" {
			all = append(all, one)
		}
	}
	var out []Conversation
	for i, c := range all {
		if !slices.ContainsFunc(all[i+1:], func(later Conversation) bool { return begins(later.Messages, c.Messages) }) {
			out = append(out, c)
		}
	}
	return out, nil
}

// withoutNull drops members that are null, which fine-tuning services refuse.
func withoutNull(message json.RawMessage) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(message, &members); err != nil {
		return nil, err
	}
	null := false
	for _, v := range members {
		null = null || string(v) == "null"
	}
	if !null {
		return message, nil
	}
	for k, v := range members {
		if string(v) == "null" {
			delete(members, k)
		}
	}
	return json.Marshal(members)
}

func roleOf(message json.RawMessage) string {
	var m struct {
		Role string `json:"role"`
	}
	if json.Unmarshal(message, &m) != nil {
		return ""
	}
	return m.Role
}

func begins(all, start []json.RawMessage) bool {
	return len(all) >= len(start) && common(all, start) == len(start)
}

func common(a, b []json.RawMessage) int {
	n := min(len(a), len(b))
	for i := range n {
		if !sameJSON(a[i], b[i]) {
			return i
		}
	}
	return n
}

// sameJSON compares messages whatever the order of their members.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	p, err1 := json.Marshal(x)
	q, err2 := json.Marshal(y)
	return err1 == nil && err2 == nil && bytes.Equal(p, q)
}

// Preference is two ways to go on from the same messages.
type Preference struct {
	Prompt   []json.RawMessage `json:"prompt"`
	Chosen   []json.RawMessage `json:"chosen"`
	Rejected []json.RawMessage `json:"rejected"`
	Tools    []json.RawMessage `json:"tools,omitempty"`
}

// ErrNoPrompt is returned for conversations that share no message, or of which
// one ends where the other goes on.
var ErrNoPrompt = errors.New("the conversations have no prompt in common from which both go on")

// Prefer makes a preference of two conversations: what they have in common up to
// the first message that differs is the prompt.
func Prefer(chosen, rejected Conversation) (Preference, error) {
	n := common(chosen.Messages, rejected.Messages)
	if n == 0 || n == len(chosen.Messages) || n == len(rejected.Messages) {
		return Preference{}, ErrNoPrompt
	}
	return Preference{
		Prompt: chosen.Messages[:n], Chosen: chosen.Messages[n:], Rejected: rejected.Messages[n:], Tools: chosen.Tools,
	}, nil
}

// WriteOpenAI writes conversations as OpenAI's fine-tuning takes them: one
// {"messages":…,"tools":…} a line.
func WriteOpenAI(w io.Writer, conversations []Conversation) error {
	for _, c := range conversations {
		c.RolloutID, c.Reward = "", nil
		if err := writeLine(w, c); err != nil {
			return err
		}
	}
	return nil
}

// WriteConversations writes the same with rollout_id and reward beside it.
func WriteConversations(w io.Writer, conversations []Conversation) error {
	for _, c := range conversations {
		if err := writeLine(w, c); err != nil {
			return err
		}
	}
	return nil
}

// WritePreferences writes one {"prompt":…,"chosen":…,"rejected":…} a line.
func WritePreferences(w io.Writer, preferences []Preference) error {
	for _, p := range preferences {
		if err := writeLine(w, p); err != nil {
			return err
		}
	}
	return nil
}

func writeLine(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// ReadConversations reads what [WriteOpenAI] or [WriteConversations] wrote, or
// others did; name stands for the stream in errors.
func ReadConversations(r io.Reader, name string) ([]Conversation, error) {
	return readLines(r, name, func(c *Conversation) error {
		if err := checkMessages("messages", c.Messages); err != nil {
			return err
		}
		if !slices.ContainsFunc(c.Messages, func(m json.RawMessage) bool { return roleOf(m) == "assistant" }) {
			return errors.New("messages: no message of role assistant, so there is nothing to learn")
		}
		return nil
	})
}

// ReadPreferences reads what [WritePreferences] wrote, or others did.
func ReadPreferences(r io.Reader, name string) ([]Preference, error) {
	return readLines(r, name, func(p *Preference) error {
		return errors.Join(checkMessages("prompt", p.Prompt), checkMessages("chosen", p.Chosen), checkMessages("rejected", p.Rejected))
	})
}

func checkMessages(member string, messages []json.RawMessage) error {
	if len(messages) == 0 {
		return fmt.Errorf("%s: must be a list of at least one message", member)
	}
	for i, m := range messages {
		switch role := roleOf(m); role {
		case "system", "developer", "user", "assistant", "tool":
		default:
			return fmt.Errorf("%s: message %d: role %q: must be system, developer, user, assistant or tool", member, i, role)
		}
	}
	return nil
}

// readLines decodes a JSON object a line and checks it.
func readLines[T any](r io.Reader, name string, check func(*T) error) ([]T, error) {
	lines, err := algorithm.ReadJSONL(r, name)
	if err != nil {
		return nil, err
	}
	out := make([]T, len(lines))
	for i, line := range lines {
		err := json.Unmarshal(line, &out[i])
		if u, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			err = fmt.Errorf("%s: a JSON %s does not fit", u.Field, u.Value)
		}
		if err == nil {
			err = check(&out[i])
		}
		if err != nil {
			return nil, &algorithm.LineError{File: name, Line: i + 1, Err: err}
		}
	}
	return out, nil
}
