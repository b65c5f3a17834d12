package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// process is a child of the test.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd

	mu    sync.Mutex
	lines []string
	news  chan struct{} // has a value when there are new lines
	ended chan struct{}
	err   error
}

// launch starts the test binary as one of the programs that TestMain knows.
func launch(t *testing.T, program string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: program + " " + strings.Join(args, " "), news: make(chan struct{}, 1), ended: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0], args...)
	p.cmd.Env = append(os.Environ(), "CALC_TEST_CHILD="+program)
	p.cmd.Dir = t.TempDir()
	read, write := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = write, write
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for scanner := bufio.NewScanner(read); scanner.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, scanner.Text())
			p.mu.Unlock()
			select {
			case p.news <- struct{}{}:
			default:
			}
		}
	}()
	go func() {
		p.err = p.cmd.Wait()
		_ = write.Close()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s:\n%s", p.name, p.output())
		}
	})
	return p
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

// until waits for a text in the output.
func (p *process) until(text string) {
	p.t.Helper()
	limit := time.After(60 * time.Second)
	for !strings.Contains(p.output(), text) {
		select {
		case <-p.news:
		case <-p.ended:
			p.t.Fatalf("%s ended before it said %q: %v", p.name, text, p.err)
		case <-limit:
			p.t.Fatalf("%s did not say %q within a minute", p.name, text)
		}
	}
}

// kill ends the process without asking it.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// TestProcessesThatAreKilled starts server, algorithm and runners as processes,
// kills a runner and then the server, and expects a run that lost nothing. The
// server asks for a token, which algorithm and runners have and agents have not.
func TestProcessesThatAreKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	url := "http://" + freeAddress(t)
	const token = "the token of this test"
	serve := func() *process {
		return launch(t, "agl", "serve", "--port", url[strings.LastIndex(url, ":")+1:], "--db", "sqlite:"+filepath.Join(dir, "agl.db"),
			"--health-scan-interval", "200ms", "--auth-token", token)
	}
	runner := func() *process {
		return launch(t, "calc", "--role", "runner", "--server", url, "--token", token, "--agents", "4")
	}

	first := runner() // before there is a server
	reportFile := filepath.Join(dir, "report.json")
	algorithm := launch(t, "calc", "--role", "algorithm", "--server", url, "--token", token, "--steps", "20",
		"--data", filepath.Join(dir, "data"), "--report", reportFile)
	server := serve()
	runner()
	algorithm.until("step 4/20")
	first.kill()
	runner()
	algorithm.until("step 10/20")
	server.kill()
	server = serve()
	<-algorithm.ended
	if algorithm.err != nil {
		t.Fatalf("the algorithm ended with %v", algorithm.err)
	}
	if r := readReport(t, reportFile); len(r.Curve) != 21 || r.FailedRollouts != 0 {
		t.Errorf("report = %+v, want 20 steps and no failed rollout", r)
	}
	server.until("dashboard")
}

// TestInterrupt presses Ctrl-C in the middle of a training and goes on with it.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("windows: a process cannot be sent an interrupt")
	}
	dir := t.TempDir()
	args := []string{"--port", "0", "--db", filepath.Join(dir, "calc.db"), "--data", dir, "--steps", "200"}
	p := launch(t, "calc", args...)
	p.until("step 20/200")
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.ended:
	case <-time.After(5 * time.Second):
		t.Fatal("the program did not end within 5 s of the interrupt")
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit status = %d, want 130", code)
	}
	_, said, _ := strings.Cut(p.output(), "calc: ")
	if want := "interrupted; what was done is kept, --resume goes on"; said != want {
		t.Errorf("last words = %q, want the one line %q", said, want)
	}
	args[len(args)-1] = "22"
	again := launch(t, "calc", append(args, "--resume")...)
	<-again.ended
	if again.err != nil || strings.Contains(again.output(), "warm-up") {
		t.Errorf("resumed run ended with %v, want success without another warm-up", again.err)
	}
}

// freeAddress returns a loopback address that was free a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return fmt.Sprint(l.Addr())
}
