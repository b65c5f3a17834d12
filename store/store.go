// Package store is the contract between everything that runs agents and
// everything that learns from them.
//
// [Store] is implemented by the engine over a backend (store/engine) and by the
// client of the REST protocol (storehttp); both obey the same rules, which
// store/storetest checks. A call that returned without an error is durable and
// visible to the next call of anybody. Returned values belong to the caller.
// All methods are safe for concurrent use.
package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	agl "agentlightning"
)

// Errors that callers branch on. Use [errors.Is].
var (
	ErrNotFound = errors.New("not found")
	ErrInvalid  = errors.New("invalid")
	ErrConflict = errors.New("conflict")
	ErrClosed   = errors.New("store is closed")
	// ErrEnded means that the work for which the store was opened is done: there
	// will be nothing to claim any more, and nobody waits for what was claimed.
	ErrEnded = errors.New("the run has ended; there is no more work")
	// ErrFull means that the disk is full and that nothing was stored.
	ErrFull = errors.New("no space left to store it")
	// ErrKeyReused means that a key came with other arguments before, see [WithKey].
	ErrKeyReused = errors.New("key was used for another request")
	// ErrDenied means that the server asks for a token, or for another one.
	ErrDenied = errors.New("access denied")
	// ErrEvicted means that spans were dropped for want of memory.
	ErrEvicted = errors.New("evicted")
)

// Error is an error of the store with the text that the protocol gives it.
// Is matches the sentinel it was made from.
type Error struct {
	Kind    error // one of the sentinels
	Message string
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the sentinel.
func (e *Error) Unwrap() error { return e.Kind }

// Store is the whole contract.
type Store interface {
	RolloutStore
	AttemptStore
	SpanStore
	ResourceStore
	WorkerStore
	RunStore
	ModelStore

	Statistics(ctx context.Context) (Statistics, error)
	// Close ends waiting calls with [ErrClosed] and releases the store.
	Close() error
}

// EnqueueRequest asks for one rollout.
type EnqueueRequest struct {
	Input json.RawMessage
	Mode  agl.Mode
	// ResourcesID names the resources; nil means the latest at this moment.
	ResourcesID *string
	Config      *agl.RolloutConfig // nil means the defaults
	Metadata    json.RawMessage    // an object; nil means {}
}

// StartRequest asks for a rollout whose first attempt starts at once.
type StartRequest struct {
	EnqueueRequest
	WorkerID *string
}

// DequeueRequest claims rollouts.
type DequeueRequest struct {
	WorkerID *string
	// Limit is how many rollouts to claim at the most; 0 or less claims none.
	Limit int
	// Wait is how long to wait for the first one when the queue is empty.
	Wait time.Duration
	// Key makes the claim repeatable: a second request with the same key, soon
	// after, is answered with what the first one claimed. Empty means none.
	Key string
}

// Set is a field of an update: absent, or given, which may be null.
type Set[T any] struct {
	Given bool
	Value T
}

// To returns a field that is given.
func To[T any](v T) Set[T] { return Set[T]{Given: true, Value: v} }

// RolloutUpdate changes the fields that are given.
type RolloutUpdate struct {
	Input       Set[json.RawMessage]
	Mode        Set[agl.Mode]
	ResourcesID Set[*string]
	Status      Set[agl.RolloutStatus]
	Config      Set[agl.RolloutConfig]
	Metadata    Set[json.RawMessage] // nil is null
}

// AttemptUpdate changes the fields that are given.
type AttemptUpdate struct {
	Status            Set[agl.AttemptStatus]
	WorkerID          Set[string]
	LastHeartbeatTime Set[float64]
	Metadata          Set[json.RawMessage]
}

// RolloutQuery selects rollouts. Nil lists and strings are no conditions; an
// empty list that is not nil matches nothing.
type RolloutQuery struct {
	StatusIn          []agl.RolloutStatus
	RolloutIDIn       []string
	RolloutIDContains *string
	// Controlled leaves out rollouts that were not made through the 1.0
	// protocol, however the other conditions are joined.
	Controlled bool
	Paging
}

// AttemptQuery pages through the attempts of a rollout.
type AttemptQuery struct {
	RolloutID string
	Paging
}

// SpanQuery selects spans of a rollout.
type SpanQuery struct {
	RolloutID string
	// AttemptID is an id, [agl.LatestAttempt], or nil for all attempts.
	AttemptID *string

	TraceID, TraceIDContains   *string
	SpanID, SpanIDContains     *string
	ParentID, ParentIDContains *string
	Name, NameContains         *string
	Paging
}

// ResourcesQuery selects versions of resources.
type ResourcesQuery struct {
	ResourcesID         *string
	ResourcesIDContains *string
	Paging
}

// WorkerQuery selects workers.
type WorkerQuery struct {
	StatusIn         []agl.WorkerStatus
	WorkerIDContains *string
	Paging
}

// Paging orders and cuts a result.
type Paging struct {
	// SortBy is the JSON name of a scalar member of the item; empty keeps the
	// order of insertion. An unknown name is [ErrInvalid].
	SortBy string
	Desc   bool
	// Any joins the conditions by "or" instead of "and".
	Any bool
	// Limit is the length of the page; 0 or less means all.
	Limit  int
	Offset int
}

// Page is a part of a result.
type Page[T any] struct {
	Items []T
	Total int // matches before paging
}

// RolloutStore creates, claims and finishes rollouts.
type RolloutStore interface {
	// EnqueueRollouts adds rollouts to the queue, all or none, in order.
	EnqueueRollouts(ctx context.Context, reqs []EnqueueRequest) ([]agl.Rollout, error)
	// DequeueRollouts claims rollouts in the order in which they were queued,
	// each for one caller, and starts an attempt for each.
	DequeueRollouts(ctx context.Context, req DequeueRequest) ([]agl.AttemptedRollout, error)
	// ReleaseRollouts undoes claims whose answer was not delivered, as if they
	// had never been made: the attempts vanish and the rollouts return to the
	// front of the queue, unless something happened to them since.
	ReleaseRollouts(ctx context.Context, claimed []agl.AttemptedRollout) error
	// StartRollout creates a rollout that is never queued, with its first attempt.
	StartRollout(ctx context.Context, req StartRequest) (agl.AttemptedRollout, error)
	// Rollout returns one rollout with its latest attempt, [ErrNotFound] when unknown.
	Rollout(ctx context.Context, rolloutID string) (agl.AttemptedRollout, error)
	QueryRollouts(ctx context.Context, q RolloutQuery) (Page[agl.AttemptedRollout], error)
	UpdateRollout(ctx context.Context, rolloutID string, u RolloutUpdate) (agl.Rollout, error)
	// WaitForRollouts returns those of the rollouts that are terminal, in the
	// order asked for, once all known ones are or the timeout has passed. A
	// negative timeout waits without limit, 0 checks once. Unknown ids are
	// left out.
	WaitForRollouts(ctx context.Context, rolloutIDs []string, timeout time.Duration) ([]agl.Rollout, error)
	// WaitForCount is [RolloutStore.WaitForRollouts], but returns as soon as
	// count of the rollouts are terminal; a rollout that is named twice counts
	// once. It also returns when no more can become so. 0 or less checks once.
	WaitForCount(ctx context.Context, rolloutIDs []string, count int, timeout time.Duration) ([]agl.Rollout, error)
}

// AttemptStore starts and finishes attempts.
type AttemptStore interface {
	StartAttempt(ctx context.Context, rolloutID string, workerID *string) (agl.AttemptedRollout, error)
	QueryAttempts(ctx context.Context, q AttemptQuery) (Page[agl.Attempt], error)
	// LatestAttempt returns the newest attempt, [ErrNotFound] when there is none.
	LatestAttempt(ctx context.Context, rolloutID string) (agl.Attempt, error)
	// UpdateAttempt changes an attempt, named by id or [agl.LatestAttempt].
	UpdateAttempt(ctx context.Context, rolloutID, attemptID string, u AttemptUpdate) (agl.Attempt, error)
}

// AddedSpan is the outcome for one span of a request.
type AddedSpan struct {
	Span agl.Span
	// Stored is false for a duplicate, which is dropped.
	Stored bool
	// Err says why the span was refused; the others are stored all the same.
	Err error
}

// Attempted names an attempt.
type Attempted struct{ RolloutID, AttemptID string }

// SpanStore records what happens during attempts.
type SpanStore interface {
	// AddSpans stores spans in one transaction. A span of an unknown attempt is
	// refused with [ErrNotFound] in its AddedSpan; the error of the call itself
	// means that nothing was stored. A stored span is a heartbeat of its attempt.
	AddSpans(ctx context.Context, spans []agl.Span) ([]AddedSpan, error)
	// NextSequenceIDs issues numbers for the attempts in order, counted per rollout from 1.
	NextSequenceIDs(ctx context.Context, attempts []Attempted) ([]int64, error)
	QuerySpans(ctx context.Context, q SpanQuery) (Page[agl.Span], error)
}

// ResourceStore keeps versions of resources.
type ResourceStore interface {
	AddResources(ctx context.Context, r agl.NamedResources) (agl.ResourcesUpdate, error)
	UpdateResources(ctx context.Context, resourcesID string, r agl.NamedResources) (agl.ResourcesUpdate, error)
	// Resources returns one version, [ErrNotFound] when unknown.
	Resources(ctx context.Context, resourcesID string) (agl.ResourcesUpdate, error)
	// LatestResources returns the version added or updated last, [ErrNotFound] when there is none.
	LatestResources(ctx context.Context) (agl.ResourcesUpdate, error)
	QueryResources(ctx context.Context, q ResourcesQuery) (Page[agl.ResourcesUpdate], error)
}

// WorkerStore keeps what is known of runners.
type WorkerStore interface {
	// UpdateWorker records a heartbeat. Stats are left alone unless given.
	UpdateWorker(ctx context.Context, workerID string, stats Set[json.RawMessage]) (agl.Worker, error)
	// Worker returns one worker, [ErrNotFound] when unknown.
	Worker(ctx context.Context, workerID string) (agl.Worker, error)
	QueryWorkers(ctx context.Context, q WorkerQuery) (Page[agl.Worker], error)
}

// RunUpdate changes the fields of a run that are given.
type RunUpdate struct {
	Status Set[agl.RunStatus]
	Config Set[json.RawMessage]
	Error  Set[string]
}

// RunStore keeps executions of algorithms.
type RunStore interface {
	// CreateRun stores a run as running; an empty RunID is filled in, one that
	// exists is [ErrConflict].
	CreateRun(ctx context.Context, run agl.Run) (agl.Run, error)
	UpdateRun(ctx context.Context, runID string, u RunUpdate) (agl.Run, error)
	Run(ctx context.Context, runID string) (agl.Run, error)
	// Runs lists runs, newest first.
	Runs(ctx context.Context, limit int) ([]agl.Run, error)
	// AddStepMetrics appends metrics; those of a step that exists are replaced.
	AddStepMetrics(ctx context.Context, runID string, m ...agl.StepMetrics) error
	// StepMetrics lists the metrics of steps greater than after, by step.
	StepMetrics(ctx context.Context, runID string, after int) ([]agl.StepMetrics, error)
	// PutCheckpoint records a checkpoint, replacing one of the same step.
	PutCheckpoint(ctx context.Context, runID string, c agl.Checkpoint) error
	// LatestCheckpoint returns the one with the highest step, [ErrNotFound] when there is none.
	LatestCheckpoint(ctx context.Context, runID string) (agl.Checkpoint, error)
	// Checkpoints lists the checkpoints of a run by step, without their State.
	Checkpoints(ctx context.Context, runID string) ([]agl.Checkpoint, error)
	// AddLogLines appends lines to the log of a run, all or none, and gives them
	// their positions. One that is longer than [LogLineBytes] is [ErrInvalid].
	// What is then too much goes, the oldest lines first: see [LogLines].
	AddLogLines(ctx context.Context, runID string, lines ...agl.LogLine) error
	// RunLog reads a part of the log of a run.
	RunLog(ctx context.Context, q LogQuery) (LogPage, error)
	// DeleteRun removes a run with its metrics, its records of checkpoints and
	// its log. Rollouts that it asked for stay as they are, and so do files of
	// weights. One that is running is [ErrConflict], unless it is forced.
	DeleteRun(ctx context.Context, runID string, force bool) error
}

// ModelStore keeps the model backends that the proxy routes to.
type ModelStore interface {
	// PutModels adds backends, or replaces those with the same name and endpoint.
	PutModels(ctx context.Context, models []agl.Model) error
	// ReplaceModels makes the backends of each name among models exactly those
	// that are given, at once; other names stay as they are.
	ReplaceModels(ctx context.Context, models []agl.Model) error
	// DeleteModels forgets the backends of a name, only those at the endpoints
	// when any are given; an empty name forgets all.
	DeleteModels(ctx context.Context, name string, endpoints ...string) error
	// Models lists the backends in the order in which they were added. Keys that
	// were given by value are known to the process that took them only.
	Models(ctx context.Context) ([]agl.Model, error)
}

// Statistics are counters of the whole store.
type Statistics struct {
	Name           string // of the backend
	TotalRollouts  int64
	TotalAttempts  int64
	TotalSpans     int64
	TotalResources int64
	TotalWorkers   int64
	Uptime         time.Duration
	SpanBytes      int64 // of span data held; 0 when the backend does not know
	// EvictBytes is how much span data a backend in memory holds before it drops
	// some, down to SafeBytes, out of MemoryBytes that it may use. They are 0 for
	// a backend that drops nothing.
	EvictBytes, SafeBytes, MemoryBytes int64
}
