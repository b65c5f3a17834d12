package store

import (
	"encoding/json"

	agl "agentlightning"
)

// Bounds of the work that one question about samples may make.
const (
	// SamplesLimit is how many rollouts are looked at from each end of a run, and
	// back from the end of each step that is asked for. Runs of up to twice as
	// many are looked at as a whole.
	SamplesLimit = BrowseLimit / 2
	// SampleRollouts is how many rollouts of a task and a step are named.
	SampleRollouts = 16
)

// SampleOrder says which tasks are listed, and in what order.
type SampleOrder string

// The orders of samples. A task of which one side has no reward is neither
// better nor worse.
const (
	MostImproved  SampleOrder = "improved"   // better than before, the largest gain first
	MostWorsened  SampleOrder = "worsened"   // worse than before, the largest loss first
	Unchanged     SampleOrder = "unchanged"  // as before, the lowest reward first
	NotComparable SampleOrder = "unrewarded" // without a reward before, after, or both
)

// SampleOrders lists the orders.
func SampleOrders() []SampleOrder {
	return []SampleOrder{MostImproved, MostWorsened, Unchanged, NotComparable}
}

// SamplesQuery asks how the tasks of a run went early and late.
type SamplesQuery struct {
	RunID string
	// Mode is that of the rollouts that are compared. Nil takes validation when a
	// task of it was tried at two steps, or else training.
	Mode *agl.Mode
	// Before and After are the steps that are compared; nil is the first and the
	// last step at which a task was tried, which may differ from task to task.
	Before, After *int64
	// Order is [MostImproved] when it is empty.
	Order SampleOrder
	// Limit is how many tasks are listed, at most 1,000; 0 means 100.
	Limit, Offset int
}

// SamplesPage is what became of the tasks of a run.
type SamplesPage struct {
	Mode agl.Mode `json:"mode"` // of the rollouts that are compared
	// Items are the tasks of the order that was asked for, from Offset on; Total is
	// their number.
	Items []TaskChange `json:"items"`
	Total int          `json:"total"`
	// Improved, Worsened, Unchanged and Unrewarded count the tasks with a before
	// and an after.
	Improved   int `json:"improved"`
	Worsened   int `json:"worsened"`
	Unchanged  int `json:"unchanged"`
	Unrewarded int `json:"unrewarded"`
	// Once counts the tasks that have a before or an after only: nothing can be
	// compared.
	Once int `json:"once"`
	// Stepless counts rollouts of the run that do not say of which step they are.
	Stepless int `json:"stepless"`
	// Steps are those that were met, in order.
	Steps []int64 `json:"steps"`
	// Modes are those that were met.
	Modes []agl.Mode `json:"modes"`
	// Mean rewards of the tasks that have one on both sides, each task counting
	// once; nil when there are none.
	Before *float64 `json:"before"`
	After  *float64 `json:"after"`
	// Examined is how many rollouts were looked at. When Complete is false there
	// are more between the beginning and the end of the run, or more attempts than
	// [BrowseSpansLimit] to read the rewards of.
	Examined int  `json:"examined"`
	Complete bool `json:"complete"`
}

// TaskChange is a task early and late in a run.
type TaskChange struct {
	Task   json.RawMessage `json:"task"`
	Before TaskTried       `json:"before"`
	After  TaskTried       `json:"after"`
	// Change is the mean reward after less that before; nil without one of them.
	Change *float64 `json:"change"`
}

// TaskTried is how a task went at a step.
type TaskTried struct {
	Step int64 `json:"step"`
	// Reward is the mean of the rewards; nil when no rollout has one.
	Reward *float64 `json:"reward"`
	// Tried counts the rollouts, Rewarded those with a reward.
	Tried    int `json:"tried"`
	Rewarded int `json:"rewarded"`
	// Rollouts are the first of them.
	Rollouts []Sample `json:"rollouts"`
}

// Sample is a rollout with what its latest attempt earned.
type Sample struct {
	RolloutID string            `json:"rollout_id"`
	AttemptID string            `json:"attempt_id"` // empty before the first attempt
	Status    agl.RolloutStatus `json:"status"`
	Reward    *float64          `json:"reward"`
}
