package llmproxy

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// maxShort is up to which size a request is short: what sockets buffer, so
	// that it is written before anything has to be read.
	maxShort = 64 << 10
	// maxHead bounds the header of an answer, and maxInterim how many answers
	// may announce the one that counts.
	maxHead    = 10 << 20
	maxInterim = 5
	// idleConnTimeout is how long a connection is kept that nobody uses.
	idleConnTimeout = 90 * time.Second
	connBuffer      = 16 << 10
)

// transport calls backends. Short requests over plain HTTP are written and their
// answers read by the goroutine of the call. [http.Transport] has two goroutines
// for each connection, and to switch to them and back takes as long as all else
// that the proxy does for a call; it gets the rest.
type transport struct {
	general *http.Transport
	dialer  *net.Dialer

	mu     sync.Mutex
	idle   map[string][]*backendConn // by address; the last one was used last
	closed bool
}

func newTransport(connect time.Duration) *transport {
	dialer := &net.Dialer{Timeout: connect, KeepAlive: 30 * time.Second}
	return &transport{
		dialer: dialer,
		idle:   map[string][]*backendConn{},
		general: &http.Transport{
			DialContext:         dialer.DialContext,
			TLSHandshakeTimeout: connect,
			ForceAttemptHTTP2:   true,
			DisableCompression:  true, // what is captured is what was sent
			// An agent's calls come in bursts: hundreds of connections that are
			// idle now are needed again in a moment.
			MaxIdleConns:        0,
			MaxIdleConnsPerHost: 4096,
			IdleConnTimeout:     idleConnTimeout,
			WriteBufferSize:     connBuffer,
			ReadBufferSize:      connBuffer,
		},
	}
}

// RoundTrip implements [http.RoundTripper]. The body of the answer is for one
// goroutine.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "http" || req.ContentLength <= 0 || req.ContentLength > maxShort || req.GetBody == nil || !ascii(req.URL.Host) {
		return t.general.RoundTrip(req)
	}
	defer func() { _ = req.Body.Close() }()
	address := net.JoinHostPort(req.URL.Hostname(), cmp.Or(req.URL.Port(), "80"))
	c := t.take(address)
	if c != nil {
		resp, err := c.call(req)
		if err == nil || c.answered || req.Context().Err() != nil {
			return resp, err
		}
		// The backend had closed the connection while it was idle.
		again := req.WithContext(req.Context())
		if again.Body, err = req.GetBody(); err != nil {
			return nil, err
		}
		req = again
	}
	conn, err := t.dialer.DialContext(req.Context(), "tcp", address)
	if err != nil {
		return nil, err
	}
	c = &backendConn{Conn: conn, t: t, address: address}
	c.r, c.w = bufio.NewReaderSize(c, connBuffer), bufio.NewWriterSize(conn, connBuffer)
	return c.call(req)
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// take returns an idle connection that is still good, nil when there is none.
func (t *transport) take(address string) *backendConn {
	for {
		t.mu.Lock()
		idle := t.idle[address]
		if len(idle) == 0 {
			t.mu.Unlock()
			return nil
		}
		c := idle[len(idle)-1]
		idle[len(idle)-1] = nil
		t.idle[address] = idle[:len(idle)-1]
		t.mu.Unlock()
		c.timer.Stop()
		if quiet(c.Conn) {
			return c
		}
		_ = c.Close() // by the backend, too
	}
}

// keep holds a connection for the next call.
func (t *transport) keep(c *backendConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		_ = c.Close()
		return
	}
	if c.timer == nil {
		c.timer = time.AfterFunc(idleConnTimeout, func() { t.drop(c) })
	} else {
		c.timer.Reset(idleConnTimeout)
	}
	t.idle[c.address] = append(t.idle[c.address], c)
}

// drop closes a connection that was idle for long, unless it was just taken.
func (t *transport) drop(c *backendConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	idle := t.idle[c.address]
	i := slices.Index(idle, c)
	if i < 0 {
		return
	}
	if idle = slices.Delete(idle, i, i+1); len(idle) == 0 {
		delete(t.idle, c.address)
	} else {
		t.idle[c.address] = idle
	}
	_ = c.Close()
}

// close closes what is idle, now and later.
func (t *transport) close() {
	t.general.CloseIdleConnections()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, idle := range t.idle {
		for _, c := range idle {
			c.timer.Stop()
			_ = c.Close()
		}
	}
	clear(t.idle)
}

// backendConn is a connection to a backend. One call at a time uses it.
type backendConn struct {
	net.Conn
	t       *transport
	address string
	r       *bufio.Reader
	w       *bufio.Writer
	timer   *time.Timer // closes it when it is idle for long; nil before it was

	head     int64 // how much the header of an answer may still take; negative after it
	answered bool  // something of the answer has come
}

var errHead = fmt.Errorf("the header of the answer is longer than %d bytes", maxHead)

// Read reads for the buffer of the connection.
func (c *backendConn) Read(p []byte) (int, error) {
	if c.head == 0 {
		return 0, errHead
	}
	if c.head > 0 {
		p = p[:min(int64(len(p)), c.head)]
	}
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.answered = true
		if c.head > 0 {
			c.head -= int64(n)
		}
	}
	return n, err
}

// call sends a request and reads the answer up to its body. After an error the
// connection is closed.
func (c *backendConn) call(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	resp, err := c.exchange(req)
	if err != nil {
		stop()
		_ = c.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	body := &backendBody{c: c, ctx: ctx, src: resp.Body, stop: stop, reuse: !resp.Close && !req.Close && resp.StatusCode != http.StatusSwitchingProtocols}
	if resp.Body == http.NoBody {
		body.end(true)
	} else {
		resp.Body = body
	}
	return resp, nil
}

func (c *backendConn) exchange(req *http.Request) (*http.Response, error) {
	c.head, c.answered = maxHead, false
	if err := req.Write(c.w); err != nil {
		return nil, err
	}
	if err := c.w.Flush(); err != nil {
		return nil, err
	}
	for range maxInterim {
		resp, err := http.ReadResponse(c.r, req)
		if err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) && !c.answered {
				err = io.EOF
			}
			return nil, err
		}
		if resp.StatusCode >= http.StatusOK || resp.StatusCode == http.StatusSwitchingProtocols {
			c.head = -1
			return resp, nil
		}
	}
	return nil, fmt.Errorf("more than %d answers that only announce one", maxInterim)
}

// backendBody is the body of an answer. At its end the connection is free for
// the next call.
type backendBody struct {
	c     *backendConn
	ctx   context.Context //nolint:containedctx // that of the request, which ends reading
	src   io.Reader
	stop  func() bool
	reuse bool
	ended bool
	err   error // of the read that was the last
}

// Read implements [io.Reader].
func (b *backendBody) Read(p []byte) (int, error) {
	if b.ended {
		return 0, b.err
	}
	n, err := b.src.Read(p)
	if err != nil {
		if !errors.Is(err, io.EOF) && b.ctx.Err() != nil {
			err = context.Cause(b.ctx)
		}
		b.err = err
		b.end(errors.Is(err, io.EOF))
	}
	return n, err
}

// Close implements [io.Closer]. What has not been read will not be: the backend
// learns that nobody waits for it.
func (b *backendBody) Close() error {
	if !b.ended {
		b.err = http.ErrBodyReadAfterClose
	}
	b.end(false)
	return nil
}

// end gives the connection back, or closes it when the answer did not come to
// its end.
func (b *backendBody) end(whole bool) {
	if b.ended {
		return
	}
	b.ended = true
	if free := b.stop(); free && whole && b.reuse && b.c.r.Buffered() == 0 {
		b.c.t.keep(b.c)
		return
	}
	_ = b.c.Close()
}
