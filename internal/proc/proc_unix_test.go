//go:build unix

package proc_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentlightning/internal/proc"
)

// asProgram makes the test binary play a program that owns another.
const asProgram = "AGL_TEST_OWNER"

func TestMain(m *testing.M) {
	if command := os.Getenv(asProgram); command != "" {
		var group proc.Group
		p, err := group.Start(proc.Spec{Command: []string{"sh", "-c", command}, Env: proc.Environ(asProgram), Stdout: os.Stdout})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		p.Wait() // until somebody kills us
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func start(t *testing.T, spec proc.Spec) *proc.Process {
	t.Helper()
	var group proc.Group
	if spec.Env == nil {
		spec.Env = proc.Environ()
	}
	p, err := group.Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Stop(0)
		if err := group.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func alive(pid int) bool {
	if runtime.GOOS == "linux" { // a zombie whose parent is init's substitute is not alive
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && !strings.Contains(string(stat), ") Z ")
	}
	return syscall.Kill(pid, 0) == nil
}

func awaitGone(t *testing.T, pids ...int) {
	t.Helper()
	end := time.After(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var left []int
		for _, pid := range pids {
			if alive(pid) {
				left = append(left, pid)
			}
		}
		if len(left) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("processes %v of %v are still there", left, pids)
		}
	}
}

// lines is a writer that hands over lines.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		l <- strings.TrimSpace(line)
	}
	return len(p), nil
}

func (l lines) pid(t *testing.T) int {
	t.Helper()
	select {
	case line := <-l:
		pid, err := strconv.Atoi(line)
		if err != nil {
			t.Fatalf("the program said %q, want a process id", line)
		}
		return pid
	case <-time.After(10 * time.Second):
		t.Fatal("the program said nothing")
		return 0
	}
}

func TestExits(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]proc.Exit{
		"exit 0":        {},
		"exit 3":        {Code: 3},
		"kill -TERM $$": {Code: -1, Signal: syscall.SIGTERM},
	} {
		if got := start(t, proc.Spec{Command: []string{"sh", "-c", script}}).Wait(); got != want {
			t.Errorf("%s: %+v, want %+v", script, got, want)
		}
	}
	for exit, want := range map[proc.Exit]string{
		{Code: 3}: "exit status 3", {Code: -1, Signal: syscall.SIGKILL}: "killed by SIGKILL",
		{Code: -1, Signal: 77}: "killed by signal 77", {Err: &proc.LimitError{What: "too much"}}: "too much",
	} {
		if got := exit.String(); got != want {
			t.Errorf("%#v says %q, want %q", exit, got, want)
		}
	}
}

func TestInputAndOutput(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	p := start(t, proc.Spec{
		Command: []string{"sh", "-c", `cat; echo "$WHO" >&2; pwd >&2`}, Dir: t.TempDir(),
		Env: append(proc.Environ("WHO"), "WHO=me"), Stdin: strings.NewReader("hello"), Stdout: &out, Stderr: &errs,
	})
	if exit := p.Wait(); exit != (proc.Exit{}) || out.String() != "hello" || !strings.HasPrefix(errs.String(), "me\n/") {
		t.Errorf("%v, %q, %q", exit, out.String(), errs.String())
	}
	// A program that does not read is not at fault.
	p = start(t, proc.Spec{Command: []string{"true"}, Stdin: strings.NewReader(strings.Repeat("x", 1<<20))})
	if exit := p.Wait(); exit != (proc.Exit{}) {
		t.Errorf("a program that does not read its input: %v", exit)
	}
}

func TestPipe(t *testing.T) {
	t.Parallel()
	said := make(lines, 8)
	p := start(t, proc.Spec{Command: []string{"cat"}, Pipe: true, Stdout: said})
	for i := range 3 {
		if _, err := fmt.Fprintf(p.Input, "%d\n", i); err != nil {
			t.Fatal(err)
		}
		if got := said.pid(t); got != i {
			t.Errorf("said %d, want %d", got, i)
		}
	}
	_ = p.Input.Close()
	if exit := p.Wait(); exit != (proc.Exit{}) {
		t.Error(exit)
	}
}

// TestNothingIsLeft: what a program starts ends with it, also what left its group.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	scripts := map[string]string{
		"a child":      `sleep 600 & echo $!`,
		"a deaf child": `(trap '' TERM HUP; sleep 600) & echo $!`,
	}
	if _, err := exec.LookPath("setsid"); err == nil && runtime.GOOS == "linux" {
		scripts["a daemon"] = `setsid sh -c 'echo $$; exec sleep 600' & sleep 0.3`
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := make(lines, 8)
			p := start(t, proc.Spec{Command: []string{"sh", "-c", script}, Stdout: said})
			pid := said.pid(t)
			p.Wait()
			awaitGone(t, pid, p.PID())
		})
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	said := make(lines, 8)
	polite := start(t, proc.Spec{Command: []string{"sh", "-c", `trap 'exit 7' TERM; echo 0; while :; do sleep 0.02; done`}, Stdout: said})
	said.pid(t)
	if exit := polite.Stop(10 * time.Second); exit.Code != 7 {
		t.Errorf("asked to stop: %v, want the status 7", exit)
	}
	deaf := start(t, proc.Spec{Command: []string{"sh", "-c", `trap '' TERM; echo 0; while :; do sleep 0.02; done`}, Stdout: said})
	said.pid(t)
	if exit := deaf.Stop(50 * time.Millisecond); exit.Signal != syscall.SIGKILL {
		t.Errorf("deaf to signals: %v, want SIGKILL", exit)
	}
	if exit := deaf.Stop(time.Hour); exit.Signal != syscall.SIGKILL {
		t.Errorf("stopped again: %v", exit)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		if err := (proc.Limits{Memory: 1}).Check(); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("a limit here: %v, want %v", err, errors.ErrUnsupported)
		}
		return
	}
	for name, tt := range map[string]struct {
		script string
		limits proc.Limits
		want   string
	}{
		"processes": {`for i in 1 2 3 4 5 6; do sleep 600 & done; wait`, proc.Limits{Processes: 4}, "more than the limit of 4"},
		"memory":    {`exec tail /dev/zero`, proc.Limits{Memory: 32 << 20}, "more than the limit of 32 MiB"},
		"within":    {`sleep 0.2`, proc.Limits{Processes: 4, Memory: 64 << 20}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exit := start(t, proc.Spec{Command: []string{"sh", "-c", tt.script}, Limits: tt.limits}).Wait()
			var limit *proc.LimitError
			switch {
			case tt.want == "" && exit == (proc.Exit{}):
			case tt.want != "" && errors.As(exit.Err, &limit) && strings.Contains(exit.String(), tt.want):
			default:
				t.Errorf("%v, want %q", exit, tt.want)
			}
		})
	}
	for _, l := range []proc.Limits{{Memory: -1}, {Processes: -1}} {
		if err := l.Check(); err == nil {
			t.Errorf("%+v is accepted", l)
		}
	}
}

// TestOwnerIsKilled: with SIGKILL for the process that started a program, all of
// the program ends, also what left its group.
func TestOwnerIsKilled(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := `echo $$; sleep 600 & echo $!; `
	count := 2
	if _, err := exec.LookPath("setsid"); err == nil && runtime.GOOS == "linux" {
		script += `setsid sh -c 'echo $$; exec sleep 600' & `
		count++
	}
	owner := exec.CommandContext(t.Context(), self)
	owner.Env = append(os.Environ(), asProgram+"="+script+"wait")
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for scan := bufio.NewScanner(out); len(pids) < count && scan.Scan(); {
		pid, err := strconv.Atoi(scan.Text())
		if err != nil {
			t.Fatalf("the program said %q", scan.Text())
		}
		pids = append(pids, pid)
	}
	if len(pids) != count {
		t.Fatalf("%d processes, want %d", len(pids), count)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, pids...)
	_ = owner.Wait() // killed
}

// TestKeeperIsReplaced: a keeper that was killed is replaced by one that knows
// what runs.
func TestKeeperIsReplaced(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip(runtime.GOOS + ": the shell is found in /proc")
	}
	var group proc.Group
	said := make(lines, 8)
	spec := proc.Spec{Command: []string{"sh", "-c", `echo $PPID; setsid sh -c 'echo $$; exec sleep 600' & wait`}, Env: proc.Environ(), Stdout: said}
	first, err := group.Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Stop(0)
	said.pid(t)
	daemon := said.pid(t)
	if err := syscall.Kill(group.Keeper(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, group.Keeper())
	second, err := group.Start(proc.Spec{Command: []string{"true"}, Env: proc.Environ()})
	if err != nil {
		t.Fatalf("a start after the keeper was killed: %v", err)
	}
	second.Wait()
	if err := group.Close(); err != nil { // ends what it knows of
		t.Fatal(err)
	}
	first.Wait()
	awaitGone(t, daemon, first.PID())
}

func TestRefusedByName(t *testing.T) {
	t.Parallel()
	var group proc.Group
	for name, spec := range map[string]proc.Spec{
		"no command": {}, "executable file not found": {Command: []string{"no-such-program-anywhere"}},
		"no such file": {Command: []string{"sh"}, Dir: filepath.Join(t.TempDir(), "missing")},
	} {
		_, err := group.Start(spec)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("Start(%+v) = %v, want %q", spec, err, name)
		}
	}
	if err := group.Close(); err != nil {
		t.Error(err)
	}
}

// TestDetached: a program that outlives its starter is known again, and ended.
func TestDetached(t *testing.T) {
	t.Parallel()
	said := make(lines, 8)
	p, err := proc.Detach(proc.Spec{Command: []string{"sh", "-c", `sleep 600 & echo $!; wait`}, Env: proc.Environ(), Stdout: said})
	if err != nil {
		t.Fatal(err)
	}
	child := said.pid(t)
	id := p.Identity()
	other := id
	other.Born += "x"
	if !id.Alive() || other.Alive() || (proc.Identity{}).Alive() {
		t.Errorf("%+v is alive: %v; with another birth: %v", id, id.Alive(), other.Alive())
	}
	other.Kill() // of somebody else, but with its mark
	if runtime.GOOS != "linux" {
		id.Kill()
	}
	p.Wait()
	awaitGone(t, child, p.PID())
	if id.Alive() {
		t.Error("it is alive after its end")
	}
}
