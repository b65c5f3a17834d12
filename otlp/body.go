package otlp

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
)

// unpack reads the body, through gzip when it says so. Other encodings are
// taken as they are.
func (h *handler) unpack(r *http.Request) ([]byte, error) {
	body := io.Reader(http.MaxBytesReader(nil, r.Body, h.limit))
	packed := strings.EqualFold(strings.TrimSpace(r.Header.Get("Content-Encoding")), "gzip")
	if packed {
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, unreadable(err)
		}
		body = io.LimitReader(z, h.limit+1)
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		if !packed && !isTooLarge(err) {
			return nil, err // the exporter went away
		}
		return nil, unreadable(err)
	}
	if int64(len(raw)) > h.limit {
		return nil, errTooLarge
	}
	return raw, nil
}

var errTooLarge = &refusal{http.StatusRequestEntityTooLarge, "the export is too large for this server; send fewer spans at a time"}

func isTooLarge(err error) bool {
	var most *http.MaxBytesError
	return errors.As(err, &most)
}

func unreadable(err error) error {
	if isTooLarge(err) {
		return errTooLarge
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return os.ErrDeadlineExceeded
	}
	return &refusal{http.StatusBadRequest, "the body is not valid gzip: " + err.Error()}
}

// responder writes answers in the encodings that the exporter wants.
type responder struct {
	http.ResponseWriter
	json, gzip bool
}

func (w *responder) write(status int, body []byte) {
	header := w.Header()
	header.Set("Content-Type", protobuf)
	if w.json {
		header.Set("Content-Type", "application/json")
	}
	if w.gzip {
		header.Set("Content-Encoding", "gzip")
		w.WriteHeader(status)
		z := gzip.NewWriter(w)
		_, _ = z.Write(body) // a lost answer makes the exporter send again; duplicates are dropped
		_ = z.Close()
		return
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// acceptsGzip reports whether gzip is listed, whatever its weight.
func acceptsGzip(header http.Header) bool {
	for _, line := range header["Accept-Encoding"] {
		for part := range strings.SplitSeq(line, ",") {
			name, _, _ := strings.Cut(part, ";")
			if strings.EqualFold(strings.TrimSpace(name), "gzip") {
				return true
			}
		}
	}
	return false
}
