package otlp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"strconv"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/protobuf/encoding/protowire"

	agl "agentlightning"
	"agentlightning/store"
)

// TracesPath is where exporters send traces to.
const TracesPath = "/v1/traces"

// Serves reports whether a path belongs to [NewHandler].
func Serves(path string) bool { return path == TracesPath || unsupported(path) }

func unsupported(path string) bool {
	switch path {
	case "/v1/metrics", "/v1/logs", "/v1/development/profiles":
		return true
	}
	return false
}

// SpanWriter is where the spans go; every [store.Store] is one.
type SpanWriter interface {
	AddSpans(ctx context.Context, spans []agl.Span) ([]store.AddedSpan, error)
	NextSequenceIDs(ctx context.Context, attempts []store.Attempted) ([]int64, error)
}

// Config configures the handler. The zero value serves.
type Config struct {
	// Logger gets what was left out and faults of the store; nil discards.
	Logger *slog.Logger
	// MaxBody limits a request in bytes, as sent and unpacked; 0 means 256 MiB.
	MaxBody int64
	// Permit refuses the spans of attempts that the caller may not touch; they
	// count as rejected. Nil permits all.
	Permit func(ctx context.Context, at store.Attempted) error
}

type handler struct {
	in    *Receiver
	log   *slog.Logger
	limit int64
}

// NewHandler returns the handler of the paths that [Serves] names.
func NewHandler(spans SpanWriter, config Config) http.Handler {
	in := NewReceiver(spans, config)
	return &handler{in: in, log: in.log, limit: cmp.Or(config.MaxBody, 256<<20)}
}

const protobuf = "application/x-protobuf"

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodGet: // as any page that does not exist
		writeDetail(w, http.StatusNotFound, "Not Found")
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		writeDetail(w, http.StatusMethodNotAllowed, "Method Not Allowed")
	case r.URL.Path == TracesPath:
		h.traces(w, r)
	default:
		w.WriteHeader(http.StatusNotImplemented)
	}
}

func writeDetail(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"detail":%q}`, detail)
}

// refusal is a request that is answered with a status and the reason.
type refusal struct {
	status int
	reason string
}

func (r *refusal) Error() string { return r.reason }

func (h *handler) traces(w http.ResponseWriter, r *http.Request) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	out := responder{ResponseWriter: w, json: kind == "application/json", gzip: acceptsGzip(r.Header)}
	traces, err := h.read(r, kind)
	if err == nil {
		var result Rejected
		if result, err = h.in.Receive(r.Context(), traces); err == nil {
			out.success(result)
			return
		}
	}
	if refused := (*refusal)(nil); errors.As(err, &refused) {
		out.refuse(refused)
		return
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		out.refuse(&refusal{http.StatusRequestTimeout, "the export did not arrive in time; send it again"})
		return
	}
	if r.Context().Err() != nil {
		return // nobody listens any more
	}
	h.log.ErrorContext(r.Context(), "cannot store an export", "err", err, "request_id", w.Header().Get("X-Request-Id"))
	if errors.Is(err, store.ErrClosed) {
		w.Header().Set("Retry-After", "1")
		out.refuse(&refusal{http.StatusServiceUnavailable, "the server is shutting down; try again in a moment"})
		return
	}
	if errors.Is(err, store.ErrFull) {
		out.refuse(&refusal{http.StatusInsufficientStorage, "the disk of the server is full; nothing was stored"})
		return
	}
	out.refuse(&refusal{http.StatusInternalServerError, "internal error"})
}

// read decodes the body.
func (h *handler) read(r *http.Request, kind string) (ptrace.Traces, error) {
	if kind != protobuf && kind != "application/json" {
		return ptrace.Traces{}, &refusal{http.StatusBadRequest, fmt.Sprintf(
			"Unsupported Content-Type '%s', expected '%s'", r.Header.Get("Content-Type"), protobuf)}
	}
	body, err := h.unpack(r)
	if err != nil {
		return ptrace.Traces{}, err
	}
	traces := ptrace.NewTraces()
	if kind == protobuf {
		traces, err = Unmarshal(body)
	} else if len(body) > 0 {
		traces, err = new(ptrace.JSONUnmarshaler).UnmarshalTraces(body)
	}
	if err != nil {
		return ptrace.Traces{}, &refusal{http.StatusBadRequest, "Unable to parse OTLP traces payload: " + err.Error()}
	}
	return traces, nil
}

// success answers an export.
func (w *responder) success(o Rejected) {
	var body []byte
	switch {
	case w.json && o.Spans == 0:
		body = []byte("{}")
	case w.json:
		// 64-bit integers are strings in OTLP's JSON.
		partial := map[string]string{"rejectedSpans": strconv.FormatInt(o.Spans, 10), "errorMessage": o.Reason}
		body, _ = json.Marshal(map[string]any{"partialSuccess": partial})
	default:
		body = o.MarshalProto()
	}
	w.write(http.StatusOK, body)
}

// refuse answers with a google.rpc.Status, in which the code stays 0.
func (w *responder) refuse(r *refusal) {
	// Only exporters that sent JSON we could have read are answered in it.
	body := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), r.reason)
	if w.json {
		body, _ = json.Marshal(map[string]string{"message": r.reason})
	}
	w.write(r.status, body)
}
