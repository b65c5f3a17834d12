package storehttp

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// WatchConns makes the server notice a peer that reset its connection before it
// read an answer, so that the claim in the answer is undone. Call it before
// Serve and serve the listener that it returns. The reset is visible on Linux
// and for TCP, below TLS too; elsewhere a claim is undone only when writing it fails.
func WatchConns(server *http.Server, l net.Listener) net.Listener {
	next := server.ConnContext
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if next != nil {
			ctx = next(ctx, c)
		}
		if t, ok := c.(*tls.Conn); ok {
			c = t.NetConn()
		}
		if w, ok := c.(*watched); ok {
			ctx = context.WithValue(ctx, watchedKey{}, w)
		}
		return ctx
	}
	return &watchingListener{l}
}

type watchedKey struct{}

// watchedConn returns the connection of a request, nil when it is not watched.
func watchedConn(ctx context.Context) *watched {
	w, _ := ctx.Value(watchedKey{}).(*watched)
	return w
}

type watchingListener struct{ net.Listener }

func (l *watchingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok && err == nil {
		return &watched{TCPConn: tcp}, nil
	}
	return c, err
}

// watched is a connection whose last answer may have to be undone. The server
// reads from it all the time, for the next request or to notice its end, so
// whatever becomes of the answer shows in a Read: bytes mean that the peer has
// it and asks again; a reset, that it was never read; the end of the stream,
// that it was read if the peer's kernel acknowledged all of it, for a kernel
// resets a connection that is closed over unread bytes.
type watched struct {
	*net.TCPConn

	mu      sync.Mutex
	undo    func()
	expires time.Time
}

// undeliveredFor is how long an answer may count as unread. A connection that
// breaks later than that does so for another reason, while the peer works.
const undeliveredFor = 30 * time.Second

// expect says that an answer is about to be written, and what to do if it is lost.
func (w *watched) expect(undo func()) {
	w.mu.Lock()
	w.undo, w.expires = undo, time.Now().Add(undeliveredFor)
	w.mu.Unlock()
}

// lost says that the answer was not read; what it promised is undone once.
func (w *watched) lost() {
	if undo := w.take(); undo != nil {
		undo()
	}
}

func (w *watched) take() func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	undo := w.undo
	w.undo = nil
	return undo
}

// Read implements [net.Conn].
func (w *watched) Read(b []byte) (int, error) {
	n, err := w.TCPConn.Read(b)
	switch {
	case n > 0:
		w.take()
	case err == nil || isTimeout(err):
	case w.pending() && unread(w.TCPConn, err):
		w.lost()
	}
	return n, err
}

func (w *watched) pending() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.undo != nil && time.Now().Before(w.expires)
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[net.Error](err)
	return ok && t.Timeout()
}
