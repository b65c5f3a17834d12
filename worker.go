package agl

import (
	"encoding/json"

	"agentlightning/internal/jsonx"
)

// WorkerStatus is what a runner is doing.
type WorkerStatus string

// The statuses of a worker.
const (
	WorkerIdle    WorkerStatus = "idle"
	WorkerBusy    WorkerStatus = "busy"
	WorkerUnknown WorkerStatus = "unknown"
)

// Valid reports whether s is one of the declared statuses.
func (s WorkerStatus) Valid() bool {
	return s == WorkerIdle || s == WorkerBusy || s == WorkerUnknown
}

// Worker is a runner as the store sees it.
type Worker struct {
	WorkerID          string
	Status            WorkerStatus
	HeartbeatStats    json.RawMessage // an object, or nil for null
	LastHeartbeatTime *float64
	LastDequeueTime   *float64
	LastBusyTime      *float64
	LastIdleTime      *float64
	CurrentRolloutID  *string
	CurrentAttemptID  *string
}

// AppendJSON appends the JSON of the worker.
func (w *Worker) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"worker_id":`...)
	dst = jsonx.AppendString(dst, w.WorkerID)
	dst = append(dst, `,"status":`...)
	dst = jsonx.AppendString(dst, string(w.Status))
	dst = append(dst, `,"heartbeat_stats":`...)
	dst = jsonx.AppendRaw(dst, w.HeartbeatStats)
	dst = append(dst, `,"last_heartbeat_time":`...)
	dst = jsonx.AppendOptional(dst, w.LastHeartbeatTime)
	dst = append(dst, `,"last_dequeue_time":`...)
	dst = jsonx.AppendOptional(dst, w.LastDequeueTime)
	dst = append(dst, `,"last_busy_time":`...)
	dst = jsonx.AppendOptional(dst, w.LastBusyTime)
	dst = append(dst, `,"last_idle_time":`...)
	dst = jsonx.AppendOptional(dst, w.LastIdleTime)
	dst = append(dst, `,"current_rollout_id":`...)
	dst = jsonx.AppendOptionalString(dst, w.CurrentRolloutID)
	dst = append(dst, `,"current_attempt_id":`...)
	dst = jsonx.AppendOptionalString(dst, w.CurrentAttemptID)
	return append(dst, '}')
}

// MarshalJSON implements [json.Marshaler].
func (w Worker) MarshalJSON() ([]byte, error) { return w.AppendJSON(nil), nil }

// UnmarshalJSON implements [json.Unmarshaler].
func (w *Worker) UnmarshalJSON(data []byte) error {
	var j struct {
		WorkerID          string          `json:"worker_id"`
		Status            WorkerStatus    `json:"status"`
		HeartbeatStats    json.RawMessage `json:"heartbeat_stats"`
		LastHeartbeatTime *float64        `json:"last_heartbeat_time"`
		LastDequeueTime   *float64        `json:"last_dequeue_time"`
		LastBusyTime      *float64        `json:"last_busy_time"`
		LastIdleTime      *float64        `json:"last_idle_time"`
		CurrentRolloutID  *string         `json:"current_rollout_id"`
		CurrentAttemptID  *string         `json:"current_attempt_id"`
	}
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	*w = Worker(j)
	w.HeartbeatStats = nullToNil(w.HeartbeatStats)
	return nil
}
