package storehttp

import (
	"context"
	"net/http"
	"strconv"
)

const (
	// streamFrom is from which size on a list is sent while it is still read. What
	// is shorter is one answer with a length, and an error in it is answered as any.
	streamFrom = 256 << 10
	// longPage is from how many items on a page is read as a stream.
	longPage = 256
)

// long reports whether a page may be too large to have it in memory.
func (p page) long() bool { return p.limit < 0 || p.limit > longPage }

// list is an answer of any length: a page that is sent while it is read.
type list struct {
	page page
	// read writes the items in order, and returns the number of matches.
	read func(*listWriter) (total int, err error)
}

// listWriter writes the items of a list.
type listWriter struct {
	w      http.ResponseWriter
	buffer []byte
	sent   bool // the beginning, so that the answer cannot become another one
	items  int
}

// next returns what the next item is to be appended to.
func (l *listWriter) next() []byte {
	if l.items > 0 {
		l.buffer = append(l.buffer, ',')
	}
	l.items++
	return l.buffer
}

// put takes what [listWriter.next] returned back, with the item.
func (l *listWriter) put(buffer []byte) error {
	if l.buffer = buffer; len(buffer) < streamFrom {
		return nil
	}
	return l.send()
}

func (l *listWriter) send() error {
	if !l.sent {
		l.w.Header()["Content-Type"] = jsonType
		l.w.WriteHeader(http.StatusOK)
		l.sent = true
	}
	_, err := l.w.Write(l.buffer)
	l.buffer = l.buffer[:0]
	return err
}

// sendList reads a list. What is short, and what failed before anything was sent,
// it returns as an answer; otherwise sent is true.
func (h *handler) sendList(ctx context.Context, w http.ResponseWriter, l *list, requestID string) (a answer, sent bool) {
	out := &listWriter{w: w, buffer: append(make([]byte, 0, 4096), `{"items":[`...)}
	defer func() { sent = out.sent }()
	defer h.rescue(ctx, requestID, &a)
	total, err := l.read(out)
	if err != nil {
		return failed(err), out.sent
	}
	out.buffer = l.page.appendEnd(out.buffer, total)
	if !out.sent {
		return ok(out.buffer), false
	}
	return answer{err: out.send()}, true
}

// appendEnd appends what follows the items of a page.
func (p page) appendEnd(dst []byte, total int) []byte {
	dst = append(dst, `],"limit":`...)
	dst = strconv.AppendInt(dst, int64(p.limit), 10)
	dst = append(dst, `,"offset":`...)
	dst = strconv.AppendInt(dst, int64(p.offset), 10)
	dst = append(dst, `,"total":`...)
	dst = strconv.AppendInt(dst, int64(total), 10)
	return append(dst, '}')
}
