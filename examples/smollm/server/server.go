// Package server speaks OpenAI's chat completions for a model that runs here, with
// the token ids and log-probabilities that training reads, in the members that
// vLLM has for them: return_token_ids, prompt_token_ids and token_ids.
package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"agentlightning/examples/smollm/engine"
)

// longestBody is more than any context holds.
const longestBody = 4 << 20

// Handler serves the model under a name: POST /v1/chat/completions and
// GET /v1/models. A request that nobody waits for any more is given up.
func Handler(e *engine.Engine, name string) http.Handler {
	s := &server{e, name}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", s.chat)
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, object{"object": "list", "data": []any{
			object{"id": name, "object": "model", "owned_by": "local", "max_model_len": e.Window()},
		}})
	})
	return mux
}

type server struct {
	engine *engine.Engine
	name   string
}

type object = map[string]any

func (s *server) chat(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longestBody))
	if err != nil {
		fail(w, http.StatusBadRequest, "", fmt.Errorf("read the body: %w", err))
		return
	}
	asked, generate, err := s.parse(body)
	if errors.Is(err, errModel) {
		fail(w, http.StatusNotFound, "model_not_found", err)
		return
	}
	if err != nil {
		fail(w, http.StatusBadRequest, "", err)
		return
	}
	a := &answer{asked: asked, prompt: generate.Prompt, head: object{
		"id": "chatcmpl-" + strconv.FormatUint(rand.Uint64(), 16), "created": time.Now().Unix(), "model": s.name,
	}}
	out := &stream{w: w}
	finish, err := s.engine.Generate(r.Context(), generate, func(t engine.Token) error {
		a.add(t)
		if asked.Stream {
			return out.send(a.chunk(t))
		}
		return nil
	})
	switch {
	case r.Context().Err() != nil: // nobody waits for it
	case err != nil && out.begun:
		_ = out.send(object{"error": problem(http.StatusInternalServerError, "", err)})
	case errors.Is(err, engine.ErrTooLong):
		fail(w, http.StatusBadRequest, "context_length_exceeded", err)
	case errors.Is(err, engine.ErrClosed):
		fail(w, http.StatusServiceUnavailable, "", err)
	case err != nil:
		fail(w, http.StatusInternalServerError, "", err)
	case asked.Stream:
		out.finish(a, finish)
	default:
		write(w, http.StatusOK, a.whole(finish))
	}
}

func problem(status int, code string, err error) object {
	kind := "invalid_request_error"
	if status >= 500 {
		kind = "server_error"
	}
	o := object{"message": err.Error(), "type": kind, "param": nil, "code": nil}
	if code != "" {
		o["code"] = code
	}
	return o
}

func fail(w http.ResponseWriter, status int, code string, err error) {
	write(w, status, object{"error": problem(status, code, err)})
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // whoever hung up does not read why
}

// stream writes server-sent events.
type stream struct {
	w     http.ResponseWriter
	begun bool
}

func (s *stream) send(o object) error {
	if !s.begun {
		s.begun = true
		s.w.Header().Set("Content-Type", "text/event-stream")
		s.w.Header().Set("Cache-Control", "no-cache")
	}
	var b bytes.Buffer
	b.WriteString("data: ")
	if err := json.NewEncoder(&b).Encode(o); err != nil {
		return err
	}
	b.WriteByte('\n')
	if _, err := s.w.Write(b.Bytes()); err != nil {
		return err
	}
	return http.NewResponseController(s.w).Flush()
}

// finish says how it ended. Errors mean that nobody listens any more.
func (s *stream) finish(a *answer, why engine.Finish) {
	if s.send(a.last(why)) != nil {
		return
	}
	if a.asked.StreamOptions.IncludeUsage && s.send(a.with(object{"object": objectChunk, "choices": []any{}, "usage": a.usage()})) != nil {
		return
	}
	_, _ = io.WriteString(s.w, "data: [DONE]\n\n")
}
