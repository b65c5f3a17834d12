package local

import (
	"cmp"
	"context"
	_ "embed" // the program that runs a Python class
	"fmt"
	"os/exec"
	"sync"
	"time"

	"agentlightning/gateway"
	"agentlightning/internal/proc"
)

// attempt is the only attempt that a controller of this protocol makes.
const attempt = "0"

// mostListed is how many rollouts are asked for; the protocol has no pages.
const mostListed = 1_000_000

const (
	// killWait is how long the end of an agent is awaited that was killed.
	killWait = 5 * time.Second
	// adoptedPoll is how often adopted agents are looked at, whose end nobody
	// tells.
	adoptedPoll = time.Second
	// stopLimit is how long a controller that stops tries to reach the server.
	stopLimit = 10 * time.Second
)

// Why rollouts fail, in the words of the protocol's first controller.
const (
	failedSpawn    = "local subprocess spawn failed: "
	failedMissing  = "invalid rollout config: missing config.local.agent_class"
	failedGone     = "local subprocess is not running"
	failedTimeout  = "local subprocess timed out"
	failedShutdown = "local controller shutdown"
)

//go:embed bootstrap.py
var bootstrap string

// record runs a command and writes its status to a file, so that it is known to
// a controller whose child it is not.
const record = `exit=$1; shift
"$@"
code=$?
echo $code >"$exit.new" && mv "$exit.new" "$exit"
exit $code`

// Controller runs queued rollouts as processes.
type Controller struct {
	cfg    Config
	client gateway.Client
	notes  *notes

	executions map[string]*execution // by rollout
	ended      chan struct{}         // a child has ended
	watchers   sync.WaitGroup
}

// New returns a controller, or an error that names the field that is wrong.
func New(cfg Config) (*Controller, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &Controller{
		cfg:        cfg,
		client:     gateway.Client{BaseURL: cfg.Server, Token: cfg.Token, HTTP: cfg.HTTP},
		executions: map[string]*execution{}, ended: make(chan struct{}, 1),
	}, nil
}

// Run works until ctx ends; then it reports what has ended, ends the other
// agents unless [Config.Leave] says otherwise, and returns nil. It returns an
// error when the folder of notes cannot be used. A server that cannot be reached
// is tried again. Run may be called once.
func (c *Controller) Run(ctx context.Context) error {
	var err error
	if c.notes, err = openNotes(c.cfg.StateDir); err != nil {
		return fmt.Errorf("controller: %w", err)
	}
	defer func() { _ = c.notes.close() }() // only the lock is open
	if err := c.adopt(ctx); err != nil {
		return fmt.Errorf("controller: %w", err)
	}
	stopWatching := make(chan struct{})
	defer c.watchers.Wait()
	defer close(stopWatching)
	for ctx.Err() == nil {
		if err := c.round(ctx, stopWatching); err != nil && ctx.Err() == nil {
			c.cfg.Logger.WarnContext(ctx, "cannot list rollouts; trying again", "server", c.cfg.Server, "err", err)
		}
		timer := time.NewTimer(c.pause())
		select {
		case <-ctx.Done():
		case <-c.ended:
		case <-timer.C:
		}
		timer.Stop()
	}
	c.stop(context.WithoutCancel(ctx))
	return nil
}

// pause is the time to the next round when no child ends before.
func (c *Controller) pause() time.Duration {
	for _, e := range c.executions {
		if e.child == nil {
			return min(c.cfg.PollInterval, adoptedPoll)
		}
	}
	return c.cfg.PollInterval
}

// adopt takes over what a predecessor noted.
func (c *Controller) adopt(ctx context.Context) error {
	found, err := c.notes.read()
	if err != nil {
		return err
	}
	for _, e := range found {
		if e.Process.PID == 0 { // it died while it started the agent
			e.Process.Kill()
			if err := c.notes.remove(e.RolloutID); err != nil {
				return err
			}
			continue
		}
		c.executions[e.RolloutID] = e
		c.cfg.Logger.InfoContext(ctx, "adopted an agent", "rollout_id", e.RolloutID, "pid", e.Process.PID, "running", e.running())
	}
	return nil
}

// round looks at the server once. Nothing is started when stopped is nil.
func (c *Controller) round(ctx context.Context, stopped <-chan struct{}) error {
	listed, err := c.client.Rollouts(ctx, mostListed, gateway.Queuing, gateway.Running)
	if err != nil {
		return err
	}
	live := 0
	for _, e := range c.executions {
		if e.running() {
			live++
		}
	}
	wanted := make(map[string]bool, len(listed))
	for i := range listed {
		r := &listed[i]
		wanted[r.RolloutID] = true
		e := c.executions[r.RolloutID]
		switch {
		case e == nil && r.Status.State == gateway.Queuing:
			if stopped != nil && live < c.cfg.Size && ctx.Err() == nil && c.start(ctx, r, stopped) {
				live++
			}
		case e == nil:
			_ = c.patch(ctx, r.RolloutID, failed(failedGone)) // the next round tries again
		case !e.running():
			c.finish(ctx, r, e)
		case r.Config.TimeoutSeconds > 0 && time.Since(e.Started) > time.Duration(r.Config.TimeoutSeconds)*time.Second:
			c.kill(ctx, e, failedTimeout)
			c.finish(ctx, r, e)
		case r.Status.State == gateway.Queuing: // an earlier report was lost
			_ = c.patch(ctx, r.RolloutID, started())
		}
	}
	for id, e := range c.executions {
		if !wanted[id] { // ended or deleted by somebody else
			if e.running() {
				c.cfg.Logger.InfoContext(ctx, "nobody waits for the agent any more", "rollout_id", id)
				c.kill(ctx, e, failedGone)
			}
			c.forget(ctx, e)
		}
	}
	return nil
}

// start starts the agent of a rollout, and reports whether it runs.
func (c *Controller) start(ctx context.Context, r *gateway.Rollout, stopped <-chan struct{}) bool {
	e, err := c.spawn(r)
	if err != nil {
		c.cfg.Logger.WarnContext(ctx, "cannot start the agent", "rollout_id", r.RolloutID, "err", err)
		_ = c.patch(ctx, r.RolloutID, failed(failedSpawn+err.Error())) // the next round tries again
		return false
	}
	c.executions[r.RolloutID] = e
	c.watchers.Go(func() {
		select {
		case <-e.child.Done():
		case <-stopped:
			return
		}
		select {
		case c.ended <- struct{}{}:
		default: // a round is due already
		}
	})
	c.cfg.Logger.InfoContext(ctx, "started an agent", "rollout_id", r.RolloutID, "pid", e.Process.PID)
	if err := c.patch(ctx, r.RolloutID, started()); gateway.IsConflict(err) || gateway.IsNotFound(err) {
		// Another controller has it, or it was deleted.
		c.kill(ctx, e, failedGone)
		c.forget(ctx, e)
		return false
	}
	r.Status.State = gateway.Running
	return true
}

// spawn starts the process. It is noted before, so that a controller that dies
// in between leaves nothing unknown.
func (c *Controller) spawn(r *gateway.Rollout) (*execution, error) {
	if r.Config.Local == nil || r.Config.Local.AgentClass == nil || *r.Config.Local.AgentClass == "" {
		return nil, fmt.Errorf("%s", failedMissing)
	}
	class := *r.Config.Local.AgentClass
	env, err := c.environ(r)
	if err != nil {
		return nil, err
	}
	command := []string{"/bin/sh", "-c", c.cfg.Commands[class]}
	if c.cfg.Commands[class] == "" {
		python, err := exec.LookPath(c.cfg.Python)
		if err != nil {
			return nil, err
		}
		command = []string{python, "-c", bootstrap, class}
	}
	if err := c.notes.remove(r.RolloutID); err != nil {
		return nil, err
	}
	e := &execution{RolloutID: r.RolloutID, Process: proc.Identity{Mark: proc.NewMark()}, Started: time.Now()}
	if err := c.notes.write(e); err != nil {
		return nil, err
	}
	spec := proc.Spec{
		Command: append([]string{"/bin/sh", "-c", record, "agl", c.notes.path(r.RolloutID, exitSuffix)}, command...),
		Dir:     c.cfg.Dir, Env: env, Mark: e.Process.Mark,
	}
	if c.cfg.Output != nil {
		spec.Stdout, spec.Stderr = c.cfg.Output, c.cfg.Output
	}
	if e.child, err = proc.Detach(spec); err != nil {
		_ = c.notes.remove(r.RolloutID) // the start is what failed
		return nil, err
	}
	e.Process = e.child.Identity()
	if err := c.notes.write(e); err != nil {
		e.child.Stop(0)
		return nil, err
	}
	return e, nil
}

// finish reports how an agent has ended, and forgets it once the server knows.
func (c *Controller) finish(ctx context.Context, r *gateway.Rollout, e *execution) {
	if r.Status.State == gateway.Queuing && c.patch(ctx, r.RolloutID, started()) != nil {
		return // in the next round
	}
	how := gateway.StatusPatch{State: gateway.Succeeded}
	if e.Killed != "" {
		how = failed(e.Killed)
	} else if code, known := c.notes.exitCode(e); !known {
		how = failed(failedGone)
	} else if code != 0 {
		how = failed(fmt.Sprintf("subprocess exited with code %d", code))
	}
	err := c.patch(ctx, r.RolloutID, how)
	if err == nil || gateway.IsConflict(err) || gateway.IsNotFound(err) {
		c.forget(ctx, e)
	}
}

// kill ends an agent and notes why.
func (c *Controller) kill(ctx context.Context, e *execution, why string) {
	e.Killed = why
	if err := c.notes.write(e); err != nil {
		c.cfg.Logger.WarnContext(ctx, "cannot note why the agent is ended", "rollout_id", e.RolloutID, "err", err)
	}
	e.Process.Kill()
	limit := time.NewTimer(killWait)
	defer limit.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for e.running() {
		select {
		case <-look.C:
		case <-limit.C:
			c.cfg.Logger.ErrorContext(ctx, "the agent was killed and has not ended", "rollout_id", e.RolloutID, "pid", e.Process.PID)
			return
		}
	}
}

// forget drops an agent that has ended.
func (c *Controller) forget(ctx context.Context, e *execution) {
	if e.child == nil {
		e.Process.Kill() // what it left; a child left nothing
	}
	delete(c.executions, e.RolloutID)
	if err := c.notes.remove(e.RolloutID); err != nil {
		c.cfg.Logger.WarnContext(ctx, "cannot remove the note of an agent", "rollout_id", e.RolloutID, "err", err)
	}
}

// stop reports what has ended, then ends the rest or leaves it.
func (c *Controller) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	if err := c.round(ctx, nil); err != nil {
		c.cfg.Logger.WarnContext(ctx, "cannot list rollouts at the end", "server", c.cfg.Server, "err", err)
	}
	if c.cfg.Leave {
		c.cfg.Logger.InfoContext(ctx, "agents go on for the next controller", "running", len(c.executions))
		return
	}
	for _, e := range c.executions {
		if !e.running() {
			continue // the server could not be told; the next controller does
		}
		c.kill(ctx, e, failedShutdown)
		if err := c.patch(ctx, e.RolloutID, failed(failedShutdown)); err == nil || gateway.IsConflict(err) || gateway.IsNotFound(err) {
			c.forget(ctx, e)
		}
	}
}

func started() gateway.StatusPatch {
	id := attempt
	last := &id
	return gateway.StatusPatch{State: gateway.Running, LastAttemptID: &last}
}

func failed(why string) gateway.StatusPatch {
	text := &why
	return gateway.StatusPatch{State: gateway.Failed, ErrorMessage: &text}
}

// patch reports a change. What fails is tried again by the next round.
func (c *Controller) patch(ctx context.Context, rolloutID string, p gateway.StatusPatch) error {
	_, err := c.client.PatchRollout(ctx, rolloutID, p)
	if err != nil {
		c.cfg.Logger.WarnContext(ctx, "cannot report a state", "rollout_id", rolloutID, "state", cmp.Or(string(p.State), "as it was"), "err", err)
	}
	return err
}
