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
		fail(w, http.StatusBadRequest, fmt.Errorf("read the body: %w", err))
		return
	}
	asked, generate, err := s.parse(body)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
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
		_, o := problem(http.StatusInternalServerError, err)
		_ = out.send(o)
	case err != nil:
		fail(w, http.StatusInternalServerError, err)
	case asked.Stream:
		out.finish(a, finish)
	default:
		write(w, http.StatusOK, a.whole(finish))
	}
}

// problem is an error as OpenAI writes it, with its status, which is otherwise for
// errors that have none of their own.
func problem(otherwise int, err error) (int, object) {
	status, code := otherwise, any(nil)
	switch {
	case errors.Is(err, errModel):
		status, code = http.StatusNotFound, "model_not_found"
	case errors.Is(err, engine.ErrTooLong):
		status, code = http.StatusBadRequest, "context_length_exceeded"
	case errors.Is(err, engine.ErrClosed):
		status = http.StatusServiceUnavailable
	}
	kind := "invalid_request_error"
	if status >= 500 {
		kind = "server_error"
	}
	return status, object{"error": object{"message": err.Error(), "type": kind, "param": nil, "code": code}}
}

func fail(w http.ResponseWriter, otherwise int, err error) {
	status, o := problem(otherwise, err)
	write(w, status, o)
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
