package llmproxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// scripted is a backend that says what a test wants, byte by byte: it reads a
// request and lets the next step of the script answer. When it returns false
// the connection is closed. Without a step that is left it is closed too.
type scripted struct {
	listener net.Listener
	conns    atomic.Int32 // that were made
	requests chan string  // bodies, as they arrive
}

func script(t *testing.T, steps ...func(conn net.Conn) bool) *scripted {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scripted{listener: listener, requests: make(chan string, 100)}
	next := make(chan func(net.Conn) bool, len(steps))
	for _, step := range steps {
		next <- step
	}
	close(next)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.conns.Add(1)
			s.serve(conn, next)
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	return s
}

func (s *scripted) serve(conn net.Conn, next <-chan func(net.Conn) bool) {
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, _ := io.ReadAll(req.Body)
		s.requests <- string(body)
		if step, ok := <-next; !ok || !step(conn) {
			return
		}
	}
}

// says answers with a text and keeps the connection.
func says(text string) func(net.Conn) bool {
	return func(conn net.Conn) bool {
		_, err := io.WriteString(conn, text)
		return err == nil
	}
}

// last answers with a text and closes the connection.
func last(text string) func(net.Conn) bool {
	return func(conn net.Conn) bool {
		says(text)(conn)
		return false
	}
}

func (s *scripted) request(ctx context.Context, t *testing.T, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.listener.Addr().String()+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func direct(t *testing.T) *transport {
	t.Helper()
	tr := newTransport(time.Second)
	t.Cleanup(tr.close)
	return tr
}

// ask makes a call and reads its answer to the end.
func (s *scripted) ask(t *testing.T, tr *transport, body string) (string, error) {
	t.Helper()
	resp, err := tr.RoundTrip(s.request(t.Context(), t, body))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

const hello = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"

func TestConnectionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer string
		step   func(string) func(net.Conn) bool
		conns  int32 // that two calls take
	}{
		"of known length":             {hello, says, 1},
		"in chunks":                   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", says, 1},
		"in chunks with a trailer":    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", says, 1},
		"announced":                   {"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + hello, says, 1},
		"of HTTP/1.0":                 {"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", says, 2},
		"that says it is the last":    {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello", last, 2},
		"without a length":            {"HTTP/1.1 200 OK\r\n\r\nhello", last, 2},
		"with more than is its share": {hello + "HTTP/1.1 200 OK\r\n", says, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, tr := script(t, c.step(c.answer), c.step(c.answer)), direct(t)
			for range 2 {
				if text, err := s.ask(t, tr, "ask"); err != nil || text != "hello" {
					t.Fatalf("answer is %q, %v", text, err)
				}
				if body := <-s.requests; body != "ask" {
					t.Errorf("the backend was sent %q", body)
				}
			}
			if n := s.conns.Load(); n != c.conns {
				t.Errorf("two calls took %d connections, want %d", n, c.conns)
			}
		})
	}
}

func TestAnswersWithoutABodyFreeTheConnection(t *testing.T) {
	t.Parallel()
	const nothing = "HTTP/1.1 204 No Content\r\n\r\n"
	s, tr := script(t, says(nothing), says(nothing)), direct(t)
	for range 2 {
		if text, err := s.ask(t, tr, "ask"); err != nil || text != "" {
			t.Fatalf("answer is %q, %v", text, err)
		}
	}
	if n := s.conns.Load(); n != 1 {
		t.Errorf("two calls took %d connections, want 1", n)
	}
}

// An answer that is not read to its end takes its connection along.
func TestEarlyCloseEndsTheConnection(t *testing.T) {
	t.Parallel()
	gone := make(chan error, 1)
	s := script(t, func(conn net.Conn) bool {
		says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n")(conn)
		_, err := conn.Read(make([]byte, 1))
		gone <- err
		return false
	}, says(hello))
	tr := direct(t)
	resp, err := tr.RoundTrip(s.request(t.Context(), t, "ask"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-gone; err == nil {
		t.Error("the backend was sent something instead of the end")
	}
	if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("reading a closed body returned %d, %v", n, err)
	}
	if text, err := s.ask(t, tr, "ask"); err != nil || text != "hello" {
		t.Errorf("the next answer is %q, %v", text, err)
	}
}

// A body that breaks off is an error, and goes on being one.
func TestAnswersThatBreakOff(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"of known length": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
		"in chunks":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, tr := script(t, last(answer)), direct(t)
			resp, err := tr.RoundTrip(s.request(t.Context(), t, "ask"))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if string(text) != "hello" || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("read %q, %v", text, err)
			}
			if _, err := resp.Body.Read(make([]byte, 1)); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("the next read returned %v", err)
			}
		})
	}
}

// A connection that the backend closed while it was idle costs nothing; one that
// it closes at the very moment of the next call costs another try, once.
func TestIdleConnectionsThatAreClosed(t *testing.T) {
	t.Parallel()
	silent := func(net.Conn) bool { return false }
	t.Run("before", func(t *testing.T) {
		t.Parallel()
		s, tr := script(t, last(hello), says(hello)), direct(t)
		for range 2 {
			if text, err := s.ask(t, tr, "ask"); err != nil || text != "hello" {
				t.Fatalf("answer is %q, %v", text, err)
			}
			<-s.requests
		}
	})
	t.Run("at the moment", func(t *testing.T) {
		t.Parallel()
		s, tr := script(t, says(hello), silent, says(hello)), direct(t)
		for range 2 {
			if text, err := s.ask(t, tr, "ask"); err != nil || text != "hello" {
				t.Fatalf("answer is %q, %v", text, err)
			}
		}
		if n := s.conns.Load(); n != 2 {
			t.Errorf("%d connections, want 2", n)
		}
		for range 3 {
			if body := <-s.requests; body != "ask" {
				t.Errorf("the backend was sent %q", body)
			}
		}
	})
	t.Run("again", func(t *testing.T) {
		t.Parallel()
		s, tr := script(t, says(hello), silent, silent, says(hello)), direct(t)
		if _, err := s.ask(t, tr, "ask"); err != nil {
			t.Fatal(err)
		}
		if text, err := s.ask(t, tr, "ask"); !errors.Is(err, io.EOF) {
			t.Errorf("answer is %q, %v, want the end of the connection", text, err)
		}
	})
	t.Run("after the answer began", func(t *testing.T) {
		t.Parallel()
		s, tr := script(t, says(hello), last("HTTP/1.1 200 OK\r\nContent-"), says(hello)), direct(t)
		if _, err := s.ask(t, tr, "ask"); err != nil {
			t.Fatal(err)
		}
		if text, err := s.ask(t, tr, "ask"); err == nil {
			t.Errorf("answer is %q, want an error: the backend may have done the work", text)
		}
	})
}

// The end of a call's context ends it at every stage, and says why.
func TestContextEndsACall(t *testing.T) {
	t.Parallel()
	why := errors.New("enough")
	for name, begin := range map[string]string{
		"before the answer":  "",
		"in the header":      "HTTP/1.1 200 OK\r\n",
		"while reading body": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			gone := make(chan error, 1)
			s := script(t, func(conn net.Conn) bool {
				says(begin)(conn)
				cancel(why)
				_, err := conn.Read(make([]byte, 1))
				gone <- err
				return false
			})
			resp, err := direct(t).RoundTrip(s.request(ctx, t, "ask"))
			if err == nil {
				defer resp.Body.Close()
				_, err = io.ReadAll(resp.Body)
			}
			if !errors.Is(err, why) {
				t.Errorf("the call ended with %v", err)
			}
			if err := <-gone; err == nil {
				t.Error("the backend was sent something instead of the end")
			}
		})
	}
}

func TestHeadersOfAnswersAreBounded(t *testing.T) {
	t.Parallel()
	s := script(t, func(conn net.Conn) bool {
		line := "X-Long: " + strings.Repeat("x", 32<<10) + "\r\n"
		says("HTTP/1.1 200 OK\r\n")(conn)
		for says(line)(conn) { // until nobody reads it
		}
		return false
	})
	if text, err := s.ask(t, direct(t), "ask"); !errors.Is(err, errHead) {
		t.Errorf("answer is %.20q, %v", text, err)
	}
}

func TestBackendsThatOnlyAnnounce(t *testing.T) {
	t.Parallel()
	s := script(t, last(strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", maxInterim)))
	if text, err := s.ask(t, direct(t), "ask"); err == nil {
		t.Errorf("answer is %q", text)
	}
}

// Long requests are net/http's, which reads while it writes.
func TestLongRequests(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		http.Error(w, "too long", http.StatusRequestEntityTooLarge) // without reading it
	}))
	defer server.Close()
	tr := direct(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader(strings.Repeat("x", 32<<20)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("status is %d", resp.StatusCode)
	}
}

func TestClosedTransportKeepsNothing(t *testing.T) {
	t.Parallel()
	s, tr := script(t, says(hello), says(hello)), direct(t)
	resp, err := tr.RoundTrip(s.request(t.Context(), t, "ask"))
	if err != nil {
		t.Fatal(err)
	}
	tr.close()
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Error(err)
	}
	_ = resp.Body.Close()
	if tr.take(s.listener.Addr().String()) != nil {
		t.Error("a closed transport kept a connection")
	}
}
