// Package stage gives every wait of an algorithm a name. A part of a run, such as
// collecting rollouts or updating weights, is done as a stage: it has a start,
// and it tells when something moved. When nothing does for a while, a [Watch] says
// which stage it is, for how long, and what happened last.
package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Names of stages that algorithms share.
const (
	Collect    = "collect"    // rollouts are waited for
	Score      = "score"      // rewards become credit and advantages
	Update     = "update"     // the learner changes the weights
	Validate   = "validate"   // rollouts on validation tasks are waited for
	Publish    = "publish"    // resources are stored
	Reflect    = "reflect"    // a model is asked for a better prompt
	Checkpoint = "checkpoint" // weights and state are kept
)

// ErrStuck is what a [*StuckError] is, for errors.Is.
var ErrStuck = errors.New("no progress")

// StuckError ends a stage in which nothing moved for as long as the limit says.
type StuckError struct{ Status Status }

func (e *StuckError) Error() string { return e.Status.String() + "; the limit is reached" }

// Is reports whether target is [ErrStuck].
func (e *StuckError) Is(target error) bool { return target == ErrStuck }

// Status is how a stage stands.
type Status struct {
	Stage string        // its name, behind those of the stages that it is part of
	Since time.Duration // since it began
	Idle  time.Duration // since it moved
	Last  string        // what happened last; empty when nothing did yet
}

// String says it in a line.
func (s Status) String() string {
	last := s.Last
	if last == "" {
		last = "nothing happened since it began"
	} else {
		last = "the last thing that happened: " + last
	}
	return fmt.Sprintf("stage %s makes no progress: nothing moved for %v, it began %v ago; %s",
		s.Stage, s.Idle.Round(time.Second), s.Since.Round(time.Second), last)
}

// Config says when silence is too long.
type Config struct {
	// Warn is how long nothing may move before OnStall is told, again after each
	// such time; 0 means 2 minutes, negative means never.
	Warn time.Duration
	// Limit ends a stage in which nothing moved for so long, with a
	// [*StuckError]; 0 means never.
	Limit time.Duration
	// Logger gets a line when a stage is stuck and when it goes on; nil discards.
	Logger *slog.Logger
	// OnStall is told of a stage in which nothing moves, and with ok when that
	// one goes on; nil means not at all. It is called from other goroutines than
	// that of the stage, too, but never twice at a time.
	OnStall func(ctx context.Context, s Status, ok bool)
	// OnChange is called when a stage begins and whenever it moves; nil means not
	// at all.
	OnChange func(Status)
}

// Watch looks after the stages of one run. It is safe for concurrent use.
type Watch struct {
	cfg Config

	telling sync.Mutex // one call of OnStall or OnChange at a time
}

// New returns a watch.
func New(c Config) *Watch {
	c.Warn = cmp.Or(c.Warn, 2*time.Minute)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Watch{cfg: c}
}

// running is a stage that has begun.
type running struct {
	name   string
	parent *running
	began  time.Time
	watch  *Watch

	mu      sync.Mutex
	moved   time.Time
	last    string
	stalled bool
	inner   int // stages that are part of it and have not ended
}

type key struct{}

// Do runs f as the stage of this name. Stages may be nested: what moves the inner
// one moves the outer one. The context that f is given ends when the limit of the
// watch is reached; Do then returns a [*StuckError], whatever f returns. A
// nil watch only runs f.
func (w *Watch) Do(ctx context.Context, name string, f func(context.Context) error) error {
	if w == nil {
		return f(ctx)
	}
	now := time.Now()
	s := &running{name: name, began: now, moved: now, watch: w}
	if s.parent, _ = ctx.Value(key{}).(*running); s.parent != nil {
		s.name = s.parent.name + " / " + name
		s.parent.move("", now)
		s.parent.nest(1)
		defer func() {
			s.parent.move("", time.Now())
			s.parent.nest(-1)
		}()
	}
	inner, cancel := context.WithCancelCause(context.WithValue(ctx, key{}, s))
	defer cancel(nil)
	done := make(chan struct{})
	var guard sync.WaitGroup
	guard.Go(func() { s.guard(ctx, done, cancel) })
	s.changed()
	err := f(inner)
	close(done)
	guard.Wait()
	if stuck, ok := errors.AsType[*StuckError](context.Cause(inner)); ok && ctx.Err() == nil {
		return stuck
	}
	s.move("", time.Now())
	s.resume(ctx)
	return err
}

// Progress says that the stage of ctx moved, and what happened. Without a stage
// it does nothing.
func Progress(ctx context.Context, format string, args ...any) {
	s, _ := ctx.Value(key{}).(*running)
	if s == nil {
		return
	}
	s.move(fmt.Sprintf(format, args...), time.Now())
	s.resume(ctx)
	s.changed()
}

func (s *running) move(what string, at time.Time) {
	for ; s != nil; s = s.parent {
		s.mu.Lock()
		s.moved = at
		if what != "" {
			s.last = what
		}
		s.mu.Unlock()
	}
}

func (s *running) nest(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inner += n
}

// innermost reports whether the stage has to speak for itself.
func (s *running) innermost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inner == 0
}

func (s *running) status(now time.Time) Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Status{s.name, now.Sub(s.began), now.Sub(s.moved), s.last}
}

func (s *running) changed() {
	w := s.watch
	if w.cfg.OnChange == nil {
		return
	}
	w.telling.Lock()
	defer w.telling.Unlock()
	w.cfg.OnChange(s.status(time.Now()))
}

// tell hands a stage that is stuck, or goes on, to OnStall.
func (w *Watch) tell(ctx context.Context, st Status, ok bool) {
	if w.cfg.OnStall == nil {
		return
	}
	w.telling.Lock()
	defer w.telling.Unlock()
	w.cfg.OnStall(ctx, st, ok)
}

// resume tells that a stage goes on that was said to be stuck.
func (s *running) resume(ctx context.Context) {
	for r := s; r != nil; r = r.parent {
		r.mu.Lock()
		was := r.stalled
		r.stalled = false
		r.mu.Unlock()
		if !was {
			continue
		}
		st := r.status(time.Now())
		r.watch.cfg.Logger.InfoContext(ctx, "stage goes on", "stage", st.Stage, "elapsed", st.Since, "last", st.Last)
		r.watch.tell(ctx, st, true)
	}
}

// guard waits until the stage is done, says when nothing moves, and ends it at
// the limit. Of nested stages the innermost one does this.
func (s *running) guard(ctx context.Context, done <-chan struct{}, cancel context.CancelCauseFunc) {
	c := &s.watch.cfg
	said := 0 // how many times Warn has passed without anything moving
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		st := s.status(time.Now())
		speaks := s.innermost()
		if c.Limit > 0 && st.Idle >= c.Limit && speaks {
			c.Logger.ErrorContext(ctx, "stage ended: it makes no progress", "stage", st.Stage, "idle", st.Idle, "elapsed", st.Since, "last", st.Last)
			cancel(&StuckError{st})
			return
		}
		wait := time.Duration(0)
		if c.Warn > 0 {
			n := int(st.Idle / c.Warn)
			if n > said && speaks {
				s.stall(ctx, st)
			}
			said = n
			wait = c.Warn*time.Duration(n+1) - st.Idle
		}
		if left := c.Limit - st.Idle; left > 0 && (wait == 0 || left < wait) {
			wait = left
		}
		if wait == 0 {
			if c.Limit == 0 {
				return // nothing to look after
			}
			wait = c.Limit // the inner stage is at its limit
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-done:
			return
		case <-ctx.Done(): // the run is told to stop: that is not silence
			return
		}
	}
}

// stall says that nothing moves.
func (s *running) stall(ctx context.Context, st Status) {
	s.mu.Lock()
	s.stalled = true
	s.mu.Unlock()
	s.watch.cfg.Logger.WarnContext(ctx, "stage makes no progress", "stage", st.Stage, "idle", st.Idle, "elapsed", st.Since, "last", st.Last)
	s.watch.tell(ctx, st, false)
}
