package agl

import (
	"encoding/json"
	"slices"
)

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

// LogLevel is how much a line of a log matters.
type LogLevel string

// The levels of a log, the least one first.
const (
	LogDebug LogLevel = "debug"
	LogInfo  LogLevel = "info"
	LogWarn  LogLevel = "warn"
	LogError LogLevel = "error"
)

// LogLevels lists the levels, the least one first.
func LogLevels() []LogLevel { return []LogLevel{LogDebug, LogInfo, LogWarn, LogError} }

// Valid reports whether l is a level.
func (l LogLevel) Valid() bool { return slices.Contains(LogLevels(), l) }

// AtLeast reports whether l matters as much as least. The empty level is below
// all others.
func (l LogLevel) AtLeast(least LogLevel) bool {
	return slices.Index(LogLevels(), l) >= slices.Index(LogLevels(), least)
}

// LogLine is one line of the log of a run.
type LogLine struct {
	// Position counts the lines of the run from 1. The store gives it.
	Position   int64           `json:"position"`
	Time       float64         `json:"time"` // Unix seconds
	Level      LogLevel        `json:"level"`
	Message    string          `json:"message"`
	Attributes json.RawMessage `json:"attributes"` // a flat object
}

// Size is how many bytes a line counts: those of its message and its attributes.
func (l *LogLine) Size() int { return len(l.Message) + len(l.Attributes) }
