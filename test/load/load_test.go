package load

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"agentlightning/internal/cli"
	"agentlightning/semconv"
	"agentlightning/store"
	"agentlightning/storehttp"
)

var (
	openCalls = flag.Int("load.open", 300, "how many streams are open at once")
	manyCalls = flag.Int("load.calls", 12000, "how many calls come one after the other; with -short a quarter of them")
)

// asServer makes this test binary the server: its value are the arguments.
const asServer = "AGL_TEST_LOAD_SERVER"

func TestMain(m *testing.M) {
	if args := os.Getenv(asServer); args != "" {
		os.Args = append([]string{"agl"}, strings.Split(args, "\n")...)
		os.Exit(cli.Main())
	}
	os.Exit(m.Run())
}

// An answer as engines stream it.
const (
	firstEvent = `data: {"id":"c","prompt_token_ids":[1,2],"choices":[{"index":0,"delta":{"role":"assistant","content":"a"},"token_ids":[7],"logprobs":{"content":[{"token":"a","logprob":-0.5}]}}]}` + "\n\n"
	lastEvents = `data: {"id":"c","choices":[{"index":0,"delta":{"content":"b"},"token_ids":[8],"logprobs":{"content":[{"token":"b","logprob":-0.5}]},"finish_reason":"stop"}]}` + "\n\n" +
		`data: {"id":"c","choices":[],"usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4}}` + "\n\ndata: [DONE]\n\n"
)

// server is a process of the server and an attempt to call it for.
type server struct {
	client          *storehttp.Client
	rolloutID, base string
	pid             int
	transport       *http.Transport
}

func start(t *testing.T, backend string) *server {
	t.Helper()
	args := []string{
		"serve", "--port", "0", "--db", "sqlite:" + filepath.Join(t.TempDir(), "agl.db"), "--sync", "normal",
		"--log-level", "warning", "--model", "m=" + backend + "/v1",
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	process := exec.CommandContext(t.Context(), self)
	process.Env = append(os.Environ(), asServer+"="+strings.Join(args, "\n"))
	process.Stderr = os.Stderr
	process.Cancel = func() error { return process.Process.Signal(syscall.SIGTERM) }
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Wait() }) // the context of the test has ended
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server did not start: %v", err)
	}
	_, rest, _ := strings.Cut(line, " on ")
	url, _, _ := strings.Cut(rest, ",")
	client, err := storehttp.NewClient(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	r, err := client.StartRollout(t.Context(), store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: json.RawMessage(`1`)}})
	if err != nil {
		t.Fatal(err)
	}
	s := &server{client: client, rolloutID: r.RolloutID, pid: process.Process.Pid, transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	s.base = url + "/rollout/" + r.RolloutID + "/attempt/" + r.Attempt.AttemptID + "/v1"
	t.Cleanup(s.transport.CloseIdleConnections)
	return s
}

// resident is the memory that the server holds, in bytes; 0 where the system
// does not tell.
func (s *server) resident(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kilobytes, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}

// call streams an answer and returns the time to its first event.
func (s *server) call(t *testing.T, body []byte) (first time.Duration, err error) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.base+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	began := time.Now()
	resp, err := s.transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	got := make([]byte, len(firstEvent))
	if _, err := io.ReadFull(resp.Body, got); err != nil {
		return 0, err
	}
	first = time.Since(began)
	rest, err := io.ReadAll(resp.Body)
	if err == nil && (string(got) != firstEvent || !bytes.HasSuffix(rest, []byte("data: [DONE]\n\n"))) {
		err = fmt.Errorf("status %d, answer %.300s%.300s", resp.StatusCode, got, rest)
	}
	return first, err
}

func ask(n int) []byte {
	return []byte(`{"model":"m","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("Say the words. ", n) + `"}]}`)
}

// recorded wants a span without a problem for each call.
func (s *server) recorded(t *testing.T, want int) {
	t.Helper()
	page, err := s.client.QuerySpans(t.Context(), store.SpanQuery{RolloutID: s.rolloutID, Paging: store.Paging{Limit: 1}})
	if err != nil || page.Total != want {
		t.Fatalf("%d spans are stored, %v, want %d", page.Total, err, want)
	}
	if problem, _ := page.Items[0].Attributes.String(semconv.CallProblem); problem != "" {
		t.Errorf("a call has problem %s", problem)
	}
}

// TestOpenCalls opens streams all at once. None may wait for another to end.
func TestOpenCalls(t *testing.T) {
	n := *openCalls
	all := make(chan struct{}) // closed when every call has reached the backend
	var reached atomic.Int64
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, firstEvent)
		_ = http.NewResponseController(w).Flush()
		if reached.Add(1) == int64(n) {
			close(all)
		}
		select {
		case <-all:
			_, _ = io.WriteString(w, lastEvents)
		case <-r.Context().Done():
		}
	}))
	defer backend.Close()
	s := start(t, backend.URL)
	before := s.resident(t)
	body := ask(40)
	firsts := make([]time.Duration, n)
	var failed atomic.Value
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			first, err := s.call(t, body)
			if err != nil {
				failed.CompareAndSwap(nil, err)
			}
			firsts[i] = first
		})
	}
	<-all
	open := s.resident(t)
	wg.Wait()
	if err := failed.Load(); err != nil {
		t.Fatal(err)
	}
	s.recorded(t, n)
	slices.Sort(firsts)
	t.Logf("%d streams at once: first text after %v in the middle, %v at the latest; resident %d MiB before, %d MiB while all are open (%d KiB each), %d MiB after",
		n, firsts[n/2].Round(time.Millisecond), firsts[n-1].Round(time.Millisecond), before>>20, open>>20, (open-before)>>10/int64(n), s.resident(t)>>20)
	if perCall := (open - before) / int64(n); perCall > 256<<10 && !raceEnabled {
		t.Errorf("an open call takes %d KiB, want at most 256", perCall>>10)
	}
}

// TestManyCalls makes calls for one attempt. What they said is on disk, so memory
// must not grow with them.
func TestManyCalls(t *testing.T) {
	const callers = 16
	n := *manyCalls
	if testing.Short() {
		n /= 4
	}
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, firstEvent)
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, lastEvents)
	}))
	defer backend.Close()
	s := start(t, backend.URL)
	body := ask(400) // 6 kB, which no call may leave behind
	var failed atomic.Value
	var quarters []int64
	began := time.Now()
	for range 4 {
		var next atomic.Int64
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for next.Add(1) <= int64(n/4) {
					if _, err := s.call(t, body); err != nil {
						failed.CompareAndSwap(nil, err)
					}
				}
			})
		}
		wg.Wait()
		quarters = append(quarters, s.resident(t)>>20)
	}
	if err := failed.Load(); err != nil {
		t.Fatal(err)
	}
	s.recorded(t, n/4*4)
	t.Logf("%d calls, %.0f/s: resident %v MiB after each quarter", n/4*4, float64(n/4*4)/time.Since(began).Seconds(), quarters)
	// Two collections may differ by what lies between them, and the first few
	// thousand calls fill the caches of the database.
	if quarters[3] > quarters[0]+32 && quarters[3] > quarters[1]+32 && !raceEnabled && !testing.Short() {
		t.Errorf("resident memory grows with the calls: %v MiB after each quarter", quarters)
	}
}
