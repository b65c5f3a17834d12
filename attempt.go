package agl

import (
	"encoding/json"
	"slices"

	"agentlightning/internal/jsonx"
)

// AttemptStatus is the state of an attempt.
type AttemptStatus string

// The statuses of an attempt.
const (
	AttemptPreparing    AttemptStatus = "preparing"
	AttemptRunning      AttemptStatus = "running"
	AttemptFailed       AttemptStatus = "failed"
	AttemptSucceeded    AttemptStatus = "succeeded"
	AttemptUnresponsive AttemptStatus = "unresponsive"
	AttemptTimeout      AttemptStatus = "timeout"
)

// AttemptStatuses lists every status in the order in which the protocol declares them.
func AttemptStatuses() []AttemptStatus {
	return []AttemptStatus{
		AttemptPreparing, AttemptRunning, AttemptFailed, AttemptSucceeded,
		AttemptUnresponsive, AttemptTimeout,
	}
}

// Valid reports whether s is one of the declared statuses.
func (s AttemptStatus) Valid() bool { return slices.Contains(AttemptStatuses(), s) }

// Finished reports whether the agent is not expected to go on. An unresponsive
// attempt may still revive.
func (s AttemptStatus) Finished() bool {
	return s == AttemptFailed || s == AttemptSucceeded || s == AttemptTimeout
}

// LatestAttempt is the word that addresses the newest attempt of a rollout
// where an attempt id is expected.
const LatestAttempt = "latest"

// Attempt is one execution of a rollout.
type Attempt struct {
	RolloutID         string
	AttemptID         string
	SequenceID        int // 1, 2, 3 … within the rollout
	StartTime         float64
	EndTime           *float64
	Status            AttemptStatus
	WorkerID          *string
	LastHeartbeatTime *float64
	Metadata          json.RawMessage // an object, or nil for null
}

// AppendJSON appends the JSON of the attempt.
func (a *Attempt) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"rollout_id":`...)
	dst = jsonx.AppendString(dst, a.RolloutID)
	dst = append(dst, `,"attempt_id":`...)
	dst = jsonx.AppendString(dst, a.AttemptID)
	dst = append(dst, `,"sequence_id":`...)
	dst = appendInt(dst, int64(a.SequenceID))
	dst = append(dst, `,"start_time":`...)
	dst = jsonx.AppendFloat(dst, a.StartTime)
	dst = append(dst, `,"end_time":`...)
	dst = jsonx.AppendOptional(dst, a.EndTime)
	dst = append(dst, `,"status":`...)
	dst = jsonx.AppendString(dst, string(a.Status))
	dst = append(dst, `,"worker_id":`...)
	dst = jsonx.AppendOptionalString(dst, a.WorkerID)
	dst = append(dst, `,"last_heartbeat_time":`...)
	dst = jsonx.AppendOptional(dst, a.LastHeartbeatTime)
	dst = append(dst, `,"metadata":`...)
	dst = jsonx.AppendRaw(dst, a.Metadata)
	return append(dst, '}')
}

// MarshalJSON implements [json.Marshaler].
func (a Attempt) MarshalJSON() ([]byte, error) { return a.AppendJSON(nil), nil }

// UnmarshalJSON implements [json.Unmarshaler].
func (a *Attempt) UnmarshalJSON(data []byte) error {
	var w struct {
		RolloutID         string          `json:"rollout_id"`
		AttemptID         string          `json:"attempt_id"`
		SequenceID        int             `json:"sequence_id"`
		StartTime         float64         `json:"start_time"`
		EndTime           *float64        `json:"end_time"`
		Status            AttemptStatus   `json:"status"`
		WorkerID          *string         `json:"worker_id"`
		LastHeartbeatTime *float64        `json:"last_heartbeat_time"`
		Metadata          json.RawMessage `json:"metadata"`
	}
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*a = Attempt(w)
	a.Metadata = nullToNil(a.Metadata)
	return nil
}
