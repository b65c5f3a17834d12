package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	agl "agentlightning"
)

// Agent executes one attempt.
//
// The context ends when the attempt is cancelled, runs into its time limit or
// the runner stops; [context.Cause] says which. It also carries the trace of
// the attempt: pass it on to everything that should be recorded. Run may be
// called by several goroutines at once.
type Agent interface {
	Run(ctx context.Context, c *Call) (Result, error)
}

// Call is one attempt as the agent sees it.
type Call struct {
	// Rollout is the task with its attempt, as it was claimed. The attempt is never nil.
	Rollout agl.AttemptedRollout
	// Resources are what the rollout was enqueued with.
	Resources agl.NamedResources
	// Token opens the server for this attempt, and for nothing else: its model
	// calls and its spans. Empty when the server asks for none.
	Token string
	// Logger carries the ids of the attempt; never nil under a runner.
	Logger *slog.Logger
}

// Training reports whether the attempt is for training. Every other mode, and
// none, counts as evaluation.
func (c *Call) Training() bool { return c.Rollout.Mode == agl.ModeTrain }

// LLM returns the model with this name, or the first one when the name is
// empty. A model behind the proxy is returned as this attempt reaches it, so
// that its calls are recorded as calls of this attempt, with the attempt's token
// for its key when the server asks for one.
func (c *Call) LLM(name string) (agl.LLM, error) {
	need := NeedLLM(name)
	r, ok := need.find(c.Resources)
	if !ok {
		return agl.LLM{}, c.missing(need)
	}
	if p, ok := r.(agl.ProxyLLM); ok {
		llm := p.Route(c.Rollout.RolloutID, c.Rollout.Attempt.AttemptID)
		if c.Token != "" {
			llm.APIKey = &c.Token
		}
		return llm, nil
	}
	return r.(agl.LLM), nil
}

// AgentLLM returns the model as [Call.LLM] does, for one of several agents that
// work on the attempt: the calls that are made with it are recorded under the
// agent's name.
func (c *Call) AgentLLM(agent, name string) (agl.LLM, error) {
	llm, err := c.LLM(name)
	if err != nil || agent == "" {
		return llm, err
	}
	if r, _ := NeedLLM(name).find(c.Resources); r.Kind() == agl.KindProxyLLM {
		base, found := strings.CutSuffix(llm.Endpoint, "/v1")
		llm.Endpoint = base + "/agent/" + url.PathEscape(agent)
		if found {
			llm.Endpoint += "/v1"
		}
	}
	return llm, nil
}

// Prompt returns the prompt template with this name, or the first one when the
// name is empty.
func (c *Call) Prompt(name string) (agl.PromptTemplate, error) {
	need := NeedPrompt(name)
	r, ok := need.find(c.Resources)
	if !ok {
		return agl.PromptTemplate{}, c.missing(need)
	}
	return r.(agl.PromptTemplate), nil
}

func (c *Call) missing(needs ...Need) *ResourcesError {
	e := &ResourcesError{Missing: needs, Have: c.Resources}
	if c.Rollout.ResourcesID != nil {
		e.ResourcesID = *c.Rollout.ResourcesID
	}
	return e
}

// Task decodes the task of a call. The error names the field that does not fit.
func Task[T any](c *Call) (T, error) {
	var task T
	if err := json.Unmarshal(c.Rollout.Input, &task); err != nil {
		return task, &TaskError{RolloutID: c.Rollout.RolloutID, Err: err}
	}
	return task, nil
}

// TaskError says why a task could not be decoded into the agent's type.
type TaskError struct {
	RolloutID string
	Err       error
}

func (e *TaskError) Error() string {
	if u, ok := errors.AsType[*json.UnmarshalTypeError](e.Err); ok {
		where := "the task itself"
		if u.Field != "" {
			where = fmt.Sprintf("field %q", u.Field)
		}
		return fmt.Sprintf("task of rollout %s: %s: a JSON %s does not fit %s", e.RolloutID, where, u.Value, u.Type)
	}
	return fmt.Sprintf("task of rollout %s: %v", e.RolloutID, e.Err)
}

// Unwrap returns the error of the decoder.
func (e *TaskError) Unwrap() error { return e.Err }
