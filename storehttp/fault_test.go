package storehttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/storehttp"
)

func listen(tb testing.TB, address string) net.Listener {
	tb.Helper()
	for {
		l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", address)
		if err == nil {
			return l
		}
		select { // the kernel may hold on to it for a moment
		case <-time.After(10 * time.Millisecond):
		case <-tb.Context().Done():
			tb.Fatal(err)
		}
	}
}

// losing runs every request but cuts the connection in place of the first
// answer to each key, as a network does at the worst moment.
func losing(next http.Handler) http.Handler {
	var seen sync.Map
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		if _, again := seen.LoadOrStore(key, true); again || key == "" {
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	})
}

// TestLostAnswers repeats every request that is not repeatable by itself.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	b := setup(t, losing)
	ctx := t.Context()
	quiet(b.server)

	batch := enqueue(t, b.client, "1", "2", "3")
	started, err := b.client.StartRollout(ctx, store.StartRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.StartAttempt(ctx, started.RolloutID, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.AddResources(ctx, nil); err != nil {
		t.Fatal(err)
	}
	updated, err := b.client.UpdateResources(ctx, "mine", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.CreateRun(ctx, agl.Run{}); err != nil {
		t.Fatal(err)
	}
	claimed := dequeue(t, b.client, 0)
	if len(claimed) != 1 || claimed[0].RolloutID != batch[0].RolloutID {
		t.Fatalf("dequeue = %+v, want the rollout that the lost answer named", claimed)
	}
	attempt := store.Attempted{RolloutID: claimed[0].RolloutID, AttemptID: claimed[0].Attempt.AttemptID}
	ids, err := b.client.NextSequenceIDs(ctx, []store.Attempted{attempt, attempt})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(ids) != "[1 2]" {
		t.Errorf("sequence ids = %v, want [1 2]: the lost ones again", ids)
	}
	span := agl.SpanCore{Name: "step", Status: agl.TraceStatus{StatusCode: agl.StatusOK}}.
		Span(attempt.RolloutID, attempt.AttemptID, 1, 0)
	added, err := b.client.AddSpans(ctx, []agl.Span{span})
	if err != nil || !added[0].Stored {
		t.Errorf("AddSpans = %+v, %v, want a stored span", added, err)
	}

	s, err := b.store.Statistics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	runs, err := b.store.Runs(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%d rollouts, %d attempts, %d spans, %d resources at version %d, %d runs",
		s.TotalRollouts, s.TotalAttempts, s.TotalSpans, s.TotalResources, updated.Version, len(runs))
	if want := "4 rollouts, 3 attempts, 1 spans, 2 resources at version 1, 1 runs"; got != want {
		t.Errorf("after repeating: %s, want %s", got, want)
	}
}

func quiet(server *httptest.Server) { server.Config.ErrorLog = nil }

// TestServerRestart kills the server under clients that call and that wait.
func TestServerRestart(t *testing.T) {
	t.Parallel()
	s := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() { _ = s.Close() })
	waiting := make(chan struct{})
	var arrived sync.Once
	handler := storehttp.NewHandler(s, storehttp.Config{})
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived.Do(func() { close(waiting) })
		handler.ServeHTTP(w, r)
	}), "")
	address := server.Listener.Addr().String()
	c := newClient(t, server.URL)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()

	var done sync.WaitGroup
	done.Go(func() {
		got, err := c.DequeueRollouts(ctx, store.DequeueRequest{Limit: 1, Wait: 15 * time.Second})
		if err != nil || len(got) != 1 {
			t.Errorf("dequeue over a restart = %v, %v, want one rollout", got, err)
		}
	})
	<-waiting
	_ = server.Listener.Close() // first, or the client is back before the server is gone
	server.CloseClientConnections()
	server.Close()
	done.Go(func() { // while nobody listens
		if _, err := c.EnqueueRollouts(ctx, []store.EnqueueRequest{{}}); err != nil {
			t.Errorf("enqueue while the server is away: %v", err)
		}
	})
	timer := time.NewTimer(300 * time.Millisecond)
	<-timer.C
	serve(t, handler, address)
	done.Wait()
}

func TestRetryWindow(t *testing.T) {
	t.Parallel()
	l := listen(t, "127.0.0.1:0")
	url := "http://" + l.Addr().String()
	_ = l.Close()
	start := time.Now()
	_, err := newClient(t, url, storehttp.WithRetryWindow(0)).Statistics(t.Context())
	if err == nil || !strings.Contains(err.Error(), "cannot reach the server") || time.Since(start) > time.Second {
		t.Errorf("without a window: %v after %v, want a refusal at once", err, time.Since(start))
	}
	_, err = newClient(t, url, storehttp.WithRetryWindow(200*time.Millisecond)).Statistics(t.Context())
	if err == nil || !strings.Contains(err.Error(), "tried") {
		t.Errorf("with a window: %v, want several tries", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err = newClient(t, url).Statistics(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a deadline: %v, want %v", err, context.DeadlineExceeded)
	}
}

func TestRetriedStatuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status    int
		body      string
		wantTries int32
		wantKind  error
	}{
		{503, `{"detail":"busy"}`, 3, nil},
		{408, `{}`, 3, nil},
		{429, `{}`, 3, nil},
		{502, `<html>`, 3, nil},
		{500, `{"detail":"internal error","error_type":"InternalError","request_id":"x"}`, 3, nil},
		{404, `{"detail":"Rollout x not found","error_type":"ValueError","traceback":"ValueError: Rollout x not found"}`, 1, store.ErrNotFound},
		{500, `{"detail":"Internal server error","error_type":"ValueError","traceback":"Traceback (most recent call last):\nValueError: Rollout x not found\n"}`, 1, store.ErrNotFound},
		{400, `{"detail":"no"}`, 1, store.ErrInvalid},
		{422, `{"detail":[]}`, 1, store.ErrInvalid},
		{409, `{"detail":"exists"}`, 1, store.ErrConflict},
		{401, `{"detail":"no token"}`, 1, store.ErrDenied},
		{403, `{"detail":"no"}`, 1, store.ErrDenied},
		{507, `{"detail":"full"}`, 1, store.ErrFull},
	} {
		t.Run(fmt.Sprint(tt.status, tt.wantKind), func(t *testing.T) {
			t.Parallel()
			var tries atomic.Int32
			b := setup(t, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if tries.Add(1) == 3 {
						next.ServeHTTP(w, r)
						return
					}
					w.WriteHeader(tt.status)
					_, _ = w.Write([]byte(tt.body))
				})
			})
			_, err := b.client.Statistics(t.Context())
			if tries.Load() != tt.wantTries {
				t.Errorf("tries = %d, want %d (%v)", tries.Load(), tt.wantTries, err)
			}
			if tt.wantKind != nil && !errors.Is(err, tt.wantKind) {
				t.Errorf("error = %v, want one that is %q", err, tt.wantKind)
			}
			if (err == nil) != (tt.wantTries == 3) {
				t.Errorf("error = %v after %d tries", err, tries.Load())
			}
		})
	}
}

// peer is a client that can die at any point.
type peer struct {
	net.Conn
	t testing.TB
}

func dial(tb testing.TB, server *httptest.Server) *peer {
	tb.Helper()
	c, err := (&net.Dialer{}).DialContext(tb.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return &peer{c, tb}
}

func (p *peer) dequeue(wait string, header ...string) {
	p.t.Helper()
	_, err := fmt.Fprintf(p, "POST /v1/agl/queues/rollouts/dequeue HTTP/1.1\r\nHost: x\r\nPrefer: wait=%s\r\n%sContent-Length: 0\r\n\r\n",
		wait, strings.Join(header, "\r\n"))
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) read() {
	p.t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(p), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
		p.t.Fatal(err)
	}
}

// answered waits until the server has claimed a rollout for somebody.
func answered(tb testing.TB, s store.Store, rolloutID string) {
	tb.Helper()
	for {
		r, err := s.Rollout(tb.Context(), rolloutID)
		if err != nil {
			tb.Fatal(err)
		}
		if r.Attempt != nil {
			return
		}
		<-time.After(time.Millisecond)
	}
}

// TestUndeliveredClaim lets a runner die around the answer to its dequeue.
func TestUndeliveredClaim(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		die      func(b *bundle, p *peer, rolloutID string)
		returned bool
	}{
		{"killed while the answer waits to be read", func(b *bundle, p *peer, id string) {
			p.dequeue("0")
			answered(p.t, b.store, id)
			<-time.After(20 * time.Millisecond) // the answer is on its way after the claim
			_ = p.Close()                       // over unread bytes, so the kernel resets
		}, true},
		{"reset before reading", func(b *bundle, p *peer, id string) {
			p.dequeue("0")
			answered(p.t, b.store, id)
			_ = p.Conn.(*net.TCPConn).SetLinger(0)
			_ = p.Close()
		}, true},
		{"gone before the answer", func(_ *bundle, p *peer, _ string) {
			p.dequeue("0")
			_ = p.Close()
		}, true},
		{"closed after reading", func(_ *bundle, p *peer, _ string) {
			p.dequeue("0")
			p.read()
			_ = p.Close()
		}, false},
		{"went on after reading", func(_ *bundle, p *peer, _ string) {
			p.dequeue("0")
			p.read()
			p.dequeue("0")
			_ = p.Conn.(*net.TCPConn).SetLinger(0)
			_ = p.Close()
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			id := enqueue(t, b.client, "1")[0].RolloutID
			tt.die(b, dial(t, b.server), id)
			wait := 5 * time.Second
			if !tt.returned {
				wait = 200 * time.Millisecond
			}
			got := dequeue(t, b.client, wait)
			if (len(got) == 1) != tt.returned {
				t.Fatalf("dequeue by another runner = %v, want the rollout back: %v", got, tt.returned)
			}
			if tt.returned && got[0].Attempt.SequenceID != 1 {
				t.Errorf("attempt %d, want 1: a claim that was undone was never made", got[0].Attempt.SequenceID)
			}
		})
	}
}

// TestRepeatedClaim loses the answer to a dequeue with a key and repeats it on
// another connection, before and after the server notices the loss.
func TestRepeatedClaim(t *testing.T) {
	t.Parallel()
	const key = "Idempotency-Key: k\r\n"
	reset := func(p *peer) {
		_ = p.Conn.(*net.TCPConn).SetLinger(0)
		_ = p.Close()
	}
	t.Run("repeated first", func(t *testing.T) {
		t.Parallel()
		b := setup(t, nil)
		id := enqueue(t, b.client, "1")[0].RolloutID
		first, second := dial(t, b.server), dial(t, b.server)
		first.dequeue("0", key)
		answered(t, b.store, id)
		second.dequeue("0", key)
		second.read()
		reset(first)
		if got := dequeue(t, b.client, 200*time.Millisecond); len(got) != 0 {
			t.Errorf("rollout %s was handed out twice", got[0].RolloutID)
		}
	})
	t.Run("lost first", func(t *testing.T) {
		t.Parallel()
		b := setup(t, nil)
		id := enqueue(t, b.client, "1")[0].RolloutID
		first := dial(t, b.server)
		first.dequeue("0", key)
		answered(t, b.store, id)
		reset(first)
		got, err := b.client.DequeueRollouts(t.Context(), store.DequeueRequest{Limit: 1, Wait: 5 * time.Second, Key: "k"})
		if err != nil || len(got) != 1 || got[0].RolloutID != id {
			t.Fatalf("the repeated dequeue = %v, %v, want rollout %s", got, err, id)
		}
		if r, err := b.store.Rollout(t.Context(), id); err != nil || r.Attempt == nil || r.Attempt.AttemptID != got[0].Attempt.AttemptID {
			t.Errorf("rollout = %+v, %v, want the attempt that was handed out", r, err)
		}
	})
}

// TestOvertakenClaim lets the repetition of a dequeue arrive before it.
func TestOvertakenClaim(t *testing.T) {
	t.Parallel()
	arrived, goOn := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	b := setup(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Idempotency-Key") == "k" && !first.Swap(true) {
				close(arrived)
				<-goOn
			}
			next.ServeHTTP(w, r)
		})
	})
	p := dial(t, b.server)
	p.dequeue("0", "Idempotency-Key: k\r\n")
	<-arrived
	got, err := b.client.DequeueRollouts(t.Context(), store.DequeueRequest{Limit: 1, Key: "k"})
	if err != nil || len(got) != 0 {
		t.Fatalf("the repetition = %v, %v, want nothing yet", got, err)
	}
	id := enqueue(t, b.client, "1")[0].RolloutID
	close(goOn)
	answered(t, b.store, id)
	_ = p.Conn.(*net.TCPConn).SetLinger(0)
	_ = p.Close()
	if got := dequeue(t, b.client, 5*time.Second); len(got) != 1 || got[0].RolloutID != id {
		t.Errorf("dequeue by another runner = %v, want rollout %s, whose answer nobody read", got, id)
	}
}

// TestDyingRunners lets many runners die at random moments of a long poll:
// every rollout reaches exactly one that lives.
func TestDyingRunners(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	const n = 60
	var dying sync.WaitGroup
	for i := range n {
		dying.Go(func() {
			p := dial(t, b.server)
			p.dequeue("5")
			<-time.After(time.Duration(i) * time.Millisecond / 2)
			_ = p.Close()
		})
	}
	want := map[string]bool{}
	for i := range n {
		want[enqueue(t, b.client, strconv.Itoa(i))[0].RolloutID] = true
	}
	dying.Wait()
	for len(want) > 0 {
		got := dequeue(t, b.client, 5*time.Second)
		if len(got) == 0 {
			t.Fatalf("%d of %d rollouts were lost: %v", len(want), n, want)
		}
		if !want[got[0].RolloutID] {
			t.Fatalf("rollout %s was handed out twice", got[0].RolloutID)
		}
		delete(want, got[0].RolloutID)
	}
}

// TestCancelledDequeue cancels clients while work arrives: what they claimed
// without knowing is given back.
func TestCancelledDequeue(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan int, 1)
		go func() {
			got, _ := b.client.DequeueRollouts(ctx, store.DequeueRequest{Limit: 1, Wait: 5 * time.Second})
			result <- len(got)
		}()
		go cancel()
		enqueue(t, b.client, "1")
		if <-result == 0 && len(dequeue(t, b.client, 5*time.Second)) == 0 {
			t.Fatal("a rollout that a cancelled call claimed is lost")
		}
		if got := dequeue(t, b.client, 0); len(got) != 0 {
			t.Fatalf("rollout %s was handed out twice", got[0].RolloutID)
		}
	}
}

// TestGiveBack cancels a dequeue between the claim and its answer.
func TestGiveBack(t *testing.T) {
	t.Parallel()
	claimed := make(chan struct{})
	var first atomic.Bool
	b := setup(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/dequeue") || first.Swap(true) {
				next.ServeHTTP(w, r)
				return
			}
			next.ServeHTTP(httptest.NewRecorder(), r)
			close(claimed)
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		})
	})
	enqueue(t, b.client, "1")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-claimed
		cancel()
	}()
	got, err := b.client.DequeueRollouts(ctx, store.DequeueRequest{Limit: 1})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("DequeueRollouts = %v, %v, want %v", got, err, context.Canceled)
	}
	if got := dequeue(t, b.client, 0); len(got) != 1 || got[0].Attempt.SequenceID != 1 {
		t.Errorf("the next dequeue = %v, want the rollout as if it had never been claimed", got)
	}
}
