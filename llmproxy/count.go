package llmproxy

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"agentlightning/internal/jsonx"
	"agentlightning/llm/anthropic"
	"agentlightning/llm/openai"
)

const (
	tokenizeRoute = "/tokenize"
	// countPatience is how long a backend may take to count. Callers count before
	// each call, and an estimate is there at once.
	countPatience = 5 * time.Second
	maxCountBytes = 64 << 20
)

// countTokens says how many tokens a message has: the backend's own count where
// it can tell, as vLLM can, otherwise an estimate.
func (c *call) countTokens() {
	chat, refusal := anthropic.CountRequest(c.req)
	if refusal != nil {
		c.dialect.writeError(c.w, http.StatusBadRequest, refusal)
		return
	}
	n, ok := int64(0), false
	if !c.p.lacks.has(c.backend.Endpoint, tokenizeRoute) {
		if n, ok = c.tokenize(chat); !ok && c.r.Context().Err() == nil {
			c.p.lacks.add(c.backend.Endpoint, tokenizeRoute)
		}
	}
	if !ok {
		n = anthropic.EstimateTokens(chat)
	}
	writeJSON(c.w, http.StatusOK, append(strconv.AppendInt([]byte(`{"input_tokens":`), n, 10), '}'))
}

// tokenize asks the backend to tokenize the prompt that a chat completion has.
func (c *call) tokenize(chat *openai.Request) (int64, bool) {
	var body jsonx.Builder
	body.Open('{').Key("model").Text(c.backend.target()).Key("messages").Raw(chat.Raw("messages")).Key("add_generation_prompt").Word("true")
	if tools := chat.Raw("tools"); tools != nil {
		body.Key("tools").Raw(tools)
	}
	body.Close('}')
	ctx, cancel := context.WithTimeout(c.r.Context(), countPatience)
	defer cancel()
	// The route stands beside /v1.
	url := strings.TrimSuffix(c.backend.base, "/v1") + tokenizeRoute
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body.Bytes))
	if err != nil {
		return 0, false
	}
	req.Header.Set("Content-Type", "application/json")
	c.backend.authorize(req.Header)
	resp, err := c.p.cfg.Transport.RoundTrip(req)
	if err != nil {
		return 0, false
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, maxCountBytes))
	if err != nil || resp.StatusCode != http.StatusOK {
		return 0, false
	}
	members, err := jsonx.Members(said)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(jsonx.Get(members, "count")), 10, 64)
	return n, err == nil && n > 0
}
