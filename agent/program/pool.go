package program

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/internal/proc"
)

// pool holds processes that wait for a task. The one that was used last is used
// first.
type pool struct {
	mu     sync.Mutex
	idle   []*member
	closed bool
}

// member is a process that is given one task after another.
type member struct {
	p       *proc.Process
	answers chan answer
	stdout  *lineWriter
	stderr  *divert
}

// answer is what a process says about a task, as a line.
type answer struct {
	AttemptID string          `json:"attempt_id"`
	Reward    *float64        `json:"reward"`
	Error     *string         `json:"error"`
	line      json.RawMessage // as it was written
}

// question is a task as a line.
type question struct {
	RolloutID string          `json:"rollout_id"`
	AttemptID string          `json:"attempt_id"`
	Mode      agl.Mode        `json:"mode"`
	Task      json.RawMessage `json:"task"`
	Env       variables       `json:"env"`
}

var errClosed = errors.New("program: the agent is closed")

// take returns a process that waits for a task, and starts one if there is none.
func (a *Agent) take() (*member, error) {
	for {
		a.pool.mu.Lock()
		if a.pool.closed {
			a.pool.mu.Unlock()
			return nil, errClosed
		}
		n := len(a.pool.idle)
		if n == 0 {
			a.pool.mu.Unlock()
			break
		}
		m := a.pool.idle[n-1]
		a.pool.idle = a.pool.idle[:n-1]
		a.pool.mu.Unlock()
		select {
		case <-m.p.Done(): // it ended while nobody needed it
		default:
			return m, nil
		}
	}
	m := &member{answers: make(chan answer, 1), stderr: &divert{}}
	m.stdout = &lineWriter{answers: m.answers}
	var err error
	m.p, err = a.group.Start(proc.Spec{
		Command: a.cfg.Command, Dir: a.cfg.Dir, Env: variables{}.environ(a.cfg.Env), Pipe: true,
		Stdout: m.stdout, Stderr: m.stderr, Limits: a.cfg.limits(),
	})
	if err != nil {
		return nil, fmt.Errorf("start program %q: %w", a.cfg.Command[0], err)
	}
	return m, nil
}

// give puts a process back, unless the pool is closed.
func (a *Agent) give(m *member) {
	a.pool.mu.Lock()
	closed := a.pool.closed
	if !closed {
		a.pool.idle = append(a.pool.idle, m)
	}
	a.pool.mu.Unlock()
	if closed {
		m.stop(a.cfg.Grace)
	}
}

func (p *pool) close(grace time.Duration) {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	var all sync.WaitGroup
	for _, m := range idle {
		all.Go(func() { m.stop(grace) })
	}
	all.Wait()
}

// stop closes the input of a process, which is its sign to end, and ends it when
// it does not.
func (m *member) stop(grace time.Duration) {
	_ = m.p.Input.Close()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-m.p.Done():
	case <-timer.C:
		m.p.Stop(grace)
	}
}

// ask has a process of the pool do one attempt.
func (a *Agent) ask(ctx context.Context, c *agent.Call, vars variables, stdout, stderr *output) (agent.Result, error) {
	line, err := json.Marshal(question{c.Rollout.RolloutID, c.Rollout.Attempt.AttemptID, c.Rollout.Mode, c.Rollout.Input, vars})
	if err != nil {
		return agent.Result{}, fmt.Errorf("the line for program %q: %w", a.cfg.Command[0], err)
	}
	m, err := a.take()
	if err != nil {
		return agent.Result{}, err
	}
	m.stdout.begin(c.Rollout.Attempt.AttemptID, stdout)
	m.stderr.to(stderr)
	written := make(chan bool, 1)
	go func() { // ends with the process at the latest
		_, err := m.p.Input.Write(append(line, '\n'))
		written <- err == nil
	}()
	var got answer
	select {
	case got = <-m.answers:
	case <-m.p.Done():
		select {
		case got = <-m.answers: // its last words
		default:
			<-written
			m.stdout.end()
			return agent.Result{}, exitError(a.cfg.Command, m.p.Wait(), stderr)
		}
	case <-ctx.Done():
		m.p.Stop(a.cfg.Grace)
		<-written
		m.stdout.end()
		return agent.Result{}, fmt.Errorf("program %q: %w", a.cfg.Command[0], context.Cause(ctx))
	}
	m.stdout.begin("", nil)
	m.stderr.to(nil)
	if <-written {
		a.give(m)
	} else {
		m.p.Stop(0)
	}
	return a.answered(got, stdout)
}

// answered makes a result of an answer.
func (a *Agent) answered(got answer, stdout *output) (agent.Result, error) {
	switch {
	case got.Error != nil:
		return agent.Result{}, fmt.Errorf("program %q: %s", a.cfg.Command[0], clip(*got.Error))
	case a.cfg.Grader != nil:
		_, _ = stdout.Write(append(got.line, '\n')) // what the grader looks at
	case a.cfg.Reward == RewardStdout && got.Reward == nil:
		return agent.Result{}, fmt.Errorf("program %q answered %q: there is no number \"reward\" in it", a.cfg.Command[0], clip(string(got.line)))
	case a.cfg.Reward == RewardStdout:
		return agent.Reward(*got.Reward), nil
	}
	return agent.Result{}, nil
}

// mostLine bounds a line that is looked at as an answer.
const mostLine = 1 << 20

// lineWriter finds the answer to the current task among the lines that a process
// writes. All others are output of that task.
type lineWriter struct {
	answers chan<- answer

	mu      sync.Mutex
	attempt string // empty between tasks
	out     *output
	line    []byte // what came of the current line
	long    bool   // it is longer than mostLine, and no answer
}

// begin says whose output follows.
func (w *lineWriter) begin(attempt string, out *output) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempt, w.out = attempt, out
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		part := p
		if end >= 0 {
			part = p[:end+1]
		}
		p = p[len(part):]
		w.line = append(w.line, part...)
		switch {
		case end >= 0:
			w.finish()
		case len(w.line) > mostLine:
			w.spill()
			w.long = true
		}
	}
	return n, nil
}

// finish looks at a whole line.
func (w *lineWriter) finish() {
	var got answer
	if !w.long && w.attempt != "" && bytes.HasPrefix(bytes.TrimSpace(w.line), []byte("{")) &&
		json.Unmarshal(w.line, &got) == nil && got.AttemptID == w.attempt {
		got.line = bytes.Clone(bytes.TrimSpace(w.line))
		w.line, w.attempt = w.line[:0], "" // one answer a task
		w.answers <- got
		return
	}
	w.spill()
	w.long = false
}

// end takes a last line that was not ended.
func (w *lineWriter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spill()
}

// spill takes what came of the line for output.
func (w *lineWriter) spill() {
	if w.out != nil {
		_, _ = w.out.Write(w.line)
	}
	w.line = w.line[:0]
}

// divert writes to whatever output is the current one.
type divert struct {
	mu  sync.Mutex
	out *output
}

func (d *divert) to(out *output) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.out = out
}

func (d *divert) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.out == nil {
		return len(p), nil // between two tasks
	}
	return d.out.Write(p)
}
