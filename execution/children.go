package execution

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"agentlightning/internal/proc"
	"agentlightning/store"
)

// EnvServer and EnvAuthToken tell children where the store is, beside host and
// port, and what opens it; EnvWorkerID names each of them.
const (
	EnvServer    = "AGL_SERVER"
	EnvAuthToken = "AGL_AUTH_TOKEN"
	EnvWorkerID  = "AGL_WORKER_ID"
)

// Children runs the algorithm in this process and each runner in a process of
// its own, in whatever language. They find the store by [EnvServer], or by
// [EnvServerHost] and [EnvServerPort], and their role, runner, in [EnvRole].
//
// At the end children are told to stop in four steps, each for all that are left:
// the end of their standard input, SIGINT, SIGTERM, SIGKILL. A child that ends
// with another status than those allowed ends everything. Nothing that children
// start outlives them, nor this process.
//
// It runs on Linux, macOS and other Unixes.
type Children struct {
	// Command starts a runner, such as agl runner --until-stdin-ends -- ./agent. Required.
	Command []string
	// Dir is the working directory of children; empty means ours.
	Dir string
	// Env is added to their environment, as NAME=VALUE.
	Env []string
	// Stdout and Stderr get what they write; nil discards it. Writers are used by
	// one goroutine at a time.
	Stdout, Stderr io.Writer

	// URL is the address of a store server that is running, Token what opens it.
	URL, Token string
	// Listen is the address at which the given store is served when there is no
	// URL. Default localhost:4747.
	Listen string

	// GracefulTimeout is how long children may take after the end of their input,
	// and TerminateTimeout after each signal. Default 10 s each.
	GracefulTimeout, TerminateTimeout time.Duration
	// AllowedExitCodes are those of a child that did well; a negative one is a
	// signal. Nil means 0 and -15.
	AllowedExitCodes []int
	// Logger is told of what happens; nil discards.
	Logger *slog.Logger
}

var _ Strategy = Children{}

// ExitError says which children ended as they must not.
type ExitError struct {
	Codes map[string]int // by the name of the child
}

func (e *ExitError) Error() string {
	var b strings.Builder
	b.WriteString("subprocesses failed with unexpected exit codes:")
	names := make([]string, 0, len(e.Codes))
	for name := range e.Codes {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, " %s (%d)", name, e.Codes[name])
	}
	return b.String()
}

// Execute implements [Strategy]. [Work.Runner] is not used: [Work.Runners]
// processes are started in its place.
func (c Children) Execute(ctx context.Context, w Work, s store.Store) error {
	c.GracefulTimeout = cmp.Or(c.GracefulTimeout, 10*time.Second)
	c.TerminateTimeout = cmp.Or(c.TerminateTimeout, 10*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.AllowedExitCodes == nil {
		c.AllowedExitCodes = []int{0, -int(syscall.SIGTERM)}
	}
	if len(c.Command) == 0 {
		return errors.New("execution: Children.Command is empty; give the program of a runner")
	}
	n := Network{Role: RoleAlgorithm, URL: c.URL, Token: c.Token, Logger: c.Logger}
	server := c.URL
	if c.URL == "" {
		n.Listen = cmp.Or(c.Listen, net.JoinHostPort(DefaultHost, strconv.Itoa(DefaultPort)))
		n.serves = func(url string) { server = url }
	}
	return n.Execute(ctx, Work{Algorithm: func(ctx context.Context, s store.Store) error {
		return c.beside(ctx, server, w.Runners, func(ctx context.Context) error {
			if w.Algorithm == nil {
				<-ctx.Done()
				return nil
			}
			return w.Algorithm(ctx, s)
		})
	}}, s)
}

// child is a runner that was started.
type child struct {
	name string
	p    *proc.Process
}

// beside runs the algorithm beside children.
func (c Children) beside(ctx context.Context, server string, runners int, algorithm func(context.Context) error) (err error) {
	var group proc.Group
	defer func() { err = errors.Join(err, group.Close()) }()
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		children []child
		watchers sync.WaitGroup
		stopping = make(chan struct{}) // what children do from now on is their answer to that
	)
	defer watchers.Wait()
	out, errs := &shared{w: c.Stdout}, &shared{w: c.Stderr}
	for i := range runners {
		name := "runner-" + strconv.Itoa(i)
		env, failed := c.environ(server, name)
		if failed != nil {
			err = failed
			break
		}
		p, failed := group.Start(proc.Spec{Command: c.Command, Dir: c.Dir, Env: env, Pipe: true, Stdout: out, Stderr: errs})
		if failed != nil {
			err = fmt.Errorf("start %s: %w", name, failed)
			break
		}
		children = append(children, child{name, p})
		watchers.Go(func() {
			select {
			case <-p.Done():
			case <-stopping:
				return
			}
			if code := exitCode(p.Wait()); !slices.Contains(c.AllowedExitCodes, code) {
				cancel(&ExitError{map[string]int{name: code}})
			} else {
				c.Logger.WarnContext(ctx, "a runner has ended before the algorithm", "child", name, "code", code)
			}
		})
	}
	if err == nil {
		err = algorithm(work)
	}
	close(stopping)
	c.stop(ctx, children)

	failed := &ExitError{map[string]int{}}
	for _, ch := range children {
		if code := exitCode(ch.p.Wait()); !slices.Contains(c.AllowedExitCodes, code) {
			failed.Codes[ch.name] = code
		}
	}
	var caused *ExitError
	switch {
	case len(failed.Codes) == 0:
		return err
	case errors.As(context.Cause(work), &caused): // that is why the algorithm was ended
		return failed
	case err != nil || ctx.Err() != nil: // something else went wrong before
		c.Logger.WarnContext(ctx, "runners ended badly, too", "err", failed)
		return err
	}
	return failed
}

// environ tells a child who it is and where the store is.
func (c Children) environ(server, name string) ([]string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("execution: the address of the store: %w", err)
	}
	env := append(proc.Environ(EnvRole, EnvServerHost, EnvServerPort, EnvServer, EnvAuthToken, EnvWorkerID),
		EnvRole+"="+string(RoleRunner), EnvServer+"="+server, EnvServerHost+"="+u.Hostname(), EnvServerPort+"="+cmp.Or(u.Port(), "80"), EnvWorkerID+"="+name)
	if c.Token != "" {
		env = append(env, EnvAuthToken+"="+c.Token)
	}
	return append(env, c.Env...), nil
}

// stop ends children in four steps, each with one limit for all that are left.
func (c Children) stop(ctx context.Context, children []child) {
	for _, step := range []struct {
		name  string
		do    func(*proc.Process)
		limit time.Duration
	}{
		{"the end of input", func(p *proc.Process) { _ = p.Input.Close() }, c.GracefulTimeout},
		{"SIGINT", func(p *proc.Process) { p.Signal(syscall.SIGINT) }, c.TerminateTimeout},
		{"SIGTERM", func(p *proc.Process) { p.Signal(syscall.SIGTERM) }, c.TerminateTimeout},
		{"SIGKILL", func(p *proc.Process) { p.Signal(syscall.SIGKILL) }, c.TerminateTimeout},
	} {
		children = slices.DeleteFunc(slices.Clone(children), func(ch child) bool { return ended(ch.p) })
		if len(children) == 0 {
			return
		}
		c.Logger.DebugContext(ctx, "stopping runners", "by", step.name, "left", len(children))
		for _, ch := range children {
			step.do(ch.p)
		}
		limit := time.NewTimer(step.limit)
		for _, ch := range children {
			select {
			case <-ch.p.Done():
				continue
			case <-limit.C:
			}
			break
		}
		limit.Stop()
	}
}

func ended(p *proc.Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// exitCode is negative for a signal.
func exitCode(e proc.Exit) int {
	if e.Signal != 0 {
		return -int(e.Signal)
	}
	return e.Code
}

// shared is a writer of several children.
type shared struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.w == nil {
		return len(p), nil
	}
	return s.w.Write(p)
}
