package native

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
)

// finishTools is the finish reason of a completion that is a tool call.
const finishTools FinishReason = "tool_calls"

// maxTopLogprobs is OpenAI's bound.
const maxTopLogprobs = 20

// chatCall is one chat completion on its way.
type chatCall struct {
	s     *Server
	wire  chatRequest
	req   Request
	tools []tool
	head  chatResponse
}

func (s *Server) chat(w http.ResponseWriter, r *http.Request, body []byte) error {
	c := &chatCall{s: s}
	if err := json.Unmarshal(body, &c.wire); err != nil {
		return badRequest("", "the request does not have the right form: %v", err)
	}
	if err := c.prepare(); err != nil {
		return err
	}
	c.head = chatResponse{ID: newID("chatcmpl-"), Object: "chat.completion", Created: s.cfg.Now().Unix(), Model: s.cfg.Name}
	if c.wire.Stream {
		return c.stream(w, r)
	}
	res, err := s.m.Generate(r.Context(), c.req)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, c.whole(res))
	return nil
}

// prepare checks the request and builds the prompt.
func (c *chatCall) prepare() error {
	if err := c.s.checkModel(c.wire.Model); err != nil {
		return err
	}
	if len(c.wire.Messages) == 0 {
		return badRequest("messages", "messages is empty: at least one message is needed")
	}
	useTools := true
	switch c.wire.ToolChoice {
	case nil, "auto":
	case "none":
		useTools = false
	default:
		return badRequest("tool_choice", "tool_choice is %v: the built-in model chooses by itself; use \"auto\" or \"none\"", c.wire.ToolChoice)
	}
	var known []tool
	for i, t := range c.wire.Tools {
		if t.Type != "function" || t.Function.Name == "" {
			return badRequest(fmt.Sprintf("tools[%d]", i), "tools[%d] is not a function with a name", i)
		}
		known = append(known, newTool(t.Function.Name, t.Function.Parameters))
	}
	if useTools {
		c.tools = known
	}
	prompt, err := c.s.prompt(c.wire.Messages, known)
	if err != nil {
		return err
	}
	c.req, err = sampling(c.wire, prompt)
	return err
}

// sampling translates the fields that say how to sample.
func sampling(w chatRequest, prompt []int32) (Request, error) {
	r := Request{Prompt: prompt, Temperature: 1, Stop: w.Stop}
	if w.Temperature != nil {
		r.Temperature = *w.Temperature
	}
	if w.TopP != nil {
		if !(*w.TopP > 0) {
			return r, &RequestError{"top_p", fmt.Sprintf("is %v: must be greater than 0", *w.TopP)}
		}
		r.TopP = *w.TopP
	}
	if w.Seed != nil {
		r.Seed = *w.Seed
		if r.Seed == 0 { // a seed like any other here, but not for Request
			r.Seed = math.MinInt64
		}
	}
	limit, field := w.MaxTokens, "max_tokens"
	if w.MaxCompletionTokens != nil {
		limit, field = w.MaxCompletionTokens, "max_completion_tokens"
	}
	if limit != nil {
		if *limit < 1 {
			return r, &RequestError{field, fmt.Sprintf("is %d: must be at least 1", *limit)}
		}
		r.MaxTokens = *limit
	}
	if w.TopLogprobs < 0 || w.TopLogprobs > maxTopLogprobs {
		return r, &RequestError{"top_logprobs", fmt.Sprintf("is %d: must be between 0 and %d", w.TopLogprobs, maxTopLogprobs)}
	}
	if w.TopLogprobs > 0 && !w.Logprobs {
		return r, &RequestError{"top_logprobs", "needs logprobs to be true"}
	}
	r.TopLogprobs = w.TopLogprobs
	return r, nil
}

// prompt renders a conversation. What the model said before is repeated token
// by token where it is remembered.
func (s *Server) prompt(messages []wireMessage, tools []tool) ([]int32, error) {
	tok := s.m.tok
	var ids []int32
	for i, m := range messages {
		role := Role(m.Role)
		if role == "developer" {
			role = RoleSystem
		}
		open, err := role.token()
		if err != nil {
			return nil, badRequest(fmt.Sprintf("messages[%d].role", i), "messages[%d]: %v", i, err)
		}
		ids = append(ids, open)
		if role != RoleAssistant {
			ids = append(tok.AppendEncode(ids, string(m.Content)), EndToken)
			continue
		}
		if said, ok := s.recall(ids, m); ok {
			ids = append(ids, said...)
		} else {
			ids = tok.AppendEncode(ids, assistantText(m, tools))
		}
		if ids[len(ids)-1] != EndToken {
			ids = append(ids, EndToken)
		}
	}
	return append(ids, AssistantToken), nil
}

func assistantText(m wireMessage, tools []tool) string {
	var b strings.Builder
	b.WriteString(string(m.Content))
	for _, c := range m.ToolCalls {
		b.WriteString(callText(c.Function.Name, c.Function.Arguments, tools))
	}
	return b.String()
}

// recall finds the tokens of an assistant message behind a prompt, by the ids
// of its calls first: frameworks may change those.
func (s *Server) recall(prompt []int32, m wireMessage) ([]int32, bool) {
	for _, withIDs := range []bool{true, false} {
		if ids, ok := s.memory.get(prompt, messageKey(string(m.Content), m.ToolCalls, withIDs)); ok {
			return ids, true
		}
	}
	return nil, false
}

// remember keeps the tokens of an answer for the next turn.
func (s *Server) remember(prompt, ids []int32, content string, calls []wireCall) {
	s.memory.put(prompt, ids, messageKey(content, calls, true), messageKey(content, calls, false))
}

// messageKey identifies an assistant message by what a client sends back of it.
func messageKey(content string, calls []wireCall, withIDs bool) string {
	var b strings.Builder
	b.WriteString(content)
	for _, c := range calls {
		b.WriteByte(0)
		if withIDs {
			b.WriteString(c.ID)
		}
		b.WriteByte(0)
		b.WriteString(c.Function.Name)
		b.WriteByte(0)
		b.WriteString(canonicalJSON(c.Function.Arguments))
	}
	return b.String()
}

// settle decides what a finished completion is: content or a tool call. It
// remembers the tokens before the client can send them back.
func (c *chatCall) settle(res *Result, out *textOut) (content string, calls []wireCall, reason FinishReason) {
	content, reason = validText(out.raw.String()), res.FinishReason
	if reason == FinishStop && out.stopped == "" {
		if t, arguments, ok := parseCall(content, c.tools); ok {
			calls = []wireCall{{ID: newID("call_"), Type: "function", Function: wireFunction{t.name, arguments}}}
			content, reason = "", finishTools
		}
	}
	c.s.remember(c.req.Prompt, res.IDs(), content, calls)
	return content, calls, reason
}

func (c *chatCall) newText() *textOut { return &textOut{tok: c.s.m.tok, stops: c.req.Stop} }

func (c *chatCall) whole(res *Result) chatResponse {
	out := c.newText()
	for _, t := range res.Tokens {
		out.add(t.ID)
	}
	content, calls, reason := c.settle(res, out)
	a := &answer{Role: RoleAssistant, Content: &content, ToolCalls: calls}
	if len(calls) > 0 {
		a.Content = nil
	}
	choice := chatChoice{Message: a, FinishReason: &reason, StopReason: stopReason(out)}
	c.describe(&choice, res.Tokens)
	resp := c.head
	resp.Choices, resp.Usage = []chatChoice{choice}, usageOf(c.req, res)
	if c.wire.ReturnTokenIDs {
		resp.PromptTokenIDs = c.req.Prompt
	}
	return resp
}

func stopReason(out *textOut) *string {
	if out.stopped == "" {
		return nil
	}
	return &out.stopped
}

// describe adds ids and log-probabilities of tokens to a choice, as asked for.
func (c *chatCall) describe(choice *chatChoice, tokens []Token) {
	if c.wire.ReturnTokenIDs {
		for _, t := range tokens {
			choice.TokenIDs = append(choice.TokenIDs, t.ID)
		}
	}
	if !c.wire.Logprobs {
		return
	}
	choice.Logprobs = &logprobs{Content: make([]tokenLogprob, len(tokens))}
	for i, t := range tokens {
		l := tokenLogprob{wireLogprob: c.s.wireLogprob(t.ID, t.Logprob), Top: make([]wireLogprob, len(t.Top))}
		for j, o := range t.Top {
			l.Top[j] = c.s.wireLogprob(o.ID, o.Logprob)
		}
		choice.Logprobs.Content[i] = l
	}
}

func (s *Server) wireLogprob(id int32, logprob float32) wireLogprob {
	name := s.m.tok.Name(id)
	l := wireLogprob{Token: validText(name), Logprob: max(logprob, -9999), Bytes: make([]int, len(name))}
	for i := range len(name) {
		l.Bytes[i] = int(name[i])
	}
	return l
}
