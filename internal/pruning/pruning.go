// Package pruning deletes what ended long ago from the store of a running server:
// in the background, with progress, until it is done or stopped. What is deleted
// and what never is, is a rule of the store; this package paces the work, so that
// those who use the server do not wait for it.
package pruning

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/storehttp"
)

const (
	// kept is how many pieces of work that ended are remembered.
	kept = 20
	// patience is how long a preview looks; what it has seen by then is the answer.
	patience = 20 * time.Second
)

// Config says what a [Service] works on.
type Config struct {
	Store store.Pruner // required
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Logger gets a line when work begins and ends; nil discards.
	Logger *slog.Logger
}

// Service runs the work, one piece at a time. Its methods are safe for concurrent
// use.
type Service struct {
	config  Config
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
	list   []*work // the newest last
	seen   storehttp.Prunable
}

var _ storehttp.Pruner = (*Service)(nil)

type work struct {
	stop  context.CancelCauseFunc
	state storehttp.Pruning
}

var (
	errStopped = errors.New("stopped")
	errClosing = errors.New("the server is stopping; start it again for the rest")
	errEnough  = errors.New("no time to look at more")
)

// New returns a service, which the caller closes.
func New(c Config) *Service {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Service{config: c}
}

// Preview implements [storehttp.Pruner].
func (s *Service) Preview(ctx context.Context, before float64) (storehttp.Prunable, error) {
	looking, cancel := context.WithTimeoutCause(ctx, patience, errEnough)
	defer cancel()
	found, err := s.config.Store.Prunable(looking, before)
	complete := err == nil
	if err != nil && (ctx.Err() != nil || !errors.Is(context.Cause(looking), errEnough)) {
		return storehttp.Prunable{}, err
	}
	out := storehttp.Prunable{
		Before: before, PrunedCounts: counts(found.Pruned), Oldest: found.Oldest, Newest: found.Newest, Complete: complete, Looked: found.Looked,
		Stays: storehttp.PruneStayed{Open: found.Open, Later: found.Later, Runs: found.Runs, Resources: found.Resources, Workers: found.Workers},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = out
	return out, nil
}

func counts(p store.Pruned) storehttp.PrunedCounts {
	return storehttp.PrunedCounts{Rollouts: p.Rollouts, Attempts: p.Attempts, Spans: p.Spans, LogLines: p.LogLines, Bytes: p.Bytes}
}

// Start implements [storehttp.Pruner].
func (s *Service) Start(ctx context.Context, before float64) (storehttp.Pruning, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return storehttp.Pruning{}, store.ErrClosed
	}
	for _, o := range s.list {
		if o.state.Status == storehttp.PruneRunning {
			return storehttp.Pruning{}, refused(store.ErrConflict, o.state.ID+" deletes already; wait for its end, or stop it")
		}
	}
	w := &work{state: storehttp.Pruning{
		ID: "pr-" + strings.ToLower(rand.Text()[:12]), Before: before, Status: storehttp.PruneRunning, StartTime: agl.Seconds(s.config.Now()),
	}}
	if s.seen.Before == before && s.seen.Complete {
		w.state.Of = new(s.seen.Rollouts)
	}
	var working context.Context
	working, w.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	s.list = append(s.list, w)
	if extra := len(s.list) - kept - 1; extra > 0 {
		s.list = s.list[extra:] // they have ended
	}
	s.config.Logger.InfoContext(ctx, "deleting what ended long ago", "prune_id", w.state.ID, "before", before)
	s.running.Go(func() { s.work(working, w) })
	return w.state, nil
}

func refused(kind error, why string) error { return &store.Error{Kind: kind, Message: why} }

// work deletes, and after each transaction rests for as long as it took, so that
// at least half of the writer's time is for others.
func (s *Service) work(ctx context.Context, w *work) {
	began := time.Now()
	rest := time.NewTimer(0)
	defer rest.Stop()
	_, err := s.config.Store.Prune(ctx, w.state.Before, func(p store.Pruned) error {
		s.mu.Lock()
		w.state.PrunedCounts = counts(p)
		s.mu.Unlock()
		rest.Reset(time.Since(began))
		select {
		case <-rest.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		began = time.Now()
		return nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	w.stop(nil)
	st := &w.state
	st.EndTime = new(agl.Seconds(s.config.Now()))
	switch cause := context.Cause(ctx); {
	case err == nil:
		st.Status = storehttp.PruneSucceeded
	case errors.Is(cause, errStopped) || errors.Is(cause, errClosing):
		st.Status, st.Error = storehttp.PruneStopped, cause.Error()
	default:
		st.Status, st.Error = storehttp.PruneFailed, err.Error()
	}
	s.config.Logger.InfoContext(ctx, "deleted what ended long ago", "prune_id", st.ID, "status", string(st.Status),
		"rollouts", st.Rollouts, "spans", st.Spans, "bytes", st.Bytes, "err", st.Error)
}

// List implements [storehttp.Pruner].
func (s *Service) List() []storehttp.Pruning {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]storehttp.Pruning, len(s.list))
	for i, w := range s.list {
		out[len(out)-1-i] = w.state
	}
	return out
}

// Stop implements [storehttp.Pruner].
func (s *Service) Stop(id string) (storehttp.Pruning, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.list {
		if w.state.ID == id {
			w.stop(errStopped)
			return w.state, nil
		}
	}
	return storehttp.Pruning{}, refused(store.ErrNotFound, fmt.Sprintf("there is no work %q that deletes; what ended long ago is forgotten", id))
}

// Close stops the work and waits for it.
func (s *Service) Close() error {
	s.mu.Lock()
	s.closed = true
	for _, w := range s.list {
		w.stop(errClosing)
	}
	s.mu.Unlock()
	s.running.Wait()
	return nil
}
