package llmproxy

import (
	"bytes"
	"strconv"
	"unicode"
	"unicode/utf8"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/llm/openai"
)

// What readers of LiteLLM's spans look for.
const (
	rawSpan   = "raw_gen_ai_request"
	rawPrefix = "llm.hosted_vllm."
)

// companion returns the span that LiteLLM's proxy would have stored for the
// backend's answer, below the span of the call. Its values are Python literals.
// It returns nil when there is no answer to tell of.
func (c *call) companion(own *agl.Span) *agl.Span {
	if c.answer == nil || c.failed() {
		return nil
	}
	s := *own
	s.SpanID, s.ParentID, s.Name = agl.NewSpanID(), &own.SpanID, rawSpan
	s.Context = &agl.SpanContext{TraceID: s.TraceID, SpanID: s.SpanID}
	s.Parent = &agl.SpanContext{TraceID: s.TraceID, SpanID: own.SpanID}
	a := make(attributes, 0, 8)
	if asked, _ := c.said(); asked != nil {
		a.add(rawPrefix+"messages", string(appendLiteral(nil, asked.Raw("messages"))))
	}
	a.text(rawPrefix+"id", c.answer.ID)
	a.text(rawPrefix+"model", c.answer.Model)
	a.add(rawPrefix+"choices", string(c.appendChoices(nil, c.answer.Choices)))
	if u := c.answer.Usage; u != nil {
		a.add(rawPrefix+"usage", "{'completion_tokens': "+strconv.FormatInt(u.Completion, 10)+
			", 'prompt_tokens': "+strconv.FormatInt(u.Prompt, 10)+", 'total_tokens': "+strconv.FormatInt(u.Total, 10)+"}")
	}
	if ids := c.answer.PromptTokenIDs; ids != nil {
		a.add(rawPrefix+"prompt_token_ids", string(appendInts(nil, ids)))
	}
	s.Attributes = agl.Attributes(a)
	return &s
}

// appendChoices writes texts without what is not to be stored: what a rule takes
// out of the written list might be its quotes.
func (c *call) appendChoices(dst []byte, choices []openai.Choice) []byte {
	keys := c.secrets()
	clean := func(text string) string {
		text, _ = c.p.privacy.clean(text, rawPrefix+"messages", keys)
		return text
	}
	dst = append(dst, '[')
	for i := range choices {
		choice := &choices[i]
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(dst, "{'finish_reason': "...)
		dst = appendRepr(dst, choice.FinishReason)
		dst = append(dst, ", 'index': "...)
		dst = strconv.AppendInt(dst, int64(choice.Index), 10)
		if !c.p.privacy.noBodies {
			dst = appendMessage(append(dst, ", 'message': "...), choice, clean)
		}
		dst = append(dst, ", 'token_ids': "...)
		if choice.TokenIDs == nil {
			dst = append(dst, "None"...)
		} else {
			dst = appendInts(dst, choice.TokenIDs)
		}
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

func appendMessage(dst []byte, c *openai.Choice, clean func(string) string) []byte {
	dst = append(dst, "{'content': "...)
	if c.Content == nil {
		dst = append(dst, "None"...)
	} else {
		dst = appendRepr(dst, clean(*c.Content))
	}
	dst = append(dst, ", 'role': 'assistant', 'tool_calls': "...)
	if len(c.ToolCalls) == 0 {
		return append(dst, "None}"...)
	}
	dst = append(dst, '[')
	for i, call := range c.ToolCalls {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = appendRepr(append(dst, "{'id': "...), call.ID)
		dst = appendRepr(append(dst, ", 'function': {'arguments': "...), clean(call.Arguments))
		dst = appendRepr(append(dst, ", 'name': "...), call.Name)
		dst = append(dst, "}, 'type': 'function'}"...)
	}
	return append(dst, "]}"...)
}

func appendInts(dst []byte, ints []int64) []byte {
	dst = append(dst, '[')
	for i, n := range ints {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = strconv.AppendInt(dst, n, 10)
	}
	return append(dst, ']')
}

// appendLiteral writes a JSON value as Python's repr does; what is no JSON is
// None.
func appendLiteral(dst []byte, raw []byte) []byte {
	switch jsonx.KindOf(raw) {
	case jsonx.Object:
		members, err := jsonx.Members(raw)
		if err != nil {
			break
		}
		dst = append(dst, '{')
		for i, m := range members {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = appendRepr(dst, m.Key)
			dst = appendLiteral(append(dst, ": "...), m.Value)
		}
		return append(dst, '}')
	case jsonx.Array:
		elements, err := jsonx.Elements(raw)
		if err != nil {
			break
		}
		dst = append(dst, '[')
		for i, e := range elements {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = appendLiteral(dst, e)
		}
		return append(dst, ']')
	case jsonx.String:
		if text, err := jsonx.Text(raw); err == nil {
			return appendRepr(dst, text)
		}
	case jsonx.Bool:
		if bytes.Contains(raw, []byte("true")) {
			return append(dst, "True"...)
		}
		return append(dst, "False"...)
	case jsonx.Number:
		raw = bytes.TrimSpace(raw)
		if !jsonx.IsFloat(raw) {
			return append(dst, raw...)
		}
		if f, err := strconv.ParseFloat(string(raw), 64); err == nil {
			return jsonx.AppendFloat(dst, f)
		}
	case jsonx.Null, jsonx.Invalid:
	}
	return append(dst, "None"...)
}

// appendRepr writes a text as Python's repr does.
func appendRepr(dst []byte, s string) []byte {
	quote := byte('\'')
	if hasByte(s, '\'') && !hasByte(s, '"') {
		quote = '"'
	}
	dst = append(dst, quote)
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, `\n`...)
		case r == '\r':
			dst = append(dst, `\r`...)
		case r == '\t':
			dst = append(dst, `\t`...)
		case r < ' ' || r == 0x7f:
			dst = appendEscape(dst, 'x', 2, r)
		case r < utf8.RuneSelf || unicode.IsPrint(r):
			dst = utf8.AppendRune(dst, r)
		case r <= 0xff:
			dst = appendEscape(dst, 'x', 2, r)
		case r <= 0xffff:
			dst = appendEscape(dst, 'u', 4, r)
		default:
			dst = appendEscape(dst, 'U', 8, r)
		}
	}
	return append(dst, quote)
}

func hasByte(s string, b byte) bool {
	for i := range len(s) {
		if s[i] == b {
			return true
		}
	}
	return false
}

func appendEscape(dst []byte, letter byte, digits int, r rune) []byte {
	const hexDigits = "0123456789abcdef"
	dst = append(dst, '\\', letter)
	for i := digits - 1; i >= 0; i-- {
		dst = append(dst, hexDigits[r>>(4*i)&15])
	}
	return dst
}
