package storehttp

import (
	"context"
	"errors"
	"net/http"
	"os"

	"agentlightning/internal/jsonx"
	"agentlightning/store"
)

// refusal is a 4xx that only says why.
type refusal struct {
	status int
	detail string
}

func (r *refusal) Error() string { return r.detail }

// errDisconnected marks a request whose peer is gone: nobody reads the answer.
var errDisconnected = errors.New("the client disconnected")

// failure is the one table from errors to answers. What is left is ours: a 500
// whose text stays in the log, found by the request id.
func failure(err error, requestID string) (status int, body []byte) {
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		return refused.status, detailBody(refused.detail)
	case errors.Is(err, store.ErrNotFound):
		return http.StatusNotFound, valueError(err.Error())
	case errors.Is(err, store.ErrDenied):
		return http.StatusForbidden, detailBody(err.Error())
	case errors.Is(err, store.ErrEnded):
		return http.StatusGone, detailBody(err.Error())
	case errors.Is(err, store.ErrKeyReused):
		return http.StatusUnprocessableEntity, detailBody(err.Error())
	case errors.Is(err, store.ErrConflict):
		return http.StatusConflict, valueError(err.Error())
	case errors.Is(err, store.ErrInvalid):
		return http.StatusBadRequest, detailBody(err.Error())
	case errors.Is(err, store.ErrEvicted):
		return http.StatusInternalServerError, exception("RuntimeError", err.Error())
	case errors.Is(err, store.ErrClosed):
		return http.StatusServiceUnavailable, detailBody("the server is shutting down; try again in a moment")
	case errors.Is(err, store.ErrFull):
		return http.StatusInsufficientStorage, detailBody("the disk of the server is full; nothing was stored")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return http.StatusRequestTimeout, detailBody("the body did not arrive in time; send it again")
	case errors.Is(err, errDisconnected), errors.Is(err, context.Canceled):
		return statusClientClosed, detailBody(errDisconnected.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusServiceUnavailable, detailBody("the request took too long; try again")
	}
	body = append(body, `{"detail":"internal error","error_type":"InternalError","request_id":`...)
	return http.StatusInternalServerError, append(jsonx.AppendString(body, requestID), '}')
}

// statusClientClosed is what logs call a request whose client went away.
const statusClientClosed = 499

func detailBody(detail string) []byte {
	return append(jsonx.AppendString([]byte(`{"detail":`), detail), '}')
}

// valueError is the exception that most mistakes are in the 0.3 protocol.
func valueError(msg string) []byte { return exception("ValueError", msg) }

// exception has the members in which tools of the 0.3 protocol look for the
// reason, without any code in the last one.
func exception(name, msg string) []byte {
	dst := append([]byte(nil), `{"detail":`...)
	dst = jsonx.AppendString(dst, msg)
	dst = jsonx.AppendString(append(dst, `,"error_type":`...), name)
	return append(jsonx.AppendString(append(dst, `,"traceback":`...), name+": "+msg), '}')
}
