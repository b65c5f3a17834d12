package serving

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"agentlightning/learner/command"
)

// TokenIDsError is an engine whose answers cannot be trained on.
type TokenIDsError struct {
	Engine string // version, as the engine says; empty when it does not
	Answer string // the beginning of what it answered
}

func (e *TokenIDsError) Error() string {
	engine := "the engine"
	if e.Engine != "" {
		engine += " (version " + e.Engine + ")"
	}
	return engine + " answers without token ids, so nothing that it says can be trained on. vLLM returns them from version 0.10.2 on, when it is asked with return_token_ids, as the proxy does; upgrade it, or choose another engine, or accept it as it is with --without-token-ids. It answered: " + e.Answer
}

// largestAnswer bounds an answer of an engine, in bytes.
const largestAnswer = 4 << 20

func (e *Engine) get(ctx context.Context, url string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	return e.do(req)
}

func (e *Engine) post(ctx context.Context, url string, body any) (int, []byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return e.do(req)
}

func (e *Engine) do(req *http.Request) (int, []byte, error) {
	resp, err := e.cfg.Client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, largestAnswer))
	return resp.StatusCode, text, errors.Join(err, resp.Body.Close())
}

// probe asks the engine for its model's name and for an answer of one token, and
// refuses one without token ids.
func (s *supervision) probe(ctx context.Context) (string, error) {
	status, text, err := s.get(ctx, s.endpoint+"/models")
	var models struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err == nil {
		err = json.Unmarshal(text, &models)
	}
	if err != nil || status != http.StatusOK || len(models.Data) == 0 {
		return "", fmt.Errorf("the engine is healthy, but names no model at %s/models: status %d, %.200s", s.endpoint, status, text)
	}
	name := models.Data[0].ID
	if s.cfg.WithoutTokenIDs {
		return name, nil
	}
	status, text, err = s.post(ctx, s.endpoint+"/chat/completions", map[string]any{
		"model": name, "messages": []any{map[string]any{"role": "user", "content": "Hello"}},
		"max_tokens": 1, "logprobs": true, "return_token_ids": true,
	})
	if err == nil && status != http.StatusOK && status < http.StatusInternalServerError { // a model without a chat template
		status, text, err = s.post(ctx, s.endpoint+"/completions", map[string]any{
			"model": name, "prompt": "Hello", "max_tokens": 1, "logprobs": 1, "return_token_ids": true,
		})
	}
	if err != nil {
		return "", fmt.Errorf("ask the engine for a token: %w", err)
	}
	if status != http.StatusOK {
		return "", fmt.Errorf("the engine is healthy and does not answer: status %d, %.500s", status, text)
	}
	var answer struct {
		PromptTokenIDs []int64 `json:"prompt_token_ids"`
		Choices        []struct {
			TokenIDs       []int64         `json:"token_ids"`
			PromptTokenIDs []int64         `json:"prompt_token_ids"`
			Logprobs       json.RawMessage `json:"logprobs"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || len(answer.Choices) == 0 {
		return "", fmt.Errorf("the engine's answer cannot be read (%w): %.500s", err, text)
	}
	first := answer.Choices[0]
	if len(first.TokenIDs) == 0 || len(answer.PromptTokenIDs)+len(first.PromptTokenIDs) == 0 {
		return "", &TokenIDsError{Engine: s.version(ctx), Answer: fmt.Sprintf("%.300s", text)}
	}
	if len(first.Logprobs) == 0 || string(first.Logprobs) == "null" {
		s.cfg.Logger.WarnContext(ctx, "the engine answers without log-probabilities; policy gradients need them", "model", name)
	}
	return name, nil
}

// version is what the engine says of itself, in vLLM's way.
func (s *supervision) version(ctx context.Context) string {
	root, _ := strings.CutSuffix(s.endpoint, "/v1")
	var said struct {
		Version string `json:"version"`
	}
	if status, text, err := s.get(ctx, root+"/version"); err != nil || status != http.StatusOK || json.Unmarshal(text, &said) != nil {
		return ""
	}
	return said.Version
}

// load puts an adapter on the model that the engine runs.
func (s *supervision) load(ctx context.Context, m command.Model) error {
	name := fmt.Sprintf("%s-v%d", s.cfg.Name, m.Version)
	status, text, err := s.post(ctx, s.endpoint+"/load_lora_adapter", map[string]any{"lora_name": name, "lora_path": m.Path})
	switch {
	case err != nil:
		return fmt.Errorf("load the adapter %s: %w", m.Path, err)
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		return fmt.Errorf("%s is an adapter, and the engine loads none while it runs: start vLLM with --enable-lora and the variable VLLM_ALLOW_RUNTIME_LORA_UPDATING=True", m.Path)
	case status != http.StatusOK:
		return fmt.Errorf("load the adapter %s: the engine answered %d: %.500s", m.Path, status, text)
	}
	if old := s.adapter; old != "" && old != name {
		if status, text, err := s.post(ctx, s.endpoint+"/unload_lora_adapter", map[string]any{"lora_name": old}); err != nil || status != http.StatusOK {
			s.cfg.Logger.WarnContext(ctx, "the adapter before stays loaded", "adapter", old, "status", status, "answer", string(text), "err", err)
		}
	}
	s.adapter, s.served = name, m
	return nil
}
