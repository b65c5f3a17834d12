package native

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"
)

// ServerConfig configures a [Server]. The zero value of a field means its
// default.
type ServerConfig struct {
	// Name is the model's name in requests and answers. Default "native".
	Name string
	// Memory is how many completions are remembered, so that later turns repeat
	// their tokens exactly. Default 16384.
	Memory int
	// Now stamps answers. Default time.Now.
	Now func() time.Time
	// Logger receives unexpected errors. Nil discards them.
	Logger *slog.Logger
}

// Server answers the OpenAI API for one model:
//
//	POST /v1/chat/completions   whole and streamed
//	POST /v1/completions        whole and streamed; text or token ids
//	GET  /v1/models
//	GET  /health
//
// With return_token_ids answers carry prompt_token_ids and token_ids in vLLM's
// places; log-probabilities are those of the policy itself, whatever temperature
// and top_p the samples were drawn with. Fields that would change the samples and are not supported are refused
// by name. A max_tokens beyond the context is cut to what fits.
//
// A whole text of the form NAME(ARG), NAME being a tool of the request, is
// answered as a tool call; for a tool with one string parameter ARG is its
// value, for others a JSON object. All other text is content. Tools are not
// written into the prompt: the model knows those that it was trained with.
//
// The prompt of a later turn begins with exactly the tokens of the turns before:
// the server remembers what it sampled for which prompt and message. What it
// does not remember any more, or never sampled, is tokenised afresh, which may
// give other tokens for the same text. Two completions of one prompt with equal
// text but different tokens are told apart by the id of their tool call; for
// plain content the later one counts.
type Server struct {
	m      *Model
	cfg    ServerConfig
	memory *memory
	mux    *http.ServeMux
	born   int64
}

var _ http.Handler = (*Server)(nil)

// NewServer returns a server for m. It owns nothing that has to be closed.
func NewServer(m *Model, cfg ServerConfig) *Server {
	cfg.Name = cmp.Or(cfg.Name, "native")
	cfg.Memory = cmp.Or(cfg.Memory, 16384)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{m: m, cfg: cfg, memory: newMemory(cfg.Memory), mux: http.NewServeMux(), born: cfg.Now().Unix()}
	s.mux.HandleFunc("POST /v1/chat/completions", s.handle(s.chat))
	s.mux.HandleFunc("POST /v1/completions", s.handle(s.complete))
	s.mux.HandleFunc("GET /v1/models", s.models)
	s.mux.HandleFunc("GET /health", s.health)
	for path, method := range map[string]string{
		"/v1/chat/completions": http.MethodPost, "/v1/completions": http.MethodPost,
		"/v1/models": http.MethodGet, "/health": http.MethodGet,
	} {
		s.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", method)
			s.fail(w, r, &statusError{http.StatusMethodNotAllowed, "", "", fmt.Sprintf("%s is for %s only", path, method)})
		})
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, &statusError{http.StatusNotFound, "", "", fmt.Sprintf("%s %s is not served here", r.Method, r.URL.Path)})
	})
	return s
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []any{map[string]any{
		"id": s.cfg.Name, "object": "model", "created": s.born, "owned_by": "agentlightning",
		"root": s.cfg.Name, "parent": nil, "max_model_len": s.m.cfg.Context,
	}}})
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if s.m.engine.closed() {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// maxBody bounds a request's body, in bytes.
const maxBody = 8 << 20

// handle reads a body, refuses what cannot be done and turns errors into
// answers.
func (s *Server) handle(serve func(http.ResponseWriter, *http.Request, []byte) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			s.fail(w, r, err)
			return
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(body, &fields); err != nil {
			s.fail(w, r, badRequest("", "the body is not a JSON object: %v", err))
			return
		}
		if err := refuse(fields); err != nil {
			s.fail(w, r, err)
			return
		}
		if err := serve(w, r, body); err != nil {
			s.fail(w, r, err)
		}
	}
}

func (s *Server) checkModel(name string) error {
	if name != "" && name != s.cfg.Name {
		return &statusError{
			http.StatusNotFound, "model", "model_not_found",
			fmt.Sprintf("model %q is not served here; this is %q", name, s.cfg.Name),
		}
	}
	return nil
}

// statusError is an error that already knows its answer.
type statusError struct {
	status               int
	param, code, message string
}

func (e *statusError) Error() string { return e.message }

func badRequest(param, format string, args ...any) error {
	return &statusError{http.StatusBadRequest, param, "", fmt.Sprintf(format, args...)}
}

// fail answers an error in OpenAI's shape.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, detail := s.explain(r.Context(), err)
	if status == 0 {
		return // the client has gone
	}
	writeJSON(w, status, errorBody{detail})
}

// explain finds the answer to an error. Status 0 means that nobody waits for one.
func (s *Server) explain(ctx context.Context, err error) (int, errorDetail) {
	var (
		known  *statusError
		length *ContextLengthError
		field  *RequestError
		size   *http.MaxBytesError
	)
	e := statusError{message: err.Error()}
	switch {
	case errors.As(err, &known):
		e = *known
	case errors.As(err, &length):
		e = statusError{http.StatusBadRequest, "messages", "context_length_exceeded", length.Error()}
	case errors.As(err, &field):
		e = statusError{http.StatusBadRequest, field.Field, "", field.Error()}
	case errors.As(err, &size):
		e = statusError{http.StatusRequestEntityTooLarge, "", "", fmt.Sprintf("the body is larger than %d bytes", maxBody)}
	case errors.Is(err, ErrClosed):
		e.status = http.StatusServiceUnavailable
	case ctx.Err() != nil:
		return 0, errorDetail{}
	default:
		e.status, e.message = http.StatusInternalServerError, "internal error"
		s.cfg.Logger.ErrorContext(ctx, "model request failed", "err", err)
	}
	d := errorDetail{Message: e.message, Type: "invalid_request_error"}
	if e.status >= 500 {
		d.Type = "server_error"
	}
	if e.param != "" {
		d.Param = &e.param
	}
	if e.code != "" {
		d.Code = &e.code
	}
	return e.status, d
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	// The status is out: an error here means that the client has gone.
	_ = enc.Encode(v)
}

// newID returns an id that no other answer has.
func newID(prefix string) string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return prefix + hex.EncodeToString(b[:])
}

// closed reports whether the engine was stopped.
func (e *engine) closed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closing
}
