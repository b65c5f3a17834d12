package engine

import (
	"fmt"
	"strings"

	"github.com/hybridgroup/yzma/pkg/llama"
)

// Message is a turn of a conversation.
type Message struct {
	Role    string // system, user or assistant
	Content string
}

// unless is what the model's own template says first when nobody else does.
var unless = Message{"system", "You are a helpful AI assistant named SmolLM, trained by Hugging Face"}

// Prompt returns a conversation as the model was trained to read it, up to where
// its answer begins. What people write opens and closes no turn.
func (e *Engine) Prompt(messages []Message) ([]int64, error) {
	if len(messages) == 0 {
		return nil, fmt.Errorf("%w: there are no messages", ErrInvalid)
	}
	for i, m := range messages {
		switch m.Role {
		case "system", "user", "assistant":
		default:
			return nil, fmt.Errorf("%w: messages[%d]: role: %q: must be system, user or assistant", ErrInvalid, i, m.Role)
		}
		if strings.ContainsRune(m.Content, 0) {
			return nil, fmt.Errorf("%w: messages[%d]: content: llama.cpp reads no text with a zero byte", ErrInvalid, i)
		}
	}
	if messages[0].Role != unless.Role {
		messages = append([]Message{unless}, messages...)
	}
	e.life.RLock()
	defer e.life.RUnlock()
	if e.closed {
		return nil, ErrClosed
	}
	var out []int64
	add := func(text string, special bool) {
		for _, t := range llama.Tokenize(e.vocab, text, false, special) {
			out = append(out, int64(t))
		}
	}
	for _, m := range messages {
		add("<|im_start|>", true)
		add(m.Role+"\n"+m.Content, false)
		add("<|im_end|>", true)
		add("\n", false)
	}
	add("<|im_start|>", true)
	add("assistant\n", false)
	return out, nil
}
