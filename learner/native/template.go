package native

import "fmt"

// Role says who a message is from.
type Role string

// The roles of a conversation, each opened by its own special token.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Message is one turn of a conversation as the model sees it. The text of an
// assistant message is what the model writes: a tool call is the text
// "calc(17+25)".
type Message struct {
	Role Role
	Text string
}

func (r Role) token() (int32, error) {
	switch r {
	case RoleSystem:
		return SystemToken, nil
	case RoleUser:
		return UserToken, nil
	case RoleAssistant:
		return AssistantToken, nil
	case RoleTool:
		return ToolToken, nil
	}
	return 0, fmt.Errorf("role %q: must be system, user, assistant or tool", r)
}

// Render returns the tokens of a whole conversation and a mask that is 1 on what
// the assistant writes, its end tokens included: a demonstration for
// imitation. The template is one special token for the role, the text, and
// [EndToken], for every message in turn.
func (t *Tokenizer) Render(messages []Message) (ids []int32, mask []float32, err error) {
	for _, m := range messages {
		open, err := m.Role.token()
		if err != nil {
			return nil, nil, err
		}
		ids = append(ids, open)
		mask = append(mask, 0)
		ids = append(t.AppendEncode(ids, m.Text), EndToken)
		var on float32
		if m.Role == RoleAssistant {
			on = 1
		}
		for len(mask) < len(ids) {
			mask = append(mask, on)
		}
	}
	return ids, mask, nil
}

// Prompt returns the tokens of a conversation and the token that opens the
// assistant's next message.
func (t *Tokenizer) Prompt(messages []Message) ([]int32, error) {
	ids, _, err := t.Render(messages)
	return append(ids, AssistantToken), err
}
