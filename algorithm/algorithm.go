// Package algorithm is the contract of whatever makes agents better: it asks
// for rollouts, reads what was recorded, and publishes better resources.
//
// A [Func] is an algorithm in thirty lines. Those that come with the project
// are in the folders below this one.
package algorithm

import (
	"context"
	"encoding/json"
	"log/slog"

	agl "agentlightning"
	"agentlightning/algorithm/stage"
	"agentlightning/store"
)

// Algorithm improves resources. Run blocks until the work is done or ctx ends.
type Algorithm interface {
	Run(ctx context.Context, env Env) error
}

// Func is a function as an [Algorithm].
type Func func(ctx context.Context, env Env) error

// Run calls f.
func (f Func) Run(ctx context.Context, env Env) error { return f(ctx, env) }

// Env is what an algorithm works with.
type Env struct {
	// Store is where rollouts are asked for and spans are read.
	Store store.Store
	// Train and Val are the tasks, each any JSON. Val may be empty.
	Train, Val []json.RawMessage
	// InitialResources are what the first rollouts get; empty means that the
	// algorithm publishes its own.
	InitialResources agl.NamedResources
	// RunID names a run that is resumed; empty means a new one.
	RunID string
	// Watch says when silence is too long, and who is told; without a logger that
	// is Logger.
	Watch stage.Config
	// Logger is never nil.
	Logger *slog.Logger
}
