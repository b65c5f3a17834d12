// Package gateway is the server and the client of the 1.0 protocol over the
// same store that the 0.3 protocol uses.
//
// What exists of it: GET /healthz, and the model backends under /api/models.
// Rollouts, events and the pausable proxy of 1.0 are not served yet.
package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	agl "agentlightning"
	"agentlightning/store"
)

// maxBody bounds a list of models; one entry is some hundred bytes.
const maxBody = 4 << 20

// NewHandler serves the routes of the 1.0 protocol that exist. A nil logger
// discards.
func NewHandler(models store.ModelStore, logger *slog.Logger) http.Handler {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	h := &handler{models, logger}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", h.health)
	mux.HandleFunc("POST /api/models", h.putModels)
	mux.HandleFunc("DELETE /api/models", h.deleteModels)
	mux.HandleFunc("GET /api/models", h.listModels)
	return mux
}

type handler struct {
	models store.ModelStore
	logger *slog.Logger
}

func (h *handler) health(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

func (h *handler) putModels(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		writeJSON(w, http.StatusRequestEntityTooLarge, detail("a list of models has at most 4 MiB"))
		return
	}
	models, problems := parseModels(body)
	if len(problems) > 0 {
		writeJSON(w, http.StatusUnprocessableEntity, map[string]any{"detail": problems})
		return
	}
	if err := h.models.PutModels(r.Context(), models); err != nil {
		h.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusCreated, publicModels(models))
}

func (h *handler) deleteModels(w http.ResponseWriter, r *http.Request) {
	if err := h.models.DeleteModels(r.Context(), r.URL.Query().Get("model")); err != nil {
		h.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

func (h *handler) listModels(w http.ResponseWriter, r *http.Request) {
	models, err := h.models.Models(r.Context())
	if err != nil {
		h.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, publicModels(models))
}

func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, store.ErrInvalid) {
		writeJSON(w, http.StatusBadRequest, detail(err.Error()))
		return
	}
	h.logger.ErrorContext(r.Context(), "request failed", "method", r.Method, "path", r.URL.Path, "err", err)
	writeJSON(w, http.StatusInternalServerError, map[string]string{
		"detail": "internal error", "error_type": "InternalError", "request_id": w.Header().Get("x-request-id"),
	})
}

// problem is one entry of a 422 answer, in the shape that clients know.
type problem struct {
	Type  string `json:"type"`
	Loc   []any  `json:"loc"`
	Msg   string `json:"msg"`
	Input any    `json:"input"`
}

func parseModels(body []byte) ([]agl.Model, []problem) {
	var entries []json.RawMessage
	if err := json.Unmarshal(body, &entries); err != nil {
		var input any
		if json.Unmarshal(body, &input) != nil {
			return nil, []problem{{"json_invalid", []any{"body", 0}, "JSON decode error", map[string]any{}}}
		}
		return nil, []problem{{"list_type", []any{"body"}, "Input should be a valid list", input}}
	}
	var models []agl.Model
	var problems []problem
	for i, entry := range entries {
		var fields map[string]json.RawMessage
		if json.Unmarshal(entry, &fields) != nil {
			problems = append(problems, problem{
				"model_attributes_type",
				[]any{"body", i},
				"Input should be a valid dictionary or object to extract fields from", entry,
			})
			continue
		}
		before := len(problems)
		for _, name := range [...]string{"model", "endpoint"} {
			var s string
			switch value, ok := fields[name]; {
			case !ok:
				problems = append(problems, problem{"missing", []any{"body", i, name}, "Field required", entry})
			case json.Unmarshal(value, &s) != nil || string(value) == "null":
				problems = append(problems, problem{"string_type", []any{"body", i, name}, "Input should be a valid string", value})
			case name == "endpoint" && !absolute(s):
				problems = append(problems, problem{
					"url_parsing",
					[]any{"body", i, name},
					"Input should be an absolute http or https URL", value,
				})
			}
		}
		var m agl.Model
		if err := json.Unmarshal(entry, &m); err != nil && len(problems) == before {
			problems = append(problems, problem{"int_type", []any{"body", i}, err.Error(), entry})
		}
		models = append(models, m)
	}
	return models, problems
}

func absolute(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
}

// publicModels leaves keys out: what was given is never shown again.
func publicModels(models []agl.Model) []agl.Model {
	out := make([]agl.Model, len(models))
	for i, m := range models {
		m.APIKey = ""
		out[i] = m
	}
	return out
}

func detail(text string) map[string]string { return map[string]string{"detail": text} }

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, `{"detail":"internal error"}`, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the peer is gone when this fails; nothing is left to tell it
}

// Client talks to the 1.0 routes of a server.
type Client struct {
	// BaseURL is the root of the server, such as http://127.0.0.1:4747.
	BaseURL string
	// Token is sent as a bearer token; empty sends none.
	Token string
	// HTTP is the client to use; nil means one with the transport's defaults.
	HTTP *http.Client
}

// PutModels offers model backends to the server's proxy.
func (c *Client) PutModels(ctx context.Context, models ...agl.Model) error {
	body, err := json.Marshal(models)
	if err != nil {
		return err
	}
	return c.do(ctx, http.MethodPost, "/api/models", body)
}

// DeleteModels withdraws the backends of a name; an empty name withdraws all.
func (c *Client) DeleteModels(ctx context.Context, name string) error {
	path := "/api/models"
	if name != "" {
		path += "?model=" + url.QueryEscape(name)
	}
	return c.do(ctx, http.MethodDelete, path, nil)
}

func (c *Client) do(ctx context.Context, method, path string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.BaseURL, "/")+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	client := c.HTTP
	if client == nil {
		client = &http.Client{}
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err != nil {
		return err
	}
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %s", method, path, res.Status, bytes.TrimSpace(answer))
	}
	return nil
}
