// Package proc runs programs of other people so that nothing of them stays.
//
// Every [Process] leads a session of its own. When it ends, when it is stopped,
// or when this process dies, however it dies, all that it started ends too: its
// process group, and on Linux also what left the group, which is found by a mark
// in the environment.
//
// For the case that this process is killed, a [Group] keeps a small shell beside
// it that notices the end of a pipe. Programs are started on Unix only.
package proc

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Spec is a program to be started.
type Spec struct {
	// Command is the program and its arguments; a name without a slash is looked
	// up in PATH.
	Command []string
	// Dir is the working directory; empty means ours.
	Dir string
	// Env is the whole environment. Of values given twice the last one counts.
	Env []string
	// Stdin is what the program reads; nil means nothing. With Pipe the program
	// reads what is written to [Process.Input] instead.
	Stdin io.Reader
	Pipe  bool
	// Stdout and Stderr get what the program writes; nil discards it. They are
	// used by one goroutine each.
	Stdout, Stderr io.Writer
	Limits         Limits
	// Mark is what finds the processes of the program again; empty makes one. It
	// must not be used twice.
	Mark string
}

// Limits bound everything that a program starts, taken together. Zero values
// have no limit.
type Limits struct {
	Memory    int64 // resident memory, bytes
	Processes int   // processes at once
}

// Set reports whether there is a limit.
func (l Limits) Set() bool { return l.Memory > 0 || l.Processes > 0 }

// Check returns an error when a limit is negative or this platform cannot keep it.
func (l Limits) Check() error {
	switch {
	case l.Memory < 0:
		return fmt.Errorf("memory limit of %d bytes: must not be negative; 0 has no limit", l.Memory)
	case l.Processes < 0:
		return fmt.Errorf("limit of %d processes: must not be negative; 0 has no limit", l.Processes)
	case l.Set() && !canLimit:
		return fmt.Errorf("limits on memory and processes are kept on Linux only: %w", errors.ErrUnsupported)
	}
	return nil
}

// LimitError says which limit a program passed. It was killed for it.
type LimitError struct{ What string }

func (e *LimitError) Error() string { return e.What }

// Exit is how a program ended.
type Exit struct {
	// Code is the exit status, -1 when a signal ended the program.
	Code int
	// Signal is what ended it; 0 when it ended by itself.
	Signal syscall.Signal
	// Err is set when a limit was passed ([*LimitError]), or when the end could
	// not be watched.
	Err error
}

// String says how the program ended, as in "exit status 2".
func (e Exit) String() string {
	switch {
	case e.Err != nil:
		return e.Err.Error()
	case e.Signal != 0:
		return "killed by " + signalName(e.Signal)
	}
	return fmt.Sprintf("exit status %d", e.Code)
}

func signalName(s syscall.Signal) string {
	if name := signalNames[s]; name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(s))
}

// copyDelay is how long output is awaited after the program has ended, in case
// that something which could not be ended holds its pipe.
const copyDelay = 2 * time.Second

// Process is a program that runs.
type Process struct {
	// Input is what the program reads, with [Spec.Pipe]. Close it to end it.
	Input io.WriteCloser

	group *Group // nil when it is detached
	cmd   *exec.Cmd
	mark  string
	limit Limits
	done  chan struct{}
	exit  Exit // once done is closed

	mu    sync.Mutex
	ended bool // its id may be somebody else's
}

// markName is the variable by which processes are found that left their group.
const markName = "AGL_PROCESS_MARK"

// Start starts a program. The error says what is wrong with the command.
func (g *Group) Start(spec Spec) (*Process, error) {
	p, err := prepare(spec)
	if err != nil {
		return nil, err
	}
	p.group = g
	if err := g.note(p.mark, 0); err != nil {
		return nil, err
	}
	return p, p.begin()
}

// Detach starts a program that outlives this process. Output that goes to files
// goes on then; other writers lose their reader. The limits are kept while this
// process lives.
func Detach(spec Spec) (*Process, error) {
	p, err := prepare(spec)
	if err != nil {
		return nil, err
	}
	return p, p.begin()
}

func prepare(spec Spec) (*Process, error) {
	if len(spec.Command) == 0 || spec.Command[0] == "" {
		return nil, errors.New("there is no command")
	}
	if err := spec.Limits.Check(); err != nil {
		return nil, err
	}
	if err := supported(); err != nil {
		return nil, err
	}
	mark := cmp.Or(spec.Mark, NewMark())
	cmd := exec.Command(spec.Command[0], spec.Command[1:]...) //nolint:noctx // ended with its whole group, not alone
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = spec.Dir, spec.Stdin, spec.Stdout, spec.Stderr
	cmd.Env = append(without(spec.Env, markName), markName+"="+mark)
	cmd.WaitDelay = copyDelay
	p := &Process{cmd: cmd, mark: mark, limit: spec.Limits, done: make(chan struct{})}
	if spec.Pipe {
		input, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		p.Input = input
	}
	return p, nil
}

// begin starts the program and returns once it runs.
func (p *Process) begin() error {
	lead(p.cmd, p.group == nil)
	started := make(chan error, 1)
	go p.run(started) // closes p.done, which Wait and Stop await
	return <-started
}

// PID is the id of the process, and of its group.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the program has ended and nothing of it is left.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end of the program.
func (p *Process) Wait() Exit {
	<-p.done
	return p.exit
}

// Stop asks the program to end with SIGTERM, kills what is left of it after
// grace, and returns when nothing is.
func (p *Process) Stop(grace time.Duration) Exit {
	if grace > 0 {
		p.Signal(syscall.SIGTERM)
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-p.done:
			return p.exit
		case <-timer.C:
		}
	}
	p.Signal(syscall.SIGKILL)
	return p.Wait()
}

// run owns the process from its start to its end. It stays on one thread, for
// Linux ends a child with the thread that started it.
func (p *Process) run(started chan<- error) {
	unlock := holdThread()
	defer unlock()
	if err := p.cmd.Start(); err != nil {
		p.group.forget(p.mark)
		started <- err
		return
	}
	if err := p.group.note(p.mark, p.PID()); err != nil {
		p.Signal(syscall.SIGKILL)
		_ = p.cmd.Wait()
		p.group.forget(p.mark)
		started <- err
		return
	}
	started <- nil

	watched, stopWatch := make(chan error, 1), make(chan struct{})
	go func() { watched <- p.keepLimits(stopWatch) }()
	err := p.reap()
	close(stopWatch)
	limit := <-watched
	p.group.forget(p.mark)

	p.exit.Code = p.cmd.ProcessState.ExitCode()
	p.exit.Signal = endSignal(p.cmd.ProcessState)
	var exit *exec.ExitError
	switch {
	case limit != nil:
		p.exit.Err = limit
	case err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay):
		p.exit.Err = err
	}
	close(p.done)
}

func (p *Process) setEnded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
}

// without returns env without the variables with these names.
func without(env []string, names ...string) []string {
	out := make([]string, 0, len(env)+1)
next:
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		for _, drop := range names {
			if name == drop {
				continue next
			}
		}
		out = append(out, e)
	}
	return out
}

// Environ is the environment of this process without some variables.
func Environ(drop ...string) []string { return without(os.Environ(), drop...) }
