package store

import (
	"context"

	agl "agentlightning"
)

// Browser is what a [Store] may offer to people who look for rollouts. Unlike
// [RolloutQuery], its questions reach into tasks, metadata and spans, and its
// work is bounded however much is stored: see [BrowsePage].
type Browser interface {
	// BrowseRollouts finds rollouts, among those that its bounds let it look at:
	// see [BrowsePage]. They are put in order among these, too.
	BrowseRollouts(ctx context.Context, q BrowseQuery) (BrowsePage, error)
	// CountRollouts counts the rollouts in each status; those without any are
	// left out.
	CountRollouts(ctx context.Context) (map[agl.RolloutStatus]int64, error)
	// OutlineSpans sums up each span of an attempt, in the order of sequence ids.
	// Of p Limit, from 1 to [OutlineLimit], and Offset count. An attempt that is
	// not there has no spans.
	OutlineSpans(ctx context.Context, at Attempted, p Paging) (Page[SpanOutline], error)
	// SpansByID returns those of the spans that the attempt has, at most
	// [SpansByIDLimit], in the order of the ids.
	SpansByID(ctx context.Context, at Attempted, spanIDs []string) ([]SpanJSON, error)
	// TaskChanges tells how the tasks of a run went early and late in it. Tasks are
	// told apart by their member id, or data_id, or else by all that they are.
	TaskChanges(ctx context.Context, q SamplesQuery) (SamplesPage, error)
}

// Bounds of the work that one question may make.
const (
	// BrowseLimit is how many rollouts are looked at: the newest or, in ascending
	// order of their start, the oldest.
	BrowseLimit = 20_000
	// BrowseSpansLimit is for how many of them spans are read when a question is
	// about what is in these: rewards, models, problems, calls and tokens.
	BrowseSpansLimit = 6_000
	// BrowseSpansBytes is after how many bytes of spans no further rollout is
	// looked at by such a question.
	BrowseSpansBytes = 256 << 20
	// DigestSpans is how many spans an attempt may have to be summed up.
	DigestSpans = 1_000
	// OutlineLimit is how many spans are summed up at a time.
	OutlineLimit = 10_000
	// OutlineEvents is how many events of a span its outline has.
	OutlineEvents = 20
	// SpansByIDLimit is how many spans are asked for at a time by their ids.
	SpansByIDLimit = 200
)

// BrowseQuery selects rollouts. Conditions are joined by "and"; what is zero or
// nil is no condition. Texts are compared without regard to case.
type BrowseQuery struct {
	StatusIn []agl.RolloutStatus
	ModeIn   []agl.Mode // the empty mode is that of rollouts without one
	// IDContains is a part of the id.
	IDContains string
	// Text is a part of the task, Tag one of the metadata, both as JSON.
	Text, Tag string
	// RunID and the others are what metadata say of the run that asked for a
	// rollout. A run that is known bounds the start, too, and so do the times at
	// which its steps ended when there is too much to look at otherwise.
	RunID, Group string
	Step         *int64
	ResourcesID  string
	// SameTask is the id of a rollout whose task is asked for, as in [Browser]
	// TaskChanges; without that rollout nothing is found.
	SameTask string
	// WorkerID and AttemptStatusIn are of the latest attempt.
	WorkerID        string
	AttemptStatusIn []agl.AttemptStatus
	// From and To bound the start, in Unix seconds, both included.
	From, To *float64
	// Rewarded asks for rollouts with a reward, or without one.
	Rewarded             *bool
	RewardMin, RewardMax *float64
	// Model is a part of the name of a model that was called; Problem the name of
	// why a call is left out of training, "any" for one of them.
	Model, Problem string

	// Paging is as everywhere; SortBy may be any of [BrowseSorts], empty means
	// start_time. Any must not be set. A Limit of 0 or less means 100.
	Paging
}

// InSpans reports whether the answer depends on what is in spans.
func (q *BrowseQuery) InSpans() bool {
	switch q.SortBy {
	case "reward", "model", "calls", "tokens", "problem":
		return true
	}
	return q.Rewarded != nil || q.RewardMin != nil || q.RewardMax != nil || q.Model != "" || q.Problem != ""
}

// BrowseSorts lists what rollouts can be sorted by.
func BrowseSorts() []string {
	return []string{
		"start_time", "rollout_id", "status", "mode", "input", "resources_id", "run_id", "step", "group",
		"attempt", "attempt_status", "worker_id", "duration", "last_heartbeat_time", "reward", "model", "calls", "tokens", "problem",
	}
}

// Digest sums up what the spans of an attempt say.
type Digest struct {
	// Reward is the last one, nil when there is none.
	Reward *float64
	// Rewards are all dimensions of the span with the last reward.
	Rewards []agl.RewardDimension
	Calls   int    // of models
	Tokens  int64  // of their answers, as far as they say
	Model   string // that was called last; empty when there was no call
	Problem string // of the last call that is left out of training; empty when none is
	Spans   int
	// Gap is how far the policy that was trained on the attempt last was from the
	// one that sampled; nil when nothing was kept of that.
	Gap *TokenGap
	// Large says that there are more than [DigestSpans] spans and that nothing
	// else is known.
	Large bool
}

// TokenGap sums up what a step kept of the tokens of an attempt: log-probability
// when they were sampled less that under the policy in training, in nats.
type TokenGap struct {
	RunID    string
	Step     int64
	Tokens   int64 // that were trained on
	Sum      float64
	Largest  float64 // the furthest from 0
	SpanID   string  // model call that it is in
	Position int64   // and the token of its answer, from 0
}

// Browsed is a rollout that was found, with what its latest attempt did.
type Browsed struct {
	agl.AttemptedRollout
	Digest
}

// BrowsePage is a part of what was found.
type BrowsePage struct {
	Items []Browsed
	// Total is the number of matches. When Complete is false it is that among
	// the rollouts that were looked at, whose number is Examined.
	Total    int
	Examined int
	Complete bool
}

// Feed is what a [Store] may offer to those who show what is going on.
type Feed interface {
	// Watch begins to note what changes. The caller closes the watcher.
	Watch() Watcher
}

// Watcher notes what changes in a store by what goes through this process. What
// it has not told of yet it sums up, so that a slow caller costs nothing. It is
// for one caller at a time.
type Watcher interface {
	// Next waits until something has changed since the last call, and tells what.
	// It returns [ErrClosed] when the store is closed.
	Next(ctx context.Context) (Happened, error)
	Close()
}

// Noun is a kind of thing in a store.
type Noun string

// The nouns that a [Feed] tells of.
const (
	NounRollouts  Noun = "rollouts" // and their attempts
	NounSpans     Noun = "spans"
	NounResources Noun = "resources"
	NounWorkers   Noun = "workers"
	NounRuns      Noun = "runs" // with metrics and checkpoints
	NounLogs      Noun = "logs" // of runs, by the ids of those
	NounModels    Noun = "models"
)

// Happened is what changed in a store.
type Happened map[Noun]Changes

// Changes are those of one noun.
type Changes struct {
	N int // how many there were
	// IDs names what changed, of spans the rollouts, each once, unless there are
	// more than [FeedIDs]; then it is nil.
	IDs []string
}

// FeedIDs is how many things are named.
const FeedIDs = 200
