// Package top shows a server in a terminal as it is now: runs, queue, workers,
// models and failures. A [Reader] looks, [Render] writes what it saw as text, and
// [Watch] does both until a person has seen enough.
package top

import agl "agentlightning"

// State is what one look at a server saw.
type State struct {
	Now           float64 // of the server, Unix seconds
	Queue         *Queue  // nil when the server cannot count
	Runs          []Run   // those that are running first
	Workers       []Worker
	WorkersTotal  int // may be more than were looked at
	Models        []Model
	Paused        string   // why no model call goes through; empty when they do
	Calls         *Calls   // nil when they are not counted
	Failures      []Reason // of the newest failed rollouts, the most frequent first
	FailuresTotal int      // failed rollouts in all
	Missing       []string // what could not be read, and why
}

// Queue counts rollouts.
type Queue struct {
	Waiting                              int
	Longest                              float64 // seconds that the one in front has waited
	Active, Succeeded, Failed, Cancelled int64
}

// Run is a run of an algorithm.
type Run struct {
	ID, Algorithm      string
	Status             agl.RunStatus
	Step               int // -1 before the first
	Seconds            float64
	Reward, Validation *float64 // nil when not measured
	Error              string
}

// Worker is a runner.
type Worker struct {
	ID      string
	State   string   // busy, idle, unknown or silent
	Lost    bool     // silent, and has work
	Heard   *float64 // seconds since it was heard of; nil for never
	Rollout string   // what it works on
}

const workerSilent = "silent"

// Model is a backend of a model.
type Model struct {
	Name, Endpoint string
	Version        int64
	Health         string
	Open, Waiting  int
	Tokens         *float64 // of answers, a second, since the look before; nil at the first
}

// What is known of the health of a backend, besides that it is failing, unreachable,
// paused, or lacks its key.
const (
	modelOK      = "ok"
	modelUnknown = "-" // it was not called yet
)

// Calls counts model calls since the server was started.
type Calls struct {
	Total, NotOK float64
	Rate         *float64 // a second, since the look before; nil at the first
}

// Reason is why rollouts failed.
type Reason struct {
	Why   string
	Count int
}
