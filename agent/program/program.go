package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/internal/proc"
)

// Agent runs a command for each attempt. It is safe for concurrent use. Close it
// when no attempt runs any more.
type Agent struct {
	cfg   Config
	group proc.Group
	pool  pool

	closing sync.Once
	closed  error
}

var (
	_ agent.Agent     = (*Agent)(nil)
	_ agent.TokenUser = (*Agent)(nil)
)

// New returns an agent, or an error that names the field that is wrong, or the
// program that cannot be found. It starts nothing.
func New(cfg Config) (*Agent, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Agent{cfg: cfg.withDefaults()}, nil
}

// UsesToken implements [agent.TokenUser]: with a server, the program is given
// what opens it for its attempt.
func (a *Agent) UsesToken(agl.Mode) bool { return a.cfg.Server != "" }

// Close ends the processes of the pool and returns when nothing is left.
func (a *Agent) Close() error {
	a.closing.Do(func() {
		a.pool.close(a.cfg.Grace)
		a.closed = a.group.Close()
	})
	return a.closed
}

// Run implements [agent.Agent]. The error is an [*ExitError] when the program did
// not end well.
func (a *Agent) Run(ctx context.Context, c *agent.Call) (agent.Result, error) {
	vars, err := a.variables(c)
	if err != nil {
		return agent.Result{}, err
	}
	if a.cfg.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, a.cfg.Timeout, &timeoutError{a.cfg.Timeout})
		defer stop()
	}
	stdout, stderr := &output{most: a.cfg.Output}, &output{most: a.cfg.Output}
	var result agent.Result
	if a.cfg.Pool {
		result, err = a.ask(ctx, c, vars, stdout, stderr)
	} else {
		result, err = a.once(ctx, c, vars, stdout, stderr)
	}
	recorded := errors.Join(stdout.record(ctx, "stdout"), stderr.record(ctx, "stderr"))
	if err == nil && a.cfg.Grader != nil {
		result, err = a.grade(ctx, c, stdout, stderr)
	}
	return result, errors.Join(err, recorded)
}

// timeoutError is the cause with which the context of a program ends that takes
// longer than its agent lets it.
type timeoutError struct{ limit time.Duration }

func (e *timeoutError) Error() string {
	return fmt.Sprintf("killed: it took longer than the limit of %v", e.limit)
}

// once runs the command for one attempt.
func (a *Agent) once(ctx context.Context, c *agent.Call, vars variables, stdout, stderr *output) (agent.Result, error) {
	exit, err := a.run(ctx, proc.Spec{
		Command: a.cfg.Command, Env: vars.environ(a.cfg.Env),
		Stdin: task(c), Stdout: stdout, Stderr: stderr,
	})
	if err != nil {
		return agent.Result{}, err
	}
	if a.cfg.Reward == RewardExit && exit.Err == nil && exit.Signal == 0 {
		switch exit.Code {
		case 0:
			return agent.Reward(1), nil
		case a.cfg.WrongStatus:
			return agent.Reward(0), nil
		}
	}
	if exit != (proc.Exit{}) {
		return agent.Result{}, exitError(a.cfg.Command, exit, stderr)
	}
	if a.cfg.Reward == RewardStdout {
		reward, err := parseReward(stdout)
		if err != nil {
			return agent.Result{}, fmt.Errorf("program %q: %w", a.cfg.Command[0], err)
		}
		return agent.Reward(reward), nil
	}
	return agent.Result{}, nil
}

func task(c *agent.Call) io.Reader { return strings.NewReader(string(c.Rollout.Input) + "\n") }

// run runs a command to its end, or until ctx ends. Then the error is its cause.
func (a *Agent) run(ctx context.Context, spec proc.Spec) (proc.Exit, error) {
	spec.Dir, spec.Limits = a.cfg.Dir, a.cfg.limits()
	if ctx.Err() != nil {
		return proc.Exit{}, context.Cause(ctx)
	}
	p, err := a.group.Start(spec)
	if err != nil {
		return proc.Exit{}, fmt.Errorf("start program %q: %w", spec.Command[0], err)
	}
	select {
	case <-p.Done():
		return p.Wait(), nil
	case <-ctx.Done():
	}
	p.Stop(a.cfg.Grace)
	return proc.Exit{}, fmt.Errorf("program %q: %w", spec.Command[0], context.Cause(ctx))
}

// grade asks the grader for the reward.
func (a *Agent) grade(ctx context.Context, c *agent.Call, agentOut, agentErr *output) (agent.Result, error) {
	said, _, _ := agentOut.text()
	complained, _, _ := agentErr.text()
	input, err := json.Marshal(struct {
		RolloutID string          `json:"rollout_id"`
		AttemptID string          `json:"attempt_id"`
		Mode      agl.Mode        `json:"mode"`
		Task      json.RawMessage `json:"task"`
		Stdout    string          `json:"stdout"`
		Stderr    string          `json:"stderr"`
	}{c.Rollout.RolloutID, c.Rollout.Attempt.AttemptID, c.Rollout.Mode, c.Rollout.Input, said, complained})
	if err != nil {
		return agent.Result{}, fmt.Errorf("what the grader reads: %w", err)
	}
	stdout, stderr := &output{most: a.cfg.Output}, &output{most: a.cfg.Output}
	exit, err := a.run(ctx, proc.Spec{
		Command: a.cfg.Grader, Env: identity(c).environ(a.cfg.Env),
		Stdin: strings.NewReader(string(input) + "\n"), Stdout: stdout, Stderr: stderr,
	})
	recorded := errors.Join(stdout.record(ctx, "grader stdout"), stderr.record(ctx, "grader stderr"))
	if err == nil && exit != (proc.Exit{}) {
		err = exitError(a.cfg.Grader, exit, stderr)
	}
	if err == nil {
		var reward float64
		if reward, err = parseReward(stdout); err == nil {
			return agent.Reward(reward), recorded
		}
	}
	return agent.Result{}, errors.Join(fmt.Errorf("grader: %w", err), recorded)
}
