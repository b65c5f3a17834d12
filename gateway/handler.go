package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"

	agl "agentlightning"
	"agentlightning/internal/jsonx"
	"agentlightning/llmproxy"
	"agentlightning/store"
)

// Store is what the handler needs of a store.
type Store interface {
	store.ModelStore
	store.ControlStore
	Rollout(ctx context.Context, rolloutID string) (agl.AttemptedRollout, error)
	QueryRollouts(ctx context.Context, q store.RolloutQuery) (store.Page[agl.AttemptedRollout], error)
	QuerySpans(ctx context.Context, q store.SpanQuery) (store.Page[agl.Span], error)
}

// Config says what a handler serves.
type Config struct {
	// Store keeps everything. Required.
	Store Store
	// Proxy makes the model calls below /proxy, and has the gate that pauses them.
	// Required.
	Proxy *llmproxy.Proxy
	// Calls says how model calls are made.
	Calls CallConfig
	// MaxBody bounds the body of a request in bytes; 0 means 64 MiB.
	MaxBody int64
	// Logger is told of faults. Nil means none.
	Logger *slog.Logger
}

const defaultMaxBody = 64 << 20

// NewHandler serves the protocol, [Config] says over what.
func NewHandler(c Config) (http.Handler, error) {
	if c.Store == nil || c.Proxy == nil {
		return nil, errors.New("gateway: Store and Proxy must be set")
	}
	if err := c.Calls.validate(); err != nil {
		return nil, err
	}
	if c.MaxBody <= 0 {
		c.MaxBody = defaultMaxBody
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &handler{store: c.Store, gate: c.Proxy.Gate(), proxy: c.Proxy, calls: c.Calls, maxBody: c.MaxBody, log: c.Logger}, nil
}

type handler struct {
	store   Store
	gate    *llmproxy.Gate
	proxy   *llmproxy.Proxy
	calls   CallConfig
	maxBody int64
	log     *slog.Logger
}

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	route, p := find(r.URL.EscapedPath())
	if route == nil {
		if at, ok := withoutSlash(r.URL); ok {
			w.Header().Set("Location", at)
			w.WriteHeader(http.StatusTemporaryRedirect)
			return
		}
		writeDetail(w, http.StatusNotFound, "Not Found")
		return
	}
	serve := route.methods[r.Method]
	if serve == nil {
		w.Header().Set("Allow", route.allow)
		writeDetail(w, http.StatusMethodNotAllowed, "Method Not Allowed")
		return
	}
	serve(h, w, r, p)
}

// read reads and checks the body of a request; it answers the caller when it
// cannot.
func (h *handler) read(w http.ResponseWriter, r *http.Request, f *form) (field, bool) {
	text, ok := h.readText(w, r)
	if !ok {
		return field{}, false
	}
	body, ok := f.readBody(text)
	if !ok {
		h.refused(w, f)
	}
	return body, ok
}

func (h *handler) readText(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.maxBody))
	if err == nil {
		return text, true
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		writeDetail(w, http.StatusRequestEntityTooLarge, "the body has more than "+strconv.FormatInt(h.maxBody, 10)+" bytes; send it in parts")
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		writeDetail(w, http.StatusRequestTimeout, "the body did not arrive in time; send it again")
	} else {
		writeDetail(w, http.StatusBadRequest, "the body cannot be read: "+err.Error())
	}
	return nil, false
}

// refused answers a request in which something is wrong, and reports whether
// there was.
func (h *handler) refused(w http.ResponseWriter, f *form) bool {
	if len(f.problems) == 0 {
		return false
	}
	writeJSON(w, http.StatusUnprocessableEntity, f.appendJSON(nil))
	return true
}

// failOf is fail for a request that names a rollout, which may not exist.
func (h *handler) failOf(w http.ResponseWriter, r *http.Request, rolloutID string, err error) {
	if errors.Is(err, store.ErrNotFound) {
		if _, look := h.store.Rollout(r.Context(), rolloutID); errors.Is(look, store.ErrNotFound) {
			writeDetail(w, http.StatusNotFound, "Rollout not found: "+rolloutID)
			return
		}
	}
	h.fail(w, r, err)
}

// fail answers with what the store says.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusInternalServerError
	switch {
	case errors.Is(context.Cause(r.Context()), store.ErrClosed): // the caller is still there
		w.Header().Set("Retry-After", "1")
		writeDetail(w, http.StatusServiceUnavailable, "the server is stopping; try again in a moment")
		return
	case r.Context().Err() != nil:
		return // nobody is there to read an answer
	case errors.Is(err, store.ErrNotFound):
		status = http.StatusNotFound
	case errors.Is(err, store.ErrConflict):
		status = http.StatusConflict
	case errors.Is(err, store.ErrInvalid):
		status = http.StatusUnprocessableEntity
	case errors.Is(err, store.ErrFull):
		status = http.StatusInsufficientStorage
	case errors.Is(err, store.ErrClosed):
		status = http.StatusServiceUnavailable
	}
	if status != http.StatusInternalServerError {
		writeDetail(w, status, err.Error())
		return
	}
	h.log.ErrorContext(r.Context(), "request failed", "method", r.Method, "path", r.URL.Path, "err", err)
	out := jsonx.AppendString([]byte(`{"detail":"internal error","error_type":"InternalError","request_id":`), w.Header().Get("x-request-id"))
	writeJSON(w, status, append(out, '}'))
}

func (h *handler) health(w http.ResponseWriter, _ *http.Request, _ params) {
	writeJSON(w, http.StatusOK, []byte(`{"status":"ok"}`))
}

func writeDetail(w http.ResponseWriter, status int, text string) {
	writeJSON(w, status, appendDetail(nil, text))
}

func appendDetail(dst []byte, text string) []byte {
	return append(jsonx.AppendString(append(dst, `{"detail":`...), text), '}')
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the peer is gone when this fails; nothing is left to tell it
}
