package store

import (
	"context"
	"encoding/json"
	"time"

	agl "agentlightning"
)

// ControlStore is the part of a store that the 1.0 protocol adds. Rollouts made
// through it carry an [agl.Control]; all other calls of the store know them too.
type ControlStore interface {
	// CreateControlled makes rollouts that a controller starts, all or none, in
	// order. One whose id is known already is returned as it is and changes
	// nothing, within one call too.
	CreateControlled(ctx context.Context, reqs []ControlRequest) ([]agl.Rollout, error)
	// UpdateControlled changes the fields that are given. A state that does not
	// follow the present one is [ErrConflict] and changes nothing, and so is an
	// update of a rollout that was not made through the 1.0 protocol. An update
	// that gives nothing returns the rollout unchanged.
	UpdateControlled(ctx context.Context, rolloutID string, u ControlUpdate) (agl.Rollout, error)
	// DeleteRollout removes a rollout, whichever protocol made it, with its
	// attempts and spans. An unknown one is no error.
	DeleteRollout(ctx context.Context, rolloutID string) error
	// ResolveAttempt returns the id under which the spans of an attempt are
	// stored. Of a rollout made through the 1.0 protocol an attempt need not
	// exist: it is made. Of another one "0" names the latest attempt, and an
	// unknown attempt is [ErrNotFound].
	ResolveAttempt(ctx context.Context, rolloutID, attemptID string) (string, error)
	// AddEvent stores the span of an event under the attempt that
	// [ControlStore.ResolveAttempt] gives, with the next sequence id and the
	// present time, and returns it.
	AddEvent(ctx context.Context, event agl.Span) (agl.Span, error)
	// EventAttempts lists the attempts of a rollout that have spans, in the order
	// of the first span of each. Of an unknown rollout there are none.
	EventAttempts(ctx context.Context, rolloutID string) ([]string, error)
	// Completions reads the log of rollouts that ended, from a position on. With
	// a wait it returns once there is an entry after the position, or when the
	// wait is over.
	Completions(ctx context.Context, q CompletionQuery) (CompletionPage, error)
}

// ControlRequest asks for one rollout that a controller starts.
type ControlRequest struct {
	// RolloutID is the id to use; empty means a fresh one.
	RolloutID string
	Input     json.RawMessage
	Mode      agl.Mode
	Config    json.RawMessage // for controllers, an object; nil means {}
	Metadata  json.RawMessage // an object; nil means {}
}

// ControlUpdate changes the fields that are given.
type ControlUpdate struct {
	// State is one of queuing, running, succeeded, failed, or empty for null.
	State         Set[agl.RolloutStatus]
	K8sJobName    Set[*string]
	LastAttemptID Set[*string]
	ErrorMessage  Set[*string]
}

// CompletionQuery asks for a part of the log.
type CompletionQuery struct {
	After int64 // position, 0 for the beginning
	Limit int   // most entries to read; 0 or less reads none
	Wait  time.Duration
}

// CompletionPage is a part of the log of rollouts that ended.
type CompletionPage struct {
	// Rollouts are those of the entries that were read, without those that were
	// deleted since or are under way again.
	Rollouts []agl.Rollout
	// Next is the position after the last entry that was read.
	Next int64
	// Total is the length of the log.
	Total int64
}

// ControlState returns the state that the 1.0 protocol gives to a status.
func ControlState(s agl.RolloutStatus) agl.RolloutStatus {
	switch s {
	case agl.RolloutPreparing, agl.RolloutRequeuing:
		return agl.RolloutQueuing
	case agl.RolloutCancelled:
		return agl.RolloutFailed
	case agl.RolloutQueuing, agl.RolloutRunning, agl.RolloutFailed, agl.RolloutSucceeded:
	}
	return s
}

// DefaultAttemptID is the attempt that the 1.0 protocol means when none is named.
const DefaultAttemptID = "0"
