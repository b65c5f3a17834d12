package engine

import (
	"context"

	agl "agentlightning"
	"agentlightning/store"
)

// Backend remembers what the engine tells it to. It holds no rule of the
// protocol: times, ids and decisions come from the engine.
//
// The seam is ours to change; it is not for users. What every backend must
// keep, and store/storetest tries:
//
//   - View and Update show one consistent state. Update is durable when it
//     returns nil, and leaves no trace when its function or the commit fails.
//   - The function given to Update has no effects outside the transaction and
//     may run again; waiters, metrics and logs fire after it returned.
//   - Values handed in are not kept by reference and values handed out are the
//     caller's, except for the JSON of spans: it may be kept and shared, and
//     nobody changes it.
//   - Lists without an order keep the order of insertion; changing an item does
//     not move it. Queries filter, sort and page as the functions in query.go do.
type Backend interface {
	// Name is shown in statistics.
	Name() string
	View(ctx context.Context, f func(Reader) error) error
	Update(ctx context.Context, f func(Tx) error) error
	Close() error
}

// Recent is a power that a backend may have: to tell of what was written last
// without a transaction. False means that the answer is not at hand. What is
// told is as durable and as new as in a transaction.
type Recent interface {
	// RecentRollout returns a rollout with its latest attempt.
	RecentRollout(id string) (agl.AttemptedRollout, bool)
	// RecentSpans answers a query as [Reader] QuerySpans does.
	RecentSpans(q store.SpanQuery) (store.Page[store.SpanJSON], bool)
}

// Streamer is a power that a backend may have: results that are not in memory as
// a whole, see [store.Streams]. No transaction may be open while f runs.
type Streamer interface {
	StreamSpans(ctx context.Context, q store.SpanQuery, f func(store.SpanJSON) error) (total int, err error)
	StreamRollouts(ctx context.Context, q store.RolloutQuery, f func(*agl.AttemptedRollout) error) (total int, err error)
}

// Walk says which rollouts a walk meets.
type Walk struct {
	// From and To bound the start, both included; nil does not.
	From, To *float64
	// IDContains is a part of the id in lower case, whatever the case of the id,
	// and StatusIn are statuses. A backend may leave other rollouts out or not,
	// whatever takes it less.
	IDContains string
	StatusIn   []agl.RolloutStatus
	Desc       bool // the newest first
	// Most is how many rollouts are met at the most.
	Most int
	// Keep, when it is not nil, is asked before the attempt of a rollout is read:
	// whether the rollout is met, and whether the walk goes on.
	Keep func(*agl.Rollout) (keep, more bool)
}

// LogBounds are how much of a log is kept.
type LogBounds struct {
	Lines int64
	Bytes int64 // see [agl.LogLine.Size]
}

// SpansOf reads the spans of one attempt, see [Reader] AttemptSpans.
type SpansOf func(limit int) (spans []store.SpanJSON, total int, err error)

// Reader reads one consistent state. Lookups of unknown keys return the zero
// value and false, or leave the key out of the map.
type Reader interface {
	// Rollout returns a rollout with its latest attempt.
	Rollout(id string) (agl.AttemptedRollout, bool, error)
	Rollouts(ids []string) (map[string]agl.Rollout, error)
	QueryRollouts(q store.RolloutQuery) (store.Page[agl.AttemptedRollout], error)
	// WalkRollouts hands rollouts to f, with their latest attempts, until f says
	// false or there are no more. They are ordered by start; those that started
	// together are in the order of insertion. Until f returns, spans reads those of
	// the latest attempt, as AttemptSpans does.
	WalkRollouts(w Walk, f func(r *agl.AttemptedRollout, spans SpansOf) (more bool, err error)) error
	// WalkLength tells how many rollouts a walk would look at; it does not ask Keep.
	WalkLength(w Walk) (int, error)
	// CountRollouts counts the rollouts in each status that any is in.
	CountRollouts() (map[agl.RolloutStatus]int64, error)
	// EndedRollouts lists those of the next rollouts, at most most of them, in the
	// order of insertion after a place in it, that ended before a moment; the order
	// begins after 0. It returns the place after which to go on, 0 when there is
	// nothing more, and how many rollouts it looked at.
	EndedRollouts(before float64, after int64, most int) (ended []Ended, next int64, looked int, err error)
	// RolloutBytes tells about how much room rollouts take, with all that belongs
	// to them.
	RolloutBytes(ids []string) (int64, error)
	// OpenRollouts returns rollouts that are preparing or running and have a
	// time limit, each with its latest attempt: what the health scan looks at.
	OpenRollouts() ([]agl.AttemptedRollout, error)
	QueueLength() (int, error)
	// QueueFront returns the rollout that is popped next, with its latest attempt.
	QueueFront() (agl.AttemptedRollout, bool, error)

	Attempt(rolloutID, attemptID string) (agl.Attempt, bool, error)
	QueryAttempts(q store.AttemptQuery) (store.Page[agl.Attempt], error)
	// LatestAttempts returns the attempt with the highest sequence id of each rollout.
	LatestAttempts(rolloutIDs []string) (map[string]agl.Attempt, error)

	// QuerySpans gets a query whose AttemptID is nil, an id, or [agl.LatestAttempt].
	QuerySpans(q store.SpanQuery) (store.Page[store.SpanJSON], error)
	// AttemptSpans returns the spans of an attempt in the order of insertion, and
	// how many there are; of more than limit only that.
	AttemptSpans(at store.Attempted, limit int) ([]store.SpanJSON, int, error)
	// LastSpan returns the span of a name that an attempt got last.
	LastSpan(at store.Attempted, name string) (store.SpanJSON, bool, error)
	// SpannedAttempts lists the attempts of a rollout that have spans, in the
	// order of the first span of each.
	SpannedAttempts(rolloutID string) ([]string, error)

	// Completions returns up to limit ids of rollouts that ended, after so many
	// entries of the log, and the length of the log.
	Completions(after int64, limit int) (ids []string, total int64, err error)

	Resources(id string) (agl.ResourcesUpdate, bool, error)
	LatestResources() (agl.ResourcesUpdate, bool, error)
	QueryResources(q store.ResourcesQuery) (store.Page[agl.ResourcesUpdate], error)

	Workers(ids []string) (map[string]agl.Worker, error)
	QueryWorkers(q store.WorkerQuery) (store.Page[agl.Worker], error)

	Run(id string) (agl.Run, bool, error)
	Runs(limit int) ([]agl.Run, error) // newest first
	StepMetrics(runID string, after int) ([]agl.StepMetrics, error)
	LatestCheckpoint(runID string) (agl.Checkpoint, bool, error)
	Checkpoints(runID string) ([]agl.Checkpoint, error) // by step, without State
	// RunLog gets a query whose Text is in lower case and whose Limit is set. Of a
	// run without a log the page is that of an empty one.
	RunLog(q store.LogQuery) (store.LogPage, error)
	// LogSize tells how many lines of a log are kept, and what they take.
	LogSize(runID string) (lines, bytes int64, err error)

	Models() ([]agl.Model, error)
	Counts() (store.Statistics, error)
}

// Tx is a transaction: it reads its own writes.
type Tx interface {
	Reader

	InsertRollouts(r []agl.Rollout) error
	UpdateRollouts(r []agl.Rollout) error
	// DeleteRollouts removes rollouts with their attempts, spans, counters and
	// places in the queue; unknown ones are no error.
	DeleteRollouts(ids []string) error
	// AppendCompletion adds an entry to the log of rollouts that ended, which
	// nothing is ever removed from.
	AppendCompletion(rolloutID string) error

	// Push appends rollout ids to the queue; an id that is queued already keeps its place.
	Push(ids []string) error
	// PushFront puts ids at the front of the queue, in order.
	PushFront(ids []string) error
	// Pop removes up to n ids from the front of the queue and returns them.
	Pop(n int) ([]string, error)

	InsertAttempts(a []agl.Attempt) error
	UpdateAttempts(a []agl.Attempt) error
	// DeleteAttempts removes attempts (of claims that are undone).
	DeleteAttempts(a []store.Attempted) error

	// InsertSpans stores spans whose key is new and reports for each whether it was.
	InsertSpans(s []store.EncodedSpan) ([]bool, error)
	// UpdateSpan replaces the span with this key; its place stays.
	UpdateSpan(s store.EncodedSpan) error

	// TakeSequenceIDs advances the counter of a rollout by n and returns where
	// it stands then. A negative n gives numbers back that were not issued.
	TakeSequenceIDs(rolloutID string, n int) (int64, error)
	// RaiseSequenceID makes the counter at least id.
	RaiseSequenceID(rolloutID string, id int64) error

	// PutResources inserts a version or replaces the one with its id, and makes it the latest.
	PutResources(u agl.ResourcesUpdate) error

	PutWorkers(w []agl.Worker) error

	InsertRun(r agl.Run) error
	UpdateRun(r agl.Run) error
	PutStepMetrics(runID string, m []agl.StepMetrics) error
	PutCheckpoint(runID string, c agl.Checkpoint) error
	// AppendLogLines appends lines at the next positions, and then removes the
	// oldest, but never the last one, until no more is kept than that.
	AppendLogLines(runID string, lines []agl.LogLine, keep LogBounds) error
	// EmptyLog removes all lines; their positions are not given again.
	EmptyLog(runID string) error
	// DeleteRun removes a run with all that is kept of it.
	DeleteRun(id string) error

	// PutModels replaces the whole list. It holds no keys; the engine keeps them.
	PutModels(m []agl.Model) error

	// ForgetAnswers forgets up to most answers that have expired, and tells how many.
	ForgetAnswers(now float64, most int) (int, error)
	// PutAnswer remembers what a keyed request was answered with, until the given
	// Unix second; Answer finds it. Expired ones may be forgotten.
	PutAnswer(key string, answer []byte, expires float64) error
	Answer(key string, now float64) ([]byte, bool, error)

	// Secret returns the secret of a name; the first time, fresh becomes it.
	Secret(name string, fresh []byte) ([]byte, error)
}
