package native

import (
	"encoding/json"
	"errors"
	"fmt"
)

// chatRequest is the part of a chat completion request that is understood.
type chatRequest struct {
	Model               string         `json:"model"`
	Messages            []wireMessage  `json:"messages"`
	Tools               []wireTool     `json:"tools"`
	ToolChoice          any            `json:"tool_choice"`
	Temperature         *float64       `json:"temperature"`
	TopP                *float64       `json:"top_p"`
	Seed                *int64         `json:"seed"`
	MaxTokens           *int           `json:"max_tokens"`
	MaxCompletionTokens *int           `json:"max_completion_tokens"`
	Stop                stopTexts      `json:"stop"`
	Logprobs            flag           `json:"logprobs"`
	TopLogprobs         int            `json:"top_logprobs"`
	Stream              bool           `json:"stream"`
	StreamOptions       *streamOptions `json:"stream_options"`
	ReturnTokenIDs      flag           `json:"return_token_ids"`
}

// flag is a boolean that may also be written as 1 or 0, as vLLM takes it and
// proxies send it.
type flag bool

// UnmarshalJSON implements [json.Unmarshaler].
func (f *flag) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case "1":
		*f = true
		return nil
	case "0":
		*f = false
		return nil
	}
	return json.Unmarshal(b, (*bool)(f))
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// stopTexts is a string or a list of strings.
type stopTexts []string

// UnmarshalJSON implements [json.Unmarshaler].
func (s *stopTexts) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*s = nil
		if one != "" {
			*s = stopTexts{one}
		}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(s))
}

type wireMessage struct {
	Role      string      `json:"role"`
	Content   wireContent `json:"content"`
	ToolCalls []wireCall  `json:"tool_calls"`
}

// wireContent is a string, null, or a list of text parts.
type wireContent string

// UnmarshalJSON implements [json.Unmarshaler].
func (c *wireContent) UnmarshalJSON(b []byte) error {
	var text *string
	if json.Unmarshal(b, &text) == nil {
		*c = ""
		if text != nil {
			*c = wireContent(*text)
		}
		return nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(b, &parts); err != nil {
		return errors.New("content must be a string or a list of text parts")
	}
	*c = ""
	for _, p := range parts {
		if p.Type != "text" {
			return fmt.Errorf("content part of type %q: this model reads text only", p.Type)
		}
		*c += wireContent(p.Text)
	}
	return nil
}

type wireTool struct {
	Type     string `json:"type"`
	Function struct {
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// wireCall is a tool call in requests, answers and, with an index, streams.
type wireCall struct {
	Index    *int         `json:"index,omitempty"`
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function wireFunction `json:"function"`
}

type wireFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type chatResponse struct {
	ID             string       `json:"id"`
	Object         string       `json:"object"`
	Created        int64        `json:"created"`
	Model          string       `json:"model"`
	Choices        []chatChoice `json:"choices"`
	Usage          *usage       `json:"usage,omitempty"`
	PromptTokenIDs []int32      `json:"prompt_token_ids,omitempty"`
}

// chatChoice carries a message in whole answers and a delta in streams.
type chatChoice struct {
	Index        int           `json:"index"`
	Message      *answer       `json:"message,omitempty"`
	Delta        *delta        `json:"delta,omitempty"`
	Logprobs     *logprobs     `json:"logprobs"`
	FinishReason *FinishReason `json:"finish_reason"`
	StopReason   *string       `json:"stop_reason,omitempty"`
	TokenIDs     []int32       `json:"token_ids,omitempty"`
}

type answer struct {
	Role      Role       `json:"role"`
	Content   *string    `json:"content"`
	Refusal   *string    `json:"refusal"`
	ToolCalls []wireCall `json:"tool_calls,omitempty"`
}

type delta struct {
	Role      Role       `json:"role,omitempty"`
	Content   *string    `json:"content,omitempty"`
	ToolCalls []wireCall `json:"tool_calls,omitempty"`
}

type logprobs struct {
	Content []tokenLogprob `json:"content"`
}

type tokenLogprob struct {
	wireLogprob
	Top []wireLogprob `json:"top_logprobs"`
}

type wireLogprob struct {
	Token   string  `json:"token"`
	Logprob float32 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

type usage struct {
	PromptTokens     int           `json:"prompt_tokens"`
	CompletionTokens int           `json:"completion_tokens"`
	TotalTokens      int           `json:"total_tokens"`
	PromptDetails    promptDetails `json:"prompt_tokens_details"`
}

type promptDetails struct {
	CachedTokens int `json:"cached_tokens"`
}

type errorBody struct {
	Error errorDetail `json:"error"`
}

type errorDetail struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}
