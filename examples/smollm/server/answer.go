package server

import (
	"maps"
	"strings"

	"agentlightning/examples/smollm/engine"
)

const objectChunk = "chat.completion.chunk"

// answer gathers what the model says.
type answer struct {
	asked  *request
	head   object
	prompt []int64
	tokens []engine.Token
}

func (a *answer) add(t engine.Token) { a.tokens = append(a.tokens, t) }

// with adds what every object of an answer has.
func (a *answer) with(o object) object {
	maps.Copy(o, a.head)
	return o
}

func (a *answer) usage() object {
	return object{"prompt_tokens": len(a.prompt), "completion_tokens": len(a.tokens), "total_tokens": len(a.prompt) + len(a.tokens)}
}

// whole is the answer in one piece.
func (a *answer) whole(finish engine.Finish) object {
	var text strings.Builder
	for _, t := range a.tokens {
		text.WriteString(t.Text)
	}
	choice := object{"index": 0, "message": object{"role": "assistant", "content": text.String()}, "finish_reason": finish}
	a.details(choice, a.tokens)
	o := a.with(object{"object": "chat.completion", "choices": []any{choice}, "usage": a.usage()})
	if a.asked.ReturnTokenIDs {
		o["prompt_token_ids"] = a.prompt
	}
	return o
}

// chunk is a token on its way. The ids of the prompt come with the first.
func (a *answer) chunk(t engine.Token) object {
	delta := object{"content": t.Text}
	choice := object{"index": 0, "delta": delta, "finish_reason": nil}
	a.details(choice, []engine.Token{t})
	o := a.with(object{"object": objectChunk, "choices": []any{choice}})
	if len(a.tokens) == 1 {
		delta["role"] = "assistant"
		if a.asked.ReturnTokenIDs {
			o["prompt_token_ids"] = a.prompt
		}
	}
	return o
}

// last is the chunk that says why there are no more.
func (a *answer) last(finish engine.Finish) object {
	return a.with(object{"object": objectChunk, "choices": []any{object{"index": 0, "delta": object{}, "finish_reason": finish}}})
}

// details adds what was asked for about tokens.
func (a *answer) details(choice object, tokens []engine.Token) {
	if a.asked.ReturnTokenIDs {
		ids := make([]int64, len(tokens))
		for i, t := range tokens {
			ids[i] = t.ID
		}
		choice["token_ids"] = ids
	}
	if !a.asked.Logprobs {
		return
	}
	content := make([]object, len(tokens))
	for i, t := range tokens {
		top := make([]object, len(t.Top))
		for j, other := range t.Top {
			top[j] = likelihood(other)
		}
		content[i] = likelihood(t.Candidate)
		content[i]["top_logprobs"] = top
	}
	choice["logprobs"] = object{"content": content, "refusal": nil}
}

func likelihood(c engine.Candidate) object {
	raw := make([]int, len(c.Piece))
	for i, b := range c.Piece {
		raw[i] = int(b)
	}
	return object{"token": strings.ToValidUTF8(string(c.Piece), "\ufffd"), "logprob": c.Logprob, "bytes": raw}
}
