//go:build unix

package execution_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"agentlightning/execution"
	"agentlightning/store"
)

// saying is what children write, and how often a word came.
type saying struct {
	mu   sync.Mutex
	text bytes.Buffer
	come chan struct{}
}

func (s *saying) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(p)
	select {
	case s.come <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (s *saying) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// await waits until children have said a word n times, or ctx ends.
func (s *saying) await(ctx context.Context, word string, n int) error {
	for strings.Count(s.String(), word) < n {
		select {
		case <-s.come:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

const loop = `echo ready; while :; do sleep 0.02; done`

func TestStopOfChildren(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	short, long := 150*time.Millisecond, time.Minute
	for name, tt := range map[string]struct {
		script              string
		graceful, terminate time.Duration
		allowed             []int
		algorithm           error
		interrupt           bool
		said                string
		want                string // part of the error
	}{
		"end of input":               {script: `echo ready; cat; echo input ended`, graceful: long, terminate: long, said: "input ended"},
		"SIGINT":                     {script: `trap 'echo by INT; exit 0' INT; ` + loop, graceful: short, terminate: long, said: "by INT"},
		"SIGTERM":                    {script: `trap 'echo not by INT' INT; trap 'echo by TERM; exit 0' TERM; ` + loop, graceful: short, terminate: short, said: "by TERM"},
		"killed by SIGTERM is fine":  {script: `trap '' INT; ` + loop, graceful: short, terminate: short},
		"SIGKILL is not":             {script: `trap '' INT TERM; ` + loop, graceful: short, terminate: short, want: "subprocesses failed with unexpected exit codes: runner-0 (-9), runner-1 (-9)"},
		"unless it is allowed":       {script: `trap '' INT TERM; ` + loop, graceful: short, terminate: short, allowed: []int{-9}},
		"a status at the end":        {script: `echo ready; cat; exit 3`, graceful: long, terminate: long, want: "runner-0 (3), runner-1 (3)"},
		"an allowed status":          {script: `echo ready; cat; exit 3`, graceful: long, terminate: long, allowed: []int{0, 3}},
		"the first error counts":     {script: `echo ready; cat; exit 3`, graceful: long, terminate: long, algorithm: broken, want: "broken"},
		"so does an interrupt":       {script: `trap '' INT TERM; ` + loop, graceful: short, terminate: short, interrupt: true, want: "context canceled"},
		"a status in the middle":     {script: `echo ready; [ "$AGL_WORKER_ID" = runner-1 ] && exit 4; cat`, graceful: long, terminate: long, algorithm: context.Canceled, want: "unexpected exit codes: runner-1 (4)"},
		"an end in the middle":       {script: `echo ready; [ "$AGL_WORKER_ID" = runner-1 ] && exit 0; cat`, graceful: long, terminate: long},
		"a command that is not here": {script: "", want: "start runner-0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := &saying{come: make(chan struct{}, 1)}
			c := execution.Children{
				Command: []string{"sh", "-c", tt.script}, Stdout: out, Listen: "127.0.0.1:0",
				GracefulTimeout: tt.graceful, TerminateTimeout: tt.terminate, AllowedExitCodes: tt.allowed,
			}
			if tt.script == "" {
				c.Command = []string{"./no-such-runner"}
			}
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			err := c.Execute(ctx, execution.Work{Runners: 2, Algorithm: func(ctx context.Context, _ store.Store) error {
				if err := out.await(ctx, "ready", 2); err != nil {
					return err
				}
				if errors.Is(tt.algorithm, context.Canceled) { // that it is ended is what is tested
					<-ctx.Done()
					return ctx.Err()
				}
				if tt.interrupt {
					interrupt()
				}
				return tt.algorithm
			}}, newStore(t))
			switch {
			case tt.want == "" && err != nil, tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("Execute() = %v, want %q", err, tt.want)
			case strings.Count(out.String(), tt.said) < 2 && tt.said != "":
				t.Errorf("children said %q, want each to say %q", out.String(), tt.said)
			}
			if strings.Contains(tt.want, "broken") && strings.Contains(err.Error(), "exit codes") {
				t.Errorf("Execute() = %v, want the first error alone", err)
			}
		})
	}
}

// TestWhatChildrenAreTold: their role, and where the store is.
func TestWhatChildrenAreTold(t *testing.T) {
	t.Parallel()
	out := &saying{come: make(chan struct{}, 1)}
	address := freeAddress(t)
	host, port, _ := strings.Cut(address, ":")
	c := execution.Children{
		Command: []string{"sh", "-c", `echo "$AGL_CURRENT_ROLE $AGL_SERVER $AGL_SERVER_HOST $AGL_SERVER_PORT $AGL_WORKER_ID $MORE|"; cat`},
		Stdout:  out, Listen: address, Env: []string{"MORE=more"},
	}
	err := c.Execute(t.Context(), execution.Work{Runners: 1, Algorithm: func(ctx context.Context, _ store.Store) error {
		return out.await(ctx, "|", 1)
	}}, newStore(t))
	if want := "runner http://" + address + " " + host + " " + port + " runner-0 more|\n"; err != nil || out.String() != want {
		t.Errorf("%v, %q, want %q", err, out.String(), want)
	}
	if err := (execution.Children{}).Execute(t.Context(), execution.Work{}, newStore(t)); err == nil || !strings.Contains(err.Error(), "Children.Command") {
		t.Errorf("without a command: %v", err)
	}
}
