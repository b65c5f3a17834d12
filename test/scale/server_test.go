package scale

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentlightning/internal/cli"
)

// asServer makes this test binary agl: its value are the arguments.
const asServer = "AGL_TEST_SCALE_SERVER"

func TestMain(m *testing.M) {
	if args := os.Getenv(asServer); args != "" {
		os.Args = append([]string{"agl"}, strings.Split(args, "\n")...)
		os.Exit(cli.Main())
	}
	os.Exit(m.Run())
}

// command is agl with arguments.
func command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, self)
	c.Env = append(os.Environ(), asServer+"="+strings.Join(args, "\n"))
	c.Stderr = os.Stderr
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	return c, nil
}

// server is a process of the server on a database.
type server struct {
	url     string
	ready   time.Duration // from its start
	process *exec.Cmd
	stopped bool
	client  http.Client
}

func start(t *testing.T, db string) *server {
	t.Helper()
	c, err := command(t.Context(), "serve", "--port", "0", "--db", "sqlite:"+db, "--sync", "normal", "--log-level", "warning")
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	s := &server{process: c, client: http.Client{Transport: &http.Transport{}}}
	t.Cleanup(func() { // the context has ended, and with it the process
		if !s.stopped {
			_ = c.Wait()
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server did not start: %v", err)
	}
	_, rest, _ := strings.Cut(line, " on ")
	url, _, _ := strings.Cut(rest, ",")
	s.url = url
	if status, _ := s.get(t, "healthz"); status != http.StatusOK {
		t.Fatalf("healthz answers %d", status)
	}
	s.ready = time.Since(began)
	return s
}

// stop ends the process and waits for it.
func (s *server) stop(t *testing.T) {
	t.Helper()
	s.client.CloseIdleConnections()
	_ = s.process.Process.Signal(syscall.SIGTERM)
	s.stopped = true
	if err := s.process.Wait(); err != nil {
		t.Errorf("the server ended: %v", err)
	}
}

// resident is the memory that the server holds in MiB, now and at the most; 0
// where the system does not tell.
func (s *server) resident(t *testing.T) (now, most int64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.process.Process.Pid))
	if err != nil {
		return 0, 0
	}
	field := func(name string) int64 {
		_, rest, _ := strings.Cut(string(status), name)
		kilobytes, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return kilobytes >> 10
	}
	return field("VmRSS:"), field("VmHWM:")
}

// spent is the processor time that the server took so far, in hundredths of a
// second as Linux tells it; 0 elsewhere.
func (s *server) spent() time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.process.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name may hold anything
	fields := strings.Fields(rest)
	var ticks int
	for _, f := range fields[11:13] {
		n, _ := strconv.Atoi(f)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func (s *server) get(t *testing.T, path string) (status int, body []byte) {
	t.Helper()
	return s.call(t, http.MethodGet, path, nil)
}

func (s *server) call(t *testing.T, method, path string, body any) (status int, answer []byte) {
	t.Helper()
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		sent = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+"/"+path, sent)
	if err != nil {
		t.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return resp.StatusCode, answer
}

// read gets a path and decodes the answer.
func read[T any](t *testing.T, s *server, path string) T {
	t.Helper()
	var out T
	status, body := s.get(t, path)
	if status != http.StatusOK {
		t.Fatalf("%s: %d %s", path, status, body)
	}
	if err := json.Unmarshal(body, &out); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return out
}
