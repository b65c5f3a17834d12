package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"

	agl "agentlightning"
	"agentlightning/internal/cli"
	"agentlightning/store"
	"agentlightning/storehttp"
)

// server is a running `agl serve`, and a client of it.
type server struct {
	url    string
	client *storehttp.Client
	stop   func() // ends it early and waits
}

var printedURL = regexp.MustCompile(`http://\S+:\d+`)

// serve runs the command of this module on a free port of the loopback until
// the test is over.
func serve(t *testing.T, db string, flags ...string) *server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	stdout, written := io.Pipe()
	var logged buffer
	code := make(chan int, 1)
	go func() {
		args := append([]string{"serve", "--port", "0", "--db", db, "--health-scan-interval", "0s"}, flags...)
		code <- cli.Run(ctx, args, written, &logged)
		_ = written.Close()
	}()
	reader := bufio.NewReader(stdout)
	line, err := reader.ReadString('\n')
	go func() { _, _ = io.Copy(io.Discard, reader) }() // until the command ends
	stop := sync.OnceFunc(func() {
		cancel()
		if got := <-code; got != 0 {
			t.Errorf("agl serve ended with status %d", got)
		}
	})
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("agl serve --db %s wrote:\n%s", db, logged.String())
		}
	})
	url := printedURL.FindString(line)
	if url == "" {
		t.Fatalf("agl serve printed %q (%v), want its address", line, err)
	}
	var options []storehttp.Option
	if i := slices.Index(flags, "--auth-token"); i >= 0 {
		options = append(options, storehttp.WithToken(flags[i+1]))
	}
	client, err := storehttp.NewClient(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return &server{url: url, client: client, stop: stop}
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// eachBackend runs a test against a server of its own on every backend.
func eachBackend(t *testing.T, test func(t *testing.T, s *server), flags ...string) {
	t.Helper()
	needPython(t)
	for _, backend := range []string{"memory", "sqlite"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			db := "memory:"
			if backend == "sqlite" {
				db = "sqlite:" + filepath.Join(t.TempDir(), "agl.db")
			}
			test(t, serve(t, db, flags...))
		})
	}
}

// task is a rollout to enqueue.
type task struct {
	input  string // JSON
	mode   agl.Mode
	config *agl.RolloutConfig
}

// enqueue adds rollouts and returns their ids.
func (s *server) enqueue(t *testing.T, tasks ...task) []string {
	t.Helper()
	requests := make([]store.EnqueueRequest, len(tasks))
	for i, task := range tasks {
		requests[i] = store.EnqueueRequest{Input: json.RawMessage(task.input), Mode: task.mode, Config: task.config}
	}
	made, err := s.client.EnqueueRollouts(t.Context(), requests)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]string, len(made))
	for i := range made {
		ids[i] = made[i].RolloutID
	}
	return ids
}

func (s *server) rollout(t *testing.T, id string) agl.AttemptedRollout {
	t.Helper()
	r, err := s.client.Rollout(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (s *server) rollouts(t *testing.T) []agl.AttemptedRollout {
	t.Helper()
	page, err := s.client.QueryRollouts(t.Context(), store.RolloutQuery{})
	if err != nil {
		t.Fatal(err)
	}
	return page.Items
}

func (s *server) attempts(t *testing.T, rolloutID string) []agl.Attempt {
	t.Helper()
	page, err := s.client.QueryAttempts(t.Context(), store.AttemptQuery{RolloutID: rolloutID, Paging: store.Paging{SortBy: "sequence_id"}})
	if err != nil {
		t.Fatal(err)
	}
	return page.Items
}

// spans returns the spans of a rollout by sequence id.
func (s *server) spans(t *testing.T, rolloutID string) []agl.Span {
	t.Helper()
	page, err := s.client.QuerySpans(t.Context(), store.SpanQuery{RolloutID: rolloutID, Paging: store.Paging{SortBy: "sequence_id"}})
	if err != nil {
		t.Fatal(err)
	}
	return page.Items
}

func (s *server) worker(t *testing.T, id string) agl.Worker {
	t.Helper()
	w, err := s.client.Worker(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (s *server) statistics(t *testing.T) store.Statistics {
	t.Helper()
	got, err := s.client.Statistics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// addResources stores what runners ask for before they run anything.
func (s *server) addResources(t *testing.T) string {
	t.Helper()
	added, err := s.client.AddResources(t.Context(), agl.NamedResources{
		{Name: "prompt", Resource: agl.PromptTemplate{Template: "Answer {question}", Engine: "f-string"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return added.ResourcesID
}
