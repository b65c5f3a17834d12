package interop

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// callLimit is how long one Python program may take.
const callLimit = 2 * time.Minute

// python is the driver of the Python programs, started by the first test that
// needs it.
var python struct {
	once   sync.Once
	driver *driver
	err    error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if python.driver != nil {
		if err := python.driver.stop(); err != nil {
			fmt.Fprintf(os.Stderr, "driver of the Python programs: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}

// needPython starts the driver, or skips the test for want of an interpreter.
func needPython(t *testing.T) {
	t.Helper()
	// Read within the test, not in TestMain: only so does go test know that a
	// cached result depends on it.
	interpreter := os.Getenv("AGL_TEST_PYTHON")
	if interpreter == "" {
		t.Skip("AGL_TEST_PYTHON is not set: run AGL_TEST_PYTHON=$(bash test/interop/setup.sh) go test ./test/interop")
	}
	python.once.Do(func() { python.driver, python.err = startDriver(interpreter) })
	if python.err != nil {
		t.Fatalf("AGL_TEST_PYTHON=%s: %v", interpreter, python.err)
	}
}

// driver is a running python/driver.py.
type driver struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	folder string // of its socket, short enough for one
}

// startDriver returns once the driver has imported everything.
func startDriver(interpreter string) (*driver, error) {
	programs, err := filepath.Glob("python/*.py")
	if err != nil {
		return nil, err
	}
	for _, name := range programs {
		// As above: a changed program makes a cached result void.
		if _, err := os.Stat(name); err != nil {
			return nil, err
		}
	}
	folder, err := os.MkdirTemp("", "agl-interop")
	if err != nil {
		return nil, err
	}
	d := &driver{folder: folder}
	d.cmd = exec.Command(interpreter, "python/driver.py", d.socket())
	d.cmd.Stderr = os.Stderr
	d.cmd.Env = append(os.Environ(),
		"PYTHONDONTWRITEBYTECODE=1",
		// Nothing is to be fetched from or reported to the internet.
		"LITELLM_LOCAL_MODEL_COST_MAP=True", "AGENTOPS_API_KEY=", "AGENTOPS_LOG_LEVEL=ERROR", "AGENTOPS_LOGGING_TO_FILE=False",
		"NO_PROXY=127.0.0.1,localhost", "OTEL_SDK_DISABLED=")
	stdin, err := d.cmd.StdinPipe()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	stdout, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	if err := d.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	d.stdin = stdin
	if line, _ := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		return nil, errors.Join(fmt.Errorf("the driver said %q, not that it is ready", line), d.stop())
	}
	return d, nil
}

func (d *driver) socket() string { return filepath.Join(d.folder, "socket") }

// stop ends the driver and whatever still runs in it.
func (d *driver) stop() error {
	return errors.Join(d.stdin.Close(), d.cmd.Wait(), os.RemoveAll(d.folder))
}

// call runs a program of python/ and decodes what its main returned.
func call(t *testing.T, program string, arguments map[string]any, result any) {
	t.Helper()
	if err := python.driver.call(t, program, arguments, result); err != nil {
		t.Fatal(err)
	}
}

// call may be used from any goroutine of a test.
func (d *driver) call(t *testing.T, program string, arguments map[string]any, result any) error {
	log := filepath.Join(t.TempDir(), "log")
	answer, err := d.exchange(map[string]any{
		"program": program, "arguments": arguments, "log": log, "seconds": int(callLimit.Seconds()),
	})
	if err == nil {
		var outcome struct {
			Result json.RawMessage
			Error  string
		}
		if err = json.Unmarshal(answer, &outcome); err == nil && outcome.Error == "" {
			return json.Unmarshal(outcome.Result, result)
		}
		err = errors.Join(err, errors.New(outcome.Error))
	}
	written, _ := os.ReadFile(log)
	lines := strings.Split(string(written), "\n")
	return fmt.Errorf("%s.main(%v): %w\nthe last of what it wrote:\n%s", program, arguments, err, strings.Join(lines[max(0, len(lines)-100):], "\n"))
}

func (d *driver) exchange(request map[string]any) ([]byte, error) {
	line, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	conn, err := net.Dial("unix", d.socket())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	// The driver kills what takes too long, and that closes the connection.
	if err := conn.SetDeadline(time.Now().Add(callLimit + 10*time.Second)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(conn)
	if err == nil && len(answer) == 0 {
		err = errors.New("no answer: the process was killed")
	}
	return answer, err
}
