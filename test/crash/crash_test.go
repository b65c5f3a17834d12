package crash

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/internal/cli"
	"agentlightning/store"
	"agentlightning/storehttp"
)

var rounds = flag.Int("crash.rounds", 5, "how often the server is killed")

// asServer makes this test binary agl: its value are the arguments.
const asServer = "AGL_TEST_CRASH_SERVER"

// asAgent makes this test binary the agent: its value is the file in which it
// notes what the server acknowledged.
const asAgent = "AGL_TEST_CRASH_AGENT"

func TestMain(m *testing.M) {
	if os.Getenv("AGL_ATTEMPT_ID") != "" {
		os.Exit(playAgent(os.Getenv(asAgent)))
	}
	if args := os.Getenv(asServer); args != "" {
		os.Args = append([]string{"agl"}, strings.Split(args, "\n")...)
		os.Exit(cli.Main())
	}
	os.Exit(m.Run())
}

const (
	runners = 8
	// mostWaiting bounds the rollouts that are enqueued and not finished.
	mostWaiting = 32
	// longestLife is until when a server is killed after it got ready.
	longestLife = 300 * time.Millisecond
	// patience is how long one call of a client may take, restarts included.
	patience = time.Minute
)

// TestKilledServer has clients work through kills of the server at random
// moments. Calls that lost their answer are repeated by the client under their
// keys, so every one of them must have happened exactly once.
func TestKilledServer(t *testing.T) {
	if testing.Short() {
		*rounds = min(*rounds, 2)
	}
	s := newServer(t)
	h := &history{claims: map[string]string{}, spans: map[string][]string{}}
	client, err := storehttp.NewClient(s.url, storehttp.WithRetryWindow(patience))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()

	enough := make(chan struct{}) // closed when no more work is to be enqueued
	var enqueuing, running sync.WaitGroup
	enqueuing.Go(func() { h.enqueue(t, client, enough) })
	drained := make(chan struct{}) // closed when all work that will ever be is enqueued
	for r := range runners {
		running.Go(func() { h.run(t, client, fmt.Sprintf("runner-%d", r), drained) })
	}
	for round := range *rounds {
		process := s.start(t, client)
		pause(t.Context(), time.Duration(rand.Int64N(int64(longestLife))))
		if err := process.Process.Kill(); err != nil {
			t.Fatalf("kill %d: %v", round+1, err)
		}
		_ = process.Wait() // it was killed
		if t.Failed() {
			break
		}
	}
	process := s.start(t, client)
	defer func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	}()
	close(enough)
	enqueuing.Wait()
	close(drained)
	running.Wait()
	if t.Failed() {
		t.FailNow()
	}
	h.check(t, client)
	t.Logf("%d kills: %d rollouts, %d claims, %d spans; the slowest start took %v", *rounds, len(h.enqueued), len(h.claims), h.spanCount(), s.slowest)
}

// server is the process under test, which keeps its address over restarts.
type server struct {
	url, args string
	log       *os.File
	slowest   time.Duration
}

func newServer(t *testing.T) *server {
	t.Helper()
	return newServerOn(t, filepath.Join(t.TempDir(), "agl.db"))
}

// newServerOn returns a server, not started yet, of a database file.
func newServerOn(t *testing.T, db string) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("the server said:\n%s", text)
		}
		_ = log.Close()
	})
	args := []string{"serve", "--port", strconv.Itoa(port), "--db", "sqlite:" + db, "--log-level", "warning"}
	return &server{url: fmt.Sprintf("http://127.0.0.1:%d", port), args: strings.Join(args, "\n"), log: log}
}

// start starts the process and waits until it answers.
func (s *server) start(t *testing.T, client *storehttp.Client) *exec.Cmd {
	t.Helper()
	process := command(s.args)
	process.Stderr = s.log
	began := time.Now()
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	for client.Health(t.Context()) != nil {
		if time.Since(began) > patience/2 {
			_ = process.Process.Kill()
			_ = process.Wait()
			t.Fatalf("the server is not ready after %v", patience/2)
		}
		pause(t.Context(), 2*time.Millisecond)
	}
	s.slowest = max(s.slowest, time.Since(began))
	return process
}

// command is agl with arguments, one a line.
func command(args string) *exec.Cmd {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), asServer+"="+args)
	return c
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// history is what the clients were told.
type history struct {
	waiting atomic.Int64

	mu       sync.Mutex
	enqueued []string
	claims   map[string]string   // rollout to attempt
	spans    map[string][]string // rollout to the ids of its spans, in order
}

func (h *history) spanCount() (n int) {
	for _, ids := range h.spans {
		n += len(ids)
	}
	return n
}

// enqueue enqueues numbered rollouts in order, a few at a time.
func (h *history) enqueue(t *testing.T, client *storehttp.Client, enough <-chan struct{}) {
	for next := 0; ; {
		select {
		case <-enough:
			return
		default:
		}
		if h.waiting.Load() >= mostWaiting {
			pause(t.Context(), time.Millisecond)
			continue
		}
		reqs := make([]store.EnqueueRequest, 1+rand.IntN(4))
		for i := range reqs {
			reqs[i].Input = json.RawMessage(strconv.Itoa(next + i))
		}
		made, err := client.EnqueueRollouts(t.Context(), reqs)
		if err != nil {
			t.Errorf("enqueue: %v", err)
			return
		}
		next += len(reqs)
		h.waiting.Add(int64(len(made)))
		h.mu.Lock()
		for i := range made {
			h.enqueued = append(h.enqueued, made[i].RolloutID)
		}
		h.mu.Unlock()
	}
}

// run claims and finishes rollouts until there are none left.
func (h *history) run(t *testing.T, client *storehttp.Client, worker string, drained <-chan struct{}) {
	last := -1
	for !t.Failed() {
		over := false
		select {
		case <-drained:
			over = true
		default:
		}
		req := store.DequeueRequest{WorkerID: &worker, Limit: 1}
		if !over {
			req.Wait = 50 * time.Millisecond
		}
		claimed, err := client.DequeueRollouts(t.Context(), req)
		if err != nil {
			t.Errorf("dequeue by %s: %v", worker, err)
			return
		}
		if len(claimed) == 0 {
			if over {
				return
			}
			continue
		}
		ro := claimed[0]
		number, err := strconv.Atoi(string(ro.Input))
		if err != nil || number <= last {
			t.Errorf("%s claimed number %s after %d: want the order in which they were enqueued", worker, ro.Input, last)
		}
		last = number
		if err := h.finish(t, client, &ro); err != nil {
			t.Error(err)
			return
		}
		h.waiting.Add(-1)
	}
}

func (h *history) finish(t *testing.T, client *storehttp.Client, ro *agl.AttemptedRollout) error {
	at := store.Attempted{RolloutID: ro.RolloutID, AttemptID: ro.Attempt.AttemptID}
	h.mu.Lock()
	if other, twice := h.claims[at.RolloutID]; twice {
		t.Errorf("rollout %s was claimed twice, as attempts %s and %s", at.RolloutID, other, at.AttemptID)
	}
	h.claims[at.RolloutID] = at.AttemptID
	h.mu.Unlock()
	var ids []string
	for range 1 + rand.IntN(3) {
		n, err := client.NextSequenceIDs(t.Context(), []store.Attempted{at})
		if err != nil {
			return fmt.Errorf("sequence id: %w", err)
		}
		span := agl.SpanCore{Name: "step", Status: agl.TraceStatus{StatusCode: agl.StatusOK}}.Span(at.RolloutID, at.AttemptID, n[0], 1)
		added, err := client.AddSpans(t.Context(), []agl.Span{span})
		if err != nil || added[0].Err != nil || !added[0].Stored {
			return fmt.Errorf("add span %s: stored %t, %w, %w", span.SpanID, err == nil && added[0].Stored, err, added[0].Err)
		}
		ids = append(ids, span.SpanID)
	}
	done := store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)}
	if _, err := client.UpdateAttempt(t.Context(), at.RolloutID, at.AttemptID, done); err != nil {
		return fmt.Errorf("finish: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spans[at.RolloutID] = ids
	return nil
}

// check compares what is stored with what the clients were told: all of it, and
// nothing else.
func (h *history) check(t *testing.T, client *storehttp.Client) {
	t.Helper()
	ctx := t.Context()
	page, err := client.QueryRollouts(ctx, store.RolloutQuery{})
	if err != nil {
		t.Fatal(err)
	}
	stored := make([]string, len(page.Items))
	for i, ro := range page.Items {
		stored[i] = ro.RolloutID
		if ro.Status != agl.RolloutSucceeded || ro.Attempt == nil || ro.Attempt.SequenceID != 1 || ro.Attempt.AttemptID != h.claims[ro.RolloutID] {
			t.Errorf("rollout %s is %s with attempt %+v, want it succeeded with its first, %s", ro.RolloutID, ro.Status, ro.Attempt, h.claims[ro.RolloutID])
		}
		spans, err := client.QuerySpans(ctx, store.SpanQuery{RolloutID: ro.RolloutID, Paging: store.Paging{SortBy: "sequence_id"}})
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for i, s := range spans.Items {
			ids = append(ids, s.SpanID)
			if i > 0 && s.SequenceID <= spans.Items[i-1].SequenceID {
				t.Errorf("rollout %s: sequence id %d after %d", ro.RolloutID, s.SequenceID, spans.Items[i-1].SequenceID)
			}
		}
		if diff := cmp.Diff(h.spans[ro.RolloutID], ids); diff != "" {
			t.Errorf("spans of rollout %s (-acknowledged +stored):\n%s", ro.RolloutID, diff)
		}
	}
	if diff := cmp.Diff(h.enqueued, stored); diff != "" {
		t.Errorf("rollouts (-acknowledged +stored):\n%s", diff)
	}
}
