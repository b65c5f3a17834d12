package agent

import (
	"context"
	"time"

	agl "agentlightning"
)

// Hook observes rollouts from outside the agent. Each callback may be nil.
//
// The hooks of a runner are called one after another in the order in which they
// were given. An error or a panic of a hook is logged and changes nothing.
// Nothing is called for an attempt whose resources could not be fetched or do
// not fit the agent.
type Hook struct {
	// OnRolloutStart is called before the trace of the attempt begins.
	OnRolloutStart func(ctx context.Context, c *Call) error
	// OnTraceStart is called within the trace, before the agent.
	OnTraceStart func(ctx context.Context, c *Call) error
	// OnTraceEnd is called within the trace, after the agent, and not at all
	// when the agent failed.
	OnTraceEnd func(ctx context.Context, c *Call) error
	// OnRolloutEnd is called at the end of every attempt, before its final
	// status is reported.
	OnRolloutEnd func(ctx context.Context, c *Call, o Outcome) error
}

// Outcome is how an attempt ended.
type Outcome struct {
	// Err is why the attempt failed, nil when it succeeded.
	Err error
	// Reward is the final reward: the returned one, otherwise the last one that
	// was emitted; nil when there is none.
	Reward *float64
	// Spans are those that the attempt recorded here and those that the agent
	// returned, in order. Spans written by the model proxy are in the store only.
	Spans []agl.Span
	// Elapsed is the time from the claim to the end.
	Elapsed time.Duration
}
