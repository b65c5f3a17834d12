package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/store"
	"agentlightning/tracer"
)

// Store is what a runner asks of a store.
type Store interface {
	DequeueRollouts(ctx context.Context, req store.DequeueRequest) ([]agl.AttemptedRollout, error)
	StartRollout(ctx context.Context, req store.StartRequest) (agl.AttemptedRollout, error)
	Rollout(ctx context.Context, rolloutID string) (agl.AttemptedRollout, error)
	QueryRollouts(ctx context.Context, q store.RolloutQuery) (store.Page[agl.AttemptedRollout], error)
	UpdateAttempt(ctx context.Context, rolloutID, attemptID string, u store.AttemptUpdate) (agl.Attempt, error)
	AddResources(ctx context.Context, r agl.NamedResources) (agl.ResourcesUpdate, error)
	Resources(ctx context.Context, resourcesID string) (agl.ResourcesUpdate, error)
	LatestResources(ctx context.Context) (agl.ResourcesUpdate, error)
	UpdateWorker(ctx context.Context, workerID string, stats store.Set[json.RawMessage]) (agl.Worker, error)
	NextSequenceIDs(ctx context.Context, attempts []store.Attempted) ([]int64, error)
	AddSpans(ctx context.Context, spans []agl.Span) ([]store.AddedSpan, error)
}

var _ Store = store.Store(nil)

// Config configures a [Runner].
type Config struct {
	// Store is where rollouts come from. Required.
	Store Store
	// Agent does the rollouts. Required.
	Agent agent.Agent
	// Tracer records the attempts. Nil makes one that writes to Store.
	Tracer *tracer.Tracer
	// Hooks observe the attempts.
	Hooks []agent.Hook
	// WorkerID is the runner's name in the store. Default "Worker-0".
	WorkerID string
	// Concurrency is how many attempts run at once. Default 1.
	Concurrency int
	// MaxRollouts ends Run after so many rollouts; 0 means no end.
	MaxRollouts int
	// PollInterval is how long one claim waits for work. A store that does not
	// wait is asked again after this time. Default 5 s.
	PollInterval time.Duration
	// HeartbeatInterval is the time between heartbeats; negative means none.
	// Default 10 s.
	HeartbeatInterval time.Duration
	// WatchInterval is the time between looks at whether running rollouts were
	// cancelled or taken over; negative means never. Default 1 s.
	WatchInterval time.Duration
	// Grace is how long running agents may go on after the context of Run ended,
	// and how long they may then, and after a time limit, take to return once
	// their context ended. Negative means not at all. Default 2 s.
	Grace time.Duration
	// ConnectTimeout is when Run gives up on a store that has never answered;
	// negative means never. Default 2 min.
	ConnectTimeout time.Duration
	// ReportTimeout is how long a result is kept and sent again while the store
	// does not answer. Default 2 min.
	ReportTimeout time.Duration
	// GiveBack puts rollouts whose agents are stopped with the runner back into
	// the queue, with one attempt more than they were allowed. Otherwise they end
	// as their own limits say, which allow no second attempt by default.
	GiveBack bool
	// Reclaim has Run first give back what a runner with the same WorkerID was
	// doing when it died. Set it only when no other runner has that name.
	Reclaim bool
	// Logger gets one line for each failed attempt; nil discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.WorkerID = cmp.Or(c.WorkerID, "Worker-0")
	c.Concurrency = cmp.Or(c.Concurrency, 1)
	c.PollInterval = cmp.Or(c.PollInterval, 5*time.Second)
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, 10*time.Second)
	c.WatchInterval = cmp.Or(c.WatchInterval, time.Second)
	c.Grace = max(cmp.Or(c.Grace, 2*time.Second), 0)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 2*time.Minute)
	c.ReportTimeout = cmp.Or(c.ReportTimeout, 2*time.Minute)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Tracer == nil {
		c.Tracer = tracer.New(tracer.Config{Sink: c.Store, GiveUp: c.ReportTimeout, Logger: c.Logger})
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Store == nil:
		return errors.New("runner: Config.Store is nil; pass the store that the rollouts come from")
	case c.Agent == nil:
		return errors.New("runner: Config.Agent is nil; pass the agent that does the rollouts")
	case c.Concurrency < 0:
		return errors.New("runner: Config.Concurrency must not be negative")
	case c.MaxRollouts < 0:
		return errors.New("runner: Config.MaxRollouts must not be negative; 0 means no end")
	case c.PollInterval < 0:
		return errors.New("runner: Config.PollInterval must not be negative")
	}
	return nil
}
