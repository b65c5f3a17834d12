package agl

import "encoding/json"

// RunStatus is the state of a run.
type RunStatus string

// The statuses of a run.
const (
	RunRunning     RunStatus = "running"
	RunSucceeded   RunStatus = "succeeded"
	RunFailed      RunStatus = "failed"
	RunInterrupted RunStatus = "interrupted"
)

// Run is one execution of an algorithm. Rollouts that it asked for carry its id
// in their metadata, so that curves, groups and lineage can be drawn and the
// run can be resumed.
type Run struct {
	RunID     string          `json:"run_id"`
	Algorithm string          `json:"algorithm"`
	Config    json.RawMessage `json:"config"` // what the algorithm was configured with, an object
	Seed      int64           `json:"seed"`
	Status    RunStatus       `json:"status"`
	StartTime float64         `json:"start_time"`
	EndTime   *float64        `json:"end_time"`
	Error     string          `json:"error"` // why it failed; empty otherwise
}

// StepMetrics are the numbers of one step of a run.
type StepMetrics struct {
	Step   int                `json:"step"`
	Time   float64            `json:"time"` // Unix seconds
	Values map[string]float64 `json:"values"`
}

// Checkpoint is a point from which a run can go on.
type Checkpoint struct {
	Step  int             `json:"step"`
	Time  float64         `json:"time"`
	Path  string          `json:"path"`  // where the weights are; empty when there are none
	Score *float64        `json:"score"` // validation score, when it was measured
	State json.RawMessage `json:"state"` // what else the algorithm needs to go on, an object
}
