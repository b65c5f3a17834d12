package rescore

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// maxAnswer is the length of the longest answer of a program or service, in
// bytes.
const maxAnswer = 1 << 20

// stopGrace is how long a program that was told to stop may take.
const stopGrace = 5 * time.Second

// Command scores by a program. It is given an attempt as JSON on standard input
// and answers as [ParseScore] reads it on standard output; what it writes to
// standard error is shown when it fails. Close ends the programs that were kept.
type Command struct {
	// Args are the program and its arguments; required.
	Args []string
	// Lines keeps programs: each gets an attempt a line and answers a line, in
	// order. Otherwise a program is started for every attempt.
	Lines bool
	// Timeout bounds one answer; 0 means a minute.
	Timeout time.Duration

	mu   sync.Mutex
	idle []*child
	done bool
}

var _ Scorer = (*Command)(nil)

func (c *Command) String() string { return "command: " + strings.Join(c.Args, " ") }

// Digest implements [Scorer]. It tells arguments apart, not what the program is.
func (c *Command) Digest() string { return digest(append([]string{"command"}, c.Args...)...) }

// Score implements [Scorer].
func (c *Command) Score(ctx context.Context, attempts []Attempt) []Score {
	return scoreEach(ctx, attempts, c.one)
}

// scoreEach has one score each attempt, which it is given as JSON.
func scoreEach(ctx context.Context, attempts []Attempt, one func(ctx context.Context, asked []byte) Score) []Score {
	out := make([]Score, len(attempts))
	for i := range attempts {
		asked, err := json.Marshal(&attempts[i])
		if err != nil {
			out[i] = failed("attempt cannot be written", err)
			continue
		}
		out[i] = one(ctx, asked)
	}
	return out
}

func (c *Command) one(ctx context.Context, asked []byte) Score {
	timeout := c.Timeout
	if timeout == 0 {
		timeout = time.Minute
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	if c.Lines {
		return c.ask(ctx, asked)
	}
	var answer, complaints tail
	cmd := c.command(ctx)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(asked), &answer, &complaints
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return failed("the command did not answer", context.Cause(ctx))
	case err != nil:
		return failed("the command failed", complaints.explain(err))
	case answer.cut:
		return failed("answer cannot be read", fmt.Errorf("it is longer than %d bytes", maxAnswer))
	}
	return ParseScore(answer.kept)
}

func (c *Command) command(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = stopGrace
	return cmd
}

// child is a program that answers line by line. Its life is longer than that of
// one question, so it has a context of its own.
type child struct {
	cmd        *exec.Cmd
	stop       context.CancelFunc
	in         io.WriteCloser
	out        *bufio.Reader
	complaints tail
}

func (c *Command) start(ctx context.Context) (*child, error) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	k := &child{cmd: c.command(ctx), stop: stop}
	var err error
	k.in, err = k.cmd.StdinPipe()
	if err == nil {
		var out io.ReadCloser
		out, err = k.cmd.StdoutPipe()
		k.out = bufio.NewReader(out)
	}
	k.cmd.Stderr = &k.complaints
	if err == nil {
		err = k.cmd.Start()
	}
	if err != nil {
		stop()
		return nil, err
	}
	return k, nil
}

// ask gets a program that waits, or starts one, and asks it.
func (c *Command) ask(ctx context.Context, asked []byte) Score {
	c.mu.Lock()
	if c.done {
		c.mu.Unlock()
		return failed("the command is closed", errors.New("Score after Close"))
	}
	var k *child
	if n := len(c.idle); n > 0 {
		k, c.idle = c.idle[n-1], c.idle[:n-1]
	}
	c.mu.Unlock()
	if k == nil {
		var err error
		if k, err = c.start(ctx); err != nil {
			return failed("the command cannot be started", err)
		}
	}
	line, err := k.ask(ctx, append(asked, '\n'))
	if err != nil {
		ended := k.end()
		if ctx.Err() != nil {
			return failed("the command did not answer", context.Cause(ctx))
		}
		return failed("the command failed", k.complaints.explain(errors.Join(err, ended)))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = append(c.idle, k)
	return ParseScore(line)
}

// ask writes a line and reads one. When ctx ends first the program is stopped,
// which ends both.
func (k *child) ask(ctx context.Context, line []byte) ([]byte, error) {
	unhook := context.AfterFunc(ctx, k.stop)
	defer unhook()
	if _, err := k.in.Write(line); err != nil {
		return nil, err
	}
	var answer []byte
	for {
		part, err := k.out.ReadSlice('\n')
		answer = append(answer, part...)
		switch {
		case len(answer) > maxAnswer:
			return nil, fmt.Errorf("an answer is longer than %d bytes", maxAnswer)
		case err == nil:
			return answer, ctx.Err()
		case errors.Is(err, io.EOF):
			return nil, errors.New("it ended without an answer")
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// end stops a program and waits for it.
func (k *child) end() error {
	k.stop()
	return k.cmd.Wait()
}

// Close ends the programs that wait for questions, by the end of their input. It
// must not run at the same time as Score.
func (c *Command) Close() error {
	c.mu.Lock()
	idle := c.idle
	c.idle, c.done = nil, true
	c.mu.Unlock()
	var failures []error
	for _, k := range idle {
		late := time.AfterFunc(stopGrace, k.stop)
		failures = append(failures, k.in.Close(), k.cmd.Wait())
		late.Stop()
		k.stop()
	}
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("end of %s: %w", c, err)
	}
	return nil
}

// tail keeps what a program writes, up to a limit: of standard output all of it,
// of standard error enough to explain a failure.
type tail struct {
	kept []byte
	cut  bool
}

func (t *tail) Write(p []byte) (int, error) {
	if room := maxAnswer - len(t.kept); len(p) > room {
		t.cut = true
		t.kept = append(t.kept, p[:room]...)
	} else {
		t.kept = append(t.kept, p...)
	}
	return len(p), nil
}

// explain adds the last line of what was written to an error.
func (t *tail) explain(err error) error {
	lines := strings.Split(strings.TrimSpace(string(t.kept)), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return fmt.Errorf("%w: %s", err, clip(last, 300))
	}
	return err
}
