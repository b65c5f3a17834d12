// Package rescoring scores stored rollouts again on a server: in the background,
// with progress, until it is done or stopped. The work ends with the server; since
// package rescore passes over what was scored, the same request goes on with it.
package rescoring

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	agl "agentlightning"
	"agentlightning/rescore"
	"agentlightning/rescore/expr"
	"agentlightning/store"
	"agentlightning/storehttp"
)

const (
	// kept is how many pieces of work that ended are remembered.
	kept = 50
	// atOnce is how many pieces of work may run together.
	atOnce = 4
	// looked is how many rollouts are looked up at a time.
	looked = 500
	// shown bounds the texts of failures that are shown.
	shown = 500
)

// Config says what a [Service] works on.
type Config struct {
	Store store.Store // required
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Logger gets a line when work begins and ends; nil discards.
	Logger *slog.Logger
}

// Service runs the work. Its methods are safe for concurrent use.
type Service struct {
	config  Config
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
	list   []*work // the newest last
}

var _ storehttp.Rescorer = (*Service)(nil)

// work is one request.
type work struct {
	stop  context.CancelCauseFunc
	state storehttp.Rescoring
}

var (
	errStopped = errors.New("stopped")
	errClosing = errors.New("the server is stopping; the same request goes on with it")
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

// Kinds implements [storehttp.Rescorer].
func (s *Service) Kinds() []string { return []string{"expression"} }

// Start implements [storehttp.Rescorer].
func (s *Service) Start(ctx context.Context, r storehttp.RescoreRequest) (storehttp.Rescoring, error) {
	scorer, err := expr.New(r.Expression)
	if err != nil {
		return storehttp.Rescoring{}, refused(store.ErrInvalid, err.Error())
	}
	w := &work{state: storehttp.Rescoring{
		ID: "rs-" + strings.ToLower(rand.Text()[:12]), Set: r.Set, Scorer: scorer.String(), Status: storehttp.RescoreRunning,
		Of: len(r.RolloutIDs), Skipped: map[string]int{}, StartTime: agl.Seconds(s.config.Now()),
	}}
	c := rescore.Config{
		Store: s.config.Store, Scorer: scorer, Set: r.Set, Base: r.Base, Unsuccessful: r.Unsuccessful, Now: s.config.Now,
		Each:       s.each(r.RolloutIDs, w),
		OnProgress: func(p rescore.Progress) { s.progress(w, p) },
	}
	if err := c.Validate(); err != nil {
		return storehttp.Rescoring{}, refused(store.ErrInvalid, err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	busy := 0
	for _, o := range s.list {
		if o.state.Status != storehttp.RescoreRunning {
			continue
		}
		if busy++; o.state.Set == r.Set {
			return storehttp.Rescoring{}, refused(store.ErrConflict, fmt.Sprintf("set %q is being made by %s; wait for its end, or stop it", r.Set, o.state.ID))
		}
	}
	switch {
	case s.closed:
		return storehttp.Rescoring{}, store.ErrClosed
	case busy >= atOnce:
		return storehttp.Rescoring{}, refused(store.ErrConflict, fmt.Sprintf("%d sets are being made already; wait for the end of one, or stop it", busy))
	}
	var working context.Context
	working, w.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	s.list = append(s.list, w)
	s.forget()
	s.config.Logger.InfoContext(ctx, "scoring rollouts again", "rescore_id", w.state.ID, "set", r.Set, "scorer", w.state.Scorer, "rollouts", w.state.Of)
	s.running.Go(func() {
		summary, err := rescore.Run(working, c)
		s.ended(working, w, &summary, err)
	})
	return w.copied(), nil
}

func refused(kind error, why string) error { return &store.Error{Kind: kind, Message: why} }

// each visits the rollouts of a request. Those that are gone are told of at the end.
func (s *Service) each(ids []string, w *work) func(context.Context, func(*agl.AttemptedRollout) error) error {
	return func(ctx context.Context, visit func(*agl.AttemptedRollout) error) error {
		gone := 0
		for part := range slices.Chunk(ids, looked) {
			page, err := s.config.Store.QueryRollouts(ctx, store.RolloutQuery{RolloutIDIn: part})
			if err != nil {
				return err
			}
			gone += len(part) - len(page.Items)
			for i := range page.Items {
				if err := visit(&page.Items[i]); err != nil {
					return err
				}
			}
		}
		if gone > 0 {
			s.mu.Lock()
			defer s.mu.Unlock()
			w.state.Skipped["is not there"] = gone
		}
		return nil
	}
}

func (s *Service) progress(w *work, p rescore.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.state.Done, w.state.Scored, w.state.Failed = w.state.Of-p.Of+p.Done, p.Scored, p.Failed
	w.state.LastFailure = clip(p.LastFailure)
}

func clip(text string) string {
	if len(text) <= shown {
		return text
	}
	return strings.ToValidUTF8(text[:shown], "") + "…"
}

func (s *Service) ended(ctx context.Context, w *work, summary *rescore.Summary, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.stop(nil)
	st := &w.state
	st.Scored, st.Already, st.MeanNew, st.MeanOld = summary.Scored, summary.Already, summary.MeanNew, summary.MeanOld
	maps.Copy(st.Skipped, summary.Skipped)
	st.EndTime = new(agl.Seconds(s.config.Now()))
	switch {
	case err == nil:
		st.Status, st.Done = storehttp.RescoreSucceeded, st.Of
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		st.Status, st.Error = storehttp.RescoreStopped, context.Cause(ctx).Error()
	default:
		st.Status, st.Error = storehttp.RescoreFailed, clip(err.Error())
	}
	s.config.Logger.InfoContext(ctx, "scored rollouts again", "rescore_id", st.ID, "set", st.Set, "status", string(st.Status),
		"scored", st.Scored, "failed", st.Failed, "err", cmp.Or(st.Error, st.LastFailure))
}

// forget drops the oldest of what ended. The caller holds mu.
func (s *Service) forget() {
	extra := len(s.list) - kept
	s.list = slices.DeleteFunc(s.list, func(w *work) bool {
		drop := extra > 0 && w.state.Status != storehttp.RescoreRunning
		if drop {
			extra--
		}
		return drop
	})
}

// List implements [storehttp.Rescorer].
func (s *Service) List() []storehttp.Rescoring {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]storehttp.Rescoring, 0, len(s.list))
	for _, w := range slices.Backward(s.list) {
		out = append(out, w.copied())
	}
	return out
}

// copied is the state for others. The caller holds mu.
func (w *work) copied() storehttp.Rescoring {
	out := w.state
	out.Skipped = maps.Clone(out.Skipped)
	return out
}

// Stop implements [storehttp.Rescorer].
func (s *Service) Stop(id string) (storehttp.Rescoring, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.list {
		if w.state.ID == id {
			w.stop(errStopped)
			return w.copied(), nil
		}
	}
	return storehttp.Rescoring{}, refused(store.ErrNotFound, fmt.Sprintf("there is no work %q that scores rollouts; what ended long ago is forgotten", id))
}

// Close stops all work and waits for it.
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
