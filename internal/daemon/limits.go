package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// idleTimeout is how long a connection may be without a request.
	idleTimeout = 2 * time.Minute
	// slowestReader is how many bytes a second a client has to take of a long answer.
	slowestReader = 64 << 10
)

// pace is how long a client may take. A peer that is slower holds a connection,
// and memory, for nothing.
type pace struct {
	header     time.Duration // for the header of a request
	bodyPause  time.Duration // without progress of a body
	body       time.Duration // for the whole body
	writePause time.Duration // without progress of an answer; a long one gets more
	// certificate is how often the files of the certificate are looked at, at the most.
	certificate time.Duration
	look        time.Duration // between two samples of the history; 0 leaves it to the history
}

func (p pace) withDefaults() pace {
	return pace{
		cmp.Or(p.header, 30*time.Second), cmp.Or(p.bodyPause, 30*time.Second), cmp.Or(p.body, 10*time.Minute),
		cmp.Or(p.writePause, time.Minute), cmp.Or(p.certificate, time.Second), p.look,
	}
}

const (
	// maxHeaderBytes lets query strings be long: at least 1 MiB of request line.
	// Beyond it net/http answers 431 by itself.
	maxHeaderBytes = 2 << 20
	// maxFieldBytes bounds the header fields, which nobody needs many of.
	maxFieldBytes = 64 << 10
)

// withLimits refuses what is too large before it is read, and bodies that
// arrive too slowly; it counts those that are arriving.
func withLimits(next http.Handler, maxBody int64, p pace, arriving *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := fieldBytes(r.Header); n > maxFieldBytes {
			refuse(w, r, http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf(
				"the header fields of the request have %d bytes; this server takes %d", n, maxFieldBytes))
			return
		}
		if maxBody > 0 {
			if r.ContentLength > maxBody {
				w.Header().Set("Connection", "close") // rather than read and drop it
				refuse(w, r, http.StatusRequestEntityTooLarge, fmt.Sprintf(
					"the body has %d bytes; this server takes %d (--max-body); send it in smaller parts", r.ContentLength, maxBody))
				return
			}
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		}
		if r.ContentLength != 0 {
			body := &hurriedBody{ReadCloser: r.Body, control: http.NewResponseController(w), pause: p.bodyPause, until: time.Now().Add(p.body), arriving: arriving}
			arriving.Add(1)
			defer body.end()
			body.hurry() // although the handler may not read it: the server does
			r.Body = body
		}
		next.ServeHTTP(w, r)
	})
}

func fieldBytes(header http.Header) int {
	n := 0
	for key, values := range header {
		for _, v := range values {
			n += len(key) + len(v) + len(": \r\n")
		}
	}
	return n
}

// hurriedBody is a body that has to keep coming.
type hurriedBody struct {
	io.ReadCloser
	control *http.ResponseController
	pause   time.Duration
	until   time.Time
	set     time.Time // deadline that is set
	ended   bool
	// arriving is one more for this body until it has ended.
	arriving *atomic.Int64
}

// end tells that the body has arrived, or that nobody waits for it any more.
func (b *hurriedBody) end() {
	if !b.ended {
		b.ended = true
		b.arriving.Add(-1)
	}
}

// hurry sets the deadline of what comes next, unless one was set just now.
// Connections that know no deadlines do without.
func (b *hurriedBody) hurry() {
	deadline := time.Now().Add(b.pause)
	if deadline.After(b.until) {
		deadline = b.until
	}
	if deadline.Sub(b.set) < b.pause/16 && !b.set.IsZero() {
		return
	}
	b.set = deadline
	_ = b.control.SetReadDeadline(deadline)
}

// Read implements [io.Reader]. A deadline that passes is an
// [os.ErrDeadlineExceeded]; it stays, since the server, too, would wait for the
// rest of the body.
func (b *hurriedBody) Read(p []byte) (int, error) {
	if b.ended {
		return b.ReadCloser.Read(p)
	}
	b.hurry()
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.end()
		_ = b.control.SetReadDeadline(time.Time{}) // the wait for an answer has no limit here
	}
	return n, err
}

// patientWriter gives every part of an answer its time, so that streams may go
// on for ever, and notes what was answered.
type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	pause   time.Duration
	until   time.Time // deadline of writes that is set
	status  int
	bytes   int64
}

// Unwrap lets [http.ResponseController] find the connection.
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// allow moves the deadline so that n bytes can be written. Most answers are
// short and need no second one.
func (w *patientWriter) allow(n int) {
	need := time.Now().Add(w.pause + time.Duration(n/slowestReader)*time.Second)
	if need.Sub(w.until) < w.pause/4 {
		return
	}
	if w.control.SetWriteDeadline(need) == nil {
		w.until = need
	}
}

// WriteHeader implements [http.ResponseWriter].
func (w *patientWriter) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.allow(0)
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [io.Writer].
func (w *patientWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.allow(len(p))
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}
