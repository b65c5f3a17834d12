package storehttp

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"agentlightning/store"
)

// Config configures [NewHandler]. The zero value serves.
type Config struct {
	// Logger gets faults of the server and claims that were undone; nil discards.
	Logger *slog.Logger
	// CORSOrigins are the origins whose pages may call, "*" for any; empty
	// leaves CORS off. See [CORS].
	CORSOrigins []string
	// MaxBody limits a request body in bytes; 0 means 1 GiB.
	MaxBody int64
	// MaxWait limits how long a dequeue waits for work; 0 means a minute.
	MaxWait time.Duration
	// KeyLifetime is how long the answer of a request with an Idempotency-Key
	// is kept; 0 means ten minutes.
	KeyLifetime time.Duration
	// PublicURL is the address of the server as agents reach it, which answers
	// name; empty takes that of the request.
	PublicURL string
	// Tokens signs what is issued for attempts; nil issues tokens that open
	// nothing, for a server that asks for none.
	Tokens TokenSigner
	// Browser, Feed, Queue and Delete serve people who look: finding rollouts,
	// telling what changes, the length of the queue with the wait of its front in
	// seconds, removing a rollout. Nil means that the server cannot do it, which
	// its capabilities say.
	Browser store.Browser
	Feed    store.Feed
	Queue   func(context.Context) (length int, seconds float64, err error)
	Delete  func(ctx context.Context, rolloutID string) error
	// Rescorer scores rollouts again; nil means that the server cannot.
	Rescorer Rescorer
	// Pruner deletes what ended long ago; nil means that the server cannot.
	Pruner Pruner
	// History remembers how the server fared, Backends tells of its model backends
	// and keeps calls from them; nil means that the server does not.
	History  Historian
	Backends Backends
	// Checks looks at what the server needs; nil means that it cannot.
	Checks Checker
	// Version is that of the server, as its capabilities say it.
	Version string
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.MaxBody = cmp.Or(c.MaxBody, 1<<30)
	c.MaxWait = cmp.Or(c.MaxWait, time.Minute)
	c.KeyLifetime = cmp.Or(c.KeyLifetime, 10*time.Minute)
	if c.Tokens == nil {
		c.Tokens = unchecked{}
	}
	return c
}

// handler serves the store protocol. It answers every request it gets: paths
// that are not of the protocol are 404, or 405 when the method is not GET.
type handler struct {
	store   store.Store
	spans   store.EncodedSpans // of store, as streams is
	streams store.Streams
	config  Config
	routes  []route
	keys    *keyring
	turns   turns
	buffers buffers

	checking sync.Mutex // held while Checks runs
}

// NewHandler returns the protocol's handler over a store, which stays the caller's to close.
func NewHandler(s store.Store, config Config) http.Handler {
	config = config.withDefaults()
	h := &handler{store: s, spans: store.Encoded(s), streams: store.Streamed(s), config: config, routes: routes(), keys: newKeyring(config.KeyLifetime)}
	return CORS(config.CORSOrigins, h)
}

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	requestID := RequestID(w)
	route, params, allow := match(h.routes, r.Method, r.URL.Path)
	switch {
	case route != nil:
	case r.Method == http.MethodGet:
		// Pages are served by GET at any path that is nothing else, so a GET
		// is never the wrong method, only the wrong path.
		_ = write(w, http.StatusNotFound, detailBody("Not Found"))
		return
	default:
		w.Header().Set("Allow", cmp.Or(allow, http.MethodGet))
		_ = write(w, http.StatusMethodNotAllowed, detailBody("Method Not Allowed"))
		return
	}
	c := &call{Request: r, params: params}
	a := h.answer(r.Context(), route, c, requestID)
	if a.list != nil {
		var sent bool
		if a, sent = h.sendList(r.Context(), w, a.list, requestID); sent {
			if a.err != nil {
				h.config.Logger.WarnContext(r.Context(), "a list broke off", "request_id", requestID, "err", a.err)
				panic(http.ErrAbortHandler) //nolint:forbidigo // net/http then cuts the answer off, so that the client sees that the rest is missing
			}
			return
		}
	}
	if a.stream != nil {
		a.stream(r.Context(), w)
		return
	}
	if a.err != nil {
		a.status, a.body = failure(a.err, requestID)
		if a.status == http.StatusInternalServerError || a.status == http.StatusInsufficientStorage {
			h.config.Logger.ErrorContext(r.Context(), "request failed", "method", r.Method, "path", r.URL.Path,
				"request_id", requestID, "err", a.err)
		}
		if a.status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
	}
	if a.header[0] != "" {
		w.Header().Set(a.header[0], a.header[1])
	}
	h.deliver(r.Context(), w, a)
}

// answer runs the route; a panic in it is a fault like any other.
func (h *handler) answer(ctx context.Context, route *route, c *call, requestID string) (a answer) {
	defer h.rescue(ctx, requestID, &a)
	return route.serve(h, c)
}

// rescue, when deferred, makes a failed answer of a panic.
func (h *handler) rescue(ctx context.Context, requestID string, a *answer) {
	if p := recover(); p != nil {
		h.config.Logger.ErrorContext(ctx, "panic in a request", "request_id", requestID,
			"panic", p, "stack", string(debug.Stack()))
		*a = failed(errors.New("panic"))
	}
}

// deliver writes the answer. When it cannot be read by anybody, what the
// request did is undone where that is possible.
func (h *handler) deliver(ctx context.Context, w http.ResponseWriter, a answer) {
	if a.undo == nil {
		_ = write(w, a.status, a.body) // nothing follows from an answer that is lost
		return
	}
	if ctx.Err() != nil {
		a.undo(ctx)
		return
	}
	watch := watchedConn(ctx)
	if watch != nil {
		watch.expect(func() { a.undo(ctx) })
	}
	err := write(w, a.status, a.body)
	if err == nil {
		err = http.NewResponseController(w).Flush()
	}
	switch {
	case err == nil || errors.Is(err, http.ErrNotSupported):
	case watch != nil:
		watch.lost()
	default:
		a.undo(ctx)
	}
}

// write sends a JSON answer and reports whether that worked.
func write(w http.ResponseWriter, status int, body []byte) error {
	header := w.Header()
	header["Content-Type"] = jsonType
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, err := w.Write(body)
	if errors.Is(err, http.ErrBodyNotAllowed) { // HEAD
		return nil
	}
	return err
}

var jsonType = []string{"application/json"}

const requestIDHeader = "X-Request-Id"

// RequestID returns the id that the answer carries in X-Request-Id, making one
// when no handler before did.
func RequestID(w http.ResponseWriter) string {
	if id := w.Header().Get(requestIDHeader); id != "" {
		return id
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	id := hex.EncodeToString(b[:])
	w.Header().Set(requestIDHeader, id)
	return id
}

// detached keeps the values of a request but not its end, for what must be
// done although the client is gone.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
}
