package execution

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"agentlightning/store"
)

// Work is what a strategy places.
type Work struct {
	// Algorithm blocks until the work is done or ctx ends. Nil means that there
	// is none; the runners then go on until ctx ends.
	Algorithm func(ctx context.Context, s store.Store) error
	// Runner blocks until ctx ends. Number counts the runners of this process from 0.
	Runner func(ctx context.Context, s store.Store, number int) error
	// Runners is how many runners there are in this process.
	Runners int
}

// Strategy places work.
type Strategy interface {
	// Execute returns nil when the algorithm has returned nil and the runners
	// have stopped, the first error otherwise, and the cause of ctx when that
	// ended first.
	Execute(ctx context.Context, w Work, s store.Store) error
}

// InProcess runs everything in goroutines of this process, on the given store.
type InProcess struct {
	// Logger is told when runners end before the algorithm; nil discards.
	Logger *slog.Logger
}

var _ Strategy = InProcess{}

// Execute implements [Strategy].
func (p InProcess) Execute(ctx context.Context, w Work, s store.Store) error {
	if s == nil {
		return errors.New("execution: there is no store to work on")
	}
	group, groupCtx := errgroup.WithContext(ctx)
	runnersCtx, stopRunners := context.WithCancel(groupCtx)
	defer stopRunners()

	var running atomic.Int64
	running.Store(int64(w.Runners))
	for i := range w.Runners {
		group.Go(func() error {
			if err := w.Runner(runnersCtx, s, i); err != nil {
				return fmt.Errorf("runner %d: %w", i, err)
			}
			if running.Add(-1) > 0 {
				return nil
			}
			if w.Algorithm == nil {
				stopRunners() // nobody is left to wait for
			} else if runnersCtx.Err() == nil && p.Logger != nil {
				p.Logger.WarnContext(ctx, "all runners of this process have ended; the algorithm goes on without them")
			}
			return nil
		})
	}
	group.Go(func() error {
		defer stopRunners()
		if w.Algorithm == nil {
			<-runnersCtx.Done()
			return nil
		}
		if err := w.Algorithm(groupCtx, s); err != nil {
			return fmt.Errorf("algorithm: %w", err)
		}
		return nil
	})
	err := group.Wait()
	if cause := context.Cause(ctx); cause != nil && (err == nil || errors.Is(err, cause) || errors.Is(err, ctx.Err())) {
		return cause
	}
	return err
}
