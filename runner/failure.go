package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"agentlightning/agent"
)

// The causes with which an agent's context ends; see [context.Cause].
var (
	// ErrTimeout says that the time limit of the rollout has passed.
	ErrTimeout = errors.New("time limit")
	// ErrCancelled says that the rollout was cancelled in the store.
	ErrCancelled = errors.New("the rollout was cancelled")
	// ErrSuperseded says that the store gave the attempt up: it was marked as
	// finished, or another one was started in its place.
	ErrSuperseded = errors.New("the store gave the attempt up")
	// ErrStopped says that the runner was told to stop.
	ErrStopped = errors.New("the runner was stopped before the agent finished")
)

// Reason says in one word why an attempt did not succeed. It is the member
// "reason" of the attempt's metadata, beside "error".
type Reason string

// The reasons.
const (
	ReasonAgent      Reason = "agent"      // the agent returned an error
	ReasonPanic      Reason = "panic"      // the agent panicked; "stack" says where
	ReasonTask       Reason = "task"       // the task does not fit the agent's type
	ReasonResources  Reason = "resources"  // the resources could not be fetched or do not fit
	ReasonResult     Reason = "result"     // what the agent returned could not be written
	ReasonSpans      Reason = "spans"      // what was recorded could not be written
	ReasonTimeout    Reason = "timeout"    // the time limit passed
	ReasonStopped    Reason = "stopped"    // the runner was stopped
	ReasonCancelled  Reason = "cancelled"  // never written: cancelling leaves attempts alone
	ReasonSuperseded Reason = "superseded" // never written: the store decided already
)

// AttemptError is why an attempt did not succeed.
type AttemptError struct {
	Reason Reason
	Err    error
	Stack  string // of a panic
}

func (e *AttemptError) Error() string { return e.Err.Error() }

// Unwrap returns what happened.
func (e *AttemptError) Unwrap() error { return e.Err }

func fail(reason Reason, err error) *AttemptError { return &AttemptError{Reason: reason, Err: err} }

// classify finds the reason behind an error of the agent. The end of its
// context explains whatever error the agent made of it.
func classify(ctx context.Context, err error) *AttemptError {
	if failed, ok := errors.AsType[*AttemptError](err); ok {
		return failed
	}
	if cause := context.Cause(ctx); cause != nil {
		for _, c := range [...]struct {
			cause  error
			reason Reason
		}{
			{ErrTimeout, ReasonTimeout},
			{ErrCancelled, ReasonCancelled},
			{ErrSuperseded, ReasonSuperseded},
			{ErrStopped, ReasonStopped},
		} {
			if errors.Is(cause, c.cause) {
				return fail(c.reason, cause)
			}
		}
		return fail(ReasonStopped, cause)
	}
	if _, ok := errors.AsType[*agent.TaskError](err); ok {
		return fail(ReasonTask, err)
	}
	if _, ok := errors.AsType[*agent.ResourcesError](err); ok {
		return fail(ReasonResources, err)
	}
	return fail(ReasonAgent, err)
}

// overtaken reports whether a result comes too late to count, even a good one.
// After a stop it still counts.
func overtaken(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return cause != nil && !errors.Is(cause, ErrStopped)
}

// Bounds of what is kept of an error; metadata travels with every listing.
const (
	mostErrorText = 4 << 10
	mostStack     = 16 << 10
)

// metadata adds the failure to the metadata that the attempt has already.
func (e *AttemptError) metadata(old json.RawMessage) (json.RawMessage, error) {
	members := map[string]any{}
	if len(old) > 0 {
		kept := map[string]json.RawMessage{}
		if err := json.Unmarshal(old, &kept); err != nil {
			return nil, fmt.Errorf("metadata of the attempt: %w", err)
		}
		for key, value := range kept {
			members[key] = value
		}
	}
	members["error"] = clip(e.Err.Error(), mostErrorText)
	members["reason"] = e.Reason
	if e.Stack != "" {
		members["stack"] = clip(e.Stack, mostStack)
	}
	return json.Marshal(members)
}

func clip(s string, most int) string {
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
