package native

import (
	"encoding/json"
	"net/http"
)

// completionRequest is the part of a text completion request that is understood.
type completionRequest struct {
	chatRequest
	Prompt   wirePrompt `json:"prompt"`
	Logprobs *int       `json:"logprobs"`
}

// wirePrompt is a text or a list of token ids, alone or as the only one of a
// list.
type wirePrompt struct {
	text string
	ids  []int32
}

// UnmarshalJSON implements [json.Unmarshaler].
func (p *wirePrompt) UnmarshalJSON(b []byte) error {
	*p = wirePrompt{}
	if json.Unmarshal(b, &p.text) == nil || json.Unmarshal(b, &p.ids) == nil {
		return nil
	}
	*p = wirePrompt{}
	var many []json.RawMessage
	if err := json.Unmarshal(b, &many); err != nil || len(many) != 1 {
		return badRequest("prompt", "prompt must be one text or one list of token ids")
	}
	if json.Unmarshal(many[0], &p.text) == nil {
		return nil
	}
	return json.Unmarshal(many[0], &p.ids)
}

type completionResponse struct {
	ID      string             `json:"id"`
	Object  string             `json:"object"`
	Created int64              `json:"created"`
	Model   string             `json:"model"`
	Choices []completionChoice `json:"choices"`
	Usage   *usage             `json:"usage,omitempty"`
}

type completionChoice struct {
	Index          int                 `json:"index"`
	Text           string              `json:"text"`
	Logprobs       *completionLogprobs `json:"logprobs"`
	FinishReason   *FinishReason       `json:"finish_reason"`
	StopReason     *string             `json:"stop_reason,omitempty"`
	TokenIDs       []int32             `json:"token_ids,omitempty"`
	PromptTokenIDs []int32             `json:"prompt_token_ids,omitempty"`
}

type completionLogprobs struct {
	Tokens     []string             `json:"tokens"`
	Logprobs   []float32            `json:"token_logprobs"`
	Top        []map[string]float32 `json:"top_logprobs"`
	TextOffset []int                `json:"text_offset"`
}

// complete answers /v1/completions. The prompt is taken as it is, without the
// chat template.
func (s *Server) complete(w http.ResponseWriter, r *http.Request, body []byte) error {
	var c completionRequest
	if err := json.Unmarshal(body, &c); err != nil {
		return badRequest("", "the request does not have the right form: %v", err)
	}
	if err := s.checkModel(c.Model); err != nil {
		return err
	}
	if c.Prompt.ids == nil {
		c.Prompt.ids = s.m.tok.Encode(c.Prompt.text)
	}
	if c.Logprobs != nil {
		c.chatRequest.Logprobs, c.TopLogprobs = true, *c.Logprobs
	}
	req, err := sampling(c.chatRequest, c.Prompt.ids)
	if err != nil {
		return err
	}
	head := completionResponse{ID: newID("cmpl-"), Object: "text_completion", Created: s.cfg.Now().Unix(), Model: s.cfg.Name}
	if c.Stream {
		return s.completeStream(w, r, &c, req, head)
	}
	res, err := s.m.Generate(r.Context(), req)
	if err != nil {
		return err
	}
	out := &textOut{tok: s.m.tok, stops: req.Stop}
	for _, t := range res.Tokens {
		out.add(t.ID)
	}
	choice := s.completionChoice(&c, out.take(true), res.Tokens, 0)
	choice.FinishReason, choice.StopReason = &res.FinishReason, stopReason(out)
	if c.ReturnTokenIDs {
		choice.PromptTokenIDs = req.Prompt
	}
	head.Choices, head.Usage = []completionChoice{choice}, usageOf(req, res)
	writeJSON(w, http.StatusOK, head)
	return nil
}

func (s *Server) completeStream(w http.ResponseWriter, r *http.Request, c *completionRequest, req Request, head completionResponse) error {
	ev, out := newEventWriter(w), &textOut{tok: s.m.tok, stops: req.Stop}
	var held []Token
	var result *Result
	offset := 0
	send := func(text string, finish *FinishReason) {
		choice := s.completionChoice(c, text, held, offset)
		choice.FinishReason = finish
		if finish != nil {
			choice.StopReason = stopReason(out)
		}
		if !ev.started && bool(c.ReturnTokenIDs) {
			choice.PromptTokenIDs = req.Prompt
		}
		chunk := head
		chunk.Choices = []completionChoice{choice}
		ev.send(chunk)
		held, offset = held[:0], offset+len(text)
	}
	for t, err := range s.m.Stream(r.Context(), req, func(res *Result) { result = res }) {
		if err != nil {
			return s.streamBroken(ev, r, err)
		}
		held = append(held, t)
		out.add(t.ID)
		if t.ID == EndToken {
			continue
		}
		if text := out.take(false); text != "" {
			send(text, nil)
		}
	}
	send(out.take(true), &result.FinishReason)
	if o := c.StreamOptions; o != nil && o.IncludeUsage {
		last := head
		last.Choices, last.Usage = []completionChoice{}, usageOf(req, result)
		ev.send(last)
	}
	ev.done()
	return nil
}

func (s *Server) completionChoice(c *completionRequest, text string, tokens []Token, offset int) completionChoice {
	choice := completionChoice{Text: text}
	if c.ReturnTokenIDs {
		for _, t := range tokens {
			choice.TokenIDs = append(choice.TokenIDs, t.ID)
		}
	}
	if c.Logprobs == nil {
		return choice
	}
	l := &completionLogprobs{}
	for _, t := range tokens {
		top := make(map[string]float32, len(t.Top))
		for _, o := range t.Top {
			top[s.wireLogprob(o.ID, o.Logprob).Token] = o.Logprob
		}
		w := s.wireLogprob(t.ID, t.Logprob)
		l.Tokens, l.Logprobs, l.Top = append(l.Tokens, w.Token), append(l.Logprobs, w.Logprob), append(l.Top, top)
		l.TextOffset = append(l.TextOffset, offset)
		offset += len(s.m.tok.Decode([]int32{t.ID}))
	}
	choice.Logprobs = l
	return choice
}

func usageOf(r Request, res *Result) *usage {
	p, n := len(r.Prompt), len(res.Tokens)
	return &usage{PromptTokens: p, CompletionTokens: n, TotalTokens: p + n, PromptDetails: promptDetails{res.Cached}}
}
