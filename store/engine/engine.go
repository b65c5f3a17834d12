package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	agl "agentlightning"
	"agentlightning/store"
)

// DefaultHealthScanInterval is what servers use unless told otherwise.
const DefaultHealthScanInterval = 10 * time.Second

// Config configures a [Store]. The zero value is ready for use.
type Config struct {
	// Now is the clock that stamps times; nil means [time.Now].
	Now func() time.Time
	// Logger receives what an operator may want to know; nil discards it.
	Logger *slog.Logger
	// HealthScanInterval is how often time limits are looked at, at the most:
	// before calls that depend on them, and by a timer when nothing calls.
	// 0 looks before every such call and sets no timer; then calls that wait
	// look once a second meanwhile.
	HealthScanInterval time.Duration
	// PollInterval is for backends that other processes write to: how often to
	// look for their changes while calls wait. 0 means that nobody else writes.
	PollInterval time.Duration
	// OnChange is told of the rollouts that a call moved to another status,
	// after the commit and before the call returns. It must be quick, and must
	// not call the store. Nil means nobody listens.
	OnChange func([]Change)
}

// Change tells of a rollout that entered another status.
type Change struct {
	RolloutID string
	From      agl.RolloutStatus // empty when the rollout is new
	To        agl.RolloutStatus
	Time      float64 // Unix seconds
	Mode      agl.Mode
	// Started is when the rollout was made, in Unix seconds.
	Started float64
}

// Store implements [store.Store] over a backend. Use [New].
type Store struct {
	backend   Backend
	recent    Recent // the backend, if it has this power
	cfg       Config
	log       *slog.Logger
	started   time.Time
	line      line
	waits     waitList
	feed      feed
	sequences sequencer
	keys      modelKeys
	completed bell // rings when a rollout ended

	lastScan atomic.Int64 // Unix nanoseconds of the last health scan, 0 for never

	// life is held for reading from the start of a transaction until all that
	// follows from it is done, for writing by Close.
	life   sync.RWMutex
	closed chan struct{}
	once   sync.Once
	stop   context.CancelFunc // ends what runs in the background
	owned  sync.WaitGroup     // of it
}

var _ store.Store = (*Store)(nil)

// New returns a store that keeps its state in the backend, which it owns: Close
// closes it too.
func New(b Backend, cfg Config) *Store {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Store{backend: b, cfg: cfg, log: log, started: cfg.Now(), closed: make(chan struct{})}
	if cfg.PollInterval == 0 {
		s.sequences.block = sequenceBlock
	}
	s.recent, _ = b.(Recent)
	background, stop := context.WithCancel(context.Background())
	s.stop = stop
	if cfg.HealthScanInterval > 0 {
		s.every(background, cfg.HealthScanInterval, s.timedScan)
	}
	if cfg.PollInterval > 0 {
		s.every(background, cfg.PollInterval, s.poll)
	}
	return s
}

// every calls f at an interval until Close, which waits for it.
func (s *Store) every(ctx context.Context, d time.Duration, f func(context.Context)) {
	s.owned.Go(func() {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				f(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
}

// Close ends waiting calls with [store.ErrClosed], lets the others finish, and
// closes the backend.
func (s *Store) Close() error {
	var err error
	s.once.Do(func() {
		close(s.closed)
		s.stop()
		s.owned.Wait()
		s.life.Lock()
		defer s.life.Unlock()
		err = errors.Join(s.trimCounters(context.Background(), true), s.backend.Close())
	})
	return err
}

// Statistics counts what the store holds.
func (s *Store) Statistics(ctx context.Context) (store.Statistics, error) {
	var st store.Statistics
	err := s.view(ctx, func(r Reader) (err error) {
		st, err = r.Counts()
		return err
	})
	st.Name = s.backend.Name()
	st.Uptime = s.cfg.Now().Sub(s.started)
	return st, err
}

// now is the present in the protocol's Unix seconds.
func (s *Store) now() float64 { return agl.Seconds(s.cfg.Now()) }

// enter begins a call of the backend; the caller leaves by life.RUnlock. A call
// must not enter twice: between the two, Close may have come to wait.
func (s *Store) enter(ctx context.Context) error {
	s.life.RLock()
	err := ctx.Err()
	select {
	case <-s.closed:
		err = store.ErrClosed
	default:
	}
	if err != nil {
		s.life.RUnlock()
	}
	return err
}

// view reads one consistent state.
func (s *Store) view(ctx context.Context, f func(Reader) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.life.RUnlock()
	return s.backend.View(ctx, f)
}

// update runs a transaction and, once it is committed, what follows from it.
func (s *Store) update(ctx context.Context, f func(*change) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.life.RUnlock()
	var c change
	err := s.backend.Update(ctx, func(tx Tx) error {
		c = change{Tx: tx, now: s.now(), block: s.sequences.block, watched: s.feed.watched()} // from scratch, for this may run again
		return f(&c)
	})
	if err != nil {
		return err
	}
	if c.after != nil {
		c.after()
	}
	s.sequences.grant(c.reserved)
	s.line.wake(c.queued)
	s.waits.finish(c.finished)
	if len(c.finished) > 0 {
		s.completed.ring()
	}
	s.tellMoves(c.moves)
	s.feed.tell(store.NounWorkers, c.workers...)
	if s.cfg.OnChange != nil && len(c.moves) > 0 {
		s.cfg.OnChange(c.moves)
	}
	return nil
}

func notFound(format string, args ...any) error {
	return &store.Error{Kind: store.ErrNotFound, Message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) error {
	return &store.Error{Kind: store.ErrInvalid, Message: fmt.Sprintf(format, args...)}
}

func conflict(format string, args ...any) error {
	return &store.Error{Kind: store.ErrConflict, Message: fmt.Sprintf(format, args...)}
}

func unknownRollout(id string) error { return notFound("Rollout %s not found", id) }
