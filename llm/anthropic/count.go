package anthropic

import (
	"unicode/utf8"

	"agentlightning/internal/jsonx"
	"agentlightning/llm/openai"
)

// What an estimate counts for the frame of each message and of the answer,
// after OpenAI's cookbook "How to count tokens with tiktoken".
const (
	tokensPerMessage = 3
	tokensPerAnswer  = 3
	// tokensPerImage is that of an image in OpenAI's low detail.
	tokensPerImage = 85
)

// EstimateTokens says about how many tokens a chat completion request has, for
// backends that cannot count. A token is taken for four letters of the Latin
// script, or for one of any other.
func EstimateTokens(chat *openai.Request) int64 {
	n := int64(tokensPerAnswer)
	messages, _ := jsonx.Elements(chat.Raw("messages"))
	for _, m := range messages {
		members, _ := jsonx.Members(m)
		n += tokensPerMessage
		for _, member := range members {
			n += estimate(member.Value)
		}
	}
	return n + estimate(chat.Raw("tools"))
}

// estimate adds up the texts within a value. What names and punctuation add
// around them is left out.
func estimate(raw []byte) (n int64) {
	switch jsonx.KindOf(raw) {
	case jsonx.String:
		text, _ := jsonx.Text(raw)
		return estimateText(text)
	case jsonx.Array:
		elements, _ := jsonx.Elements(raw)
		for _, e := range elements {
			n += estimate(e)
		}
	case jsonx.Object:
		members, _ := jsonx.Members(raw)
		if text(members, "type") == "image_url" {
			return tokensPerImage
		}
		for _, m := range members {
			if m.Key != "type" {
				n += estimate(m.Value)
			}
		}
	}
	return n
}

func estimateText(s string) int64 {
	var latin, other int64
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			latin++
			i++
			continue
		}
		_, size := utf8.DecodeRuneInString(s[i:])
		other++
		i += size
	}
	return (latin+3)/4 + other
}
