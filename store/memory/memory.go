package memory

import (
	"context"
	"log/slog"
	"sync"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
)

// Backend keeps the state of a store in memory. It is safe for concurrent use.
type Backend struct {
	log *slog.Logger

	mu    sync.RWMutex
	state state
}

var _ engine.Backend = (*Backend)(nil)

// New returns an empty backend with the default [SpanLimits].
func New() *Backend {
	b, err := NewLimited(SpanLimits{}, nil)
	if err != nil {
		panic(err) //nolint:forbidigo // the defaults are sound
	}
	return b
}

// NewLimited returns an empty backend that holds no more spans than that, or an
// error that names the limit that cannot be. The logger is told when spans are
// dropped; nil discards it.
func NewLimited(l SpanLimits, log *slog.Logger) (*Backend, error) {
	limits, err := l.resolve()
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Backend{log: log, state: state{
		limits:    limits,
		rollouts:  map[string]*rolloutRow{},
		limited:   map[*rolloutRow]struct{}{},
		queue:     newQueue(),
		sequences: map[string]int64{},
		resources: table[agl.ResourcesUpdate]{byID: map[string]int{}},
		workers:   table[agl.Worker]{byID: map[string]int{}},
		runs:      map[string]*runRow{},
		answers:   map[string]answer{},
		secrets:   map[string][]byte{},
	}}, nil
}

// Name implements [engine.Backend].
func (b *Backend) Name() string { return "memory" }

// View implements [engine.Backend].
func (b *Backend) View(ctx context.Context, f func(engine.Reader) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	return f(reader{&b.state})
}

// Update implements [engine.Backend]. A failed transaction is undone step by
// step, the last one first.
func (b *Backend) Update(ctx context.Context, f func(engine.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t := &tx{reader: reader{&b.state}}
	committed := false
	defer func() {
		if !committed {
			t.rollback()
		}
	}()
	err := f(t)
	committed = err == nil
	if committed {
		b.state.evict(b.log)
		b.state.closeHoles()
	}
	return err
}

// Close implements [engine.Backend].
func (b *Backend) Close() error { return nil }

// state is what the backend remembers. Items are never changed in place: a row
// points to the present value, and values handed in or out are copied.
type state struct {
	rollouts map[string]*rolloutRow
	order    []*agl.AttemptedRollout  // of insertion; nil where one was deleted
	holes    int                      // how many of those are nil
	born     int64                    // rollouts that were ever inserted
	limited  map[*rolloutRow]struct{} // active and with a time limit
	queue    *queue
	// sequences are the span counters; rollouts need not exist to have one.
	sequences map[string]int64
	attempts  int64
	spans     int64
	spanBytes int64
	limits    spanLimits
	resources table[agl.ResourcesUpdate]
	latest    string // id of the resources added or updated last
	workers   table[agl.Worker]
	runs      map[string]*runRow
	runOrder  []*runRow
	models    []agl.Model
	answers   map[string]answer
	secrets   map[string][]byte
	completed []string // ids of rollouts in the order in which they ended
	expiry    []string // keys of answers in the order in which they were given
}

// rolloutRow is a rollout with all that belongs to it. The value itself lives in
// order, with its latest attempt.
type rolloutRow struct {
	value    *agl.AttemptedRollout
	place    int   // in order
	born     int64 // counts insertions: it stays when holes are closed
	attempts []*agl.Attempt
	spans    []*store.EncodedSpan
	byKey    map[spanKey]struct{}
	byOwner  map[string][]*store.EncodedSpan // attempt id to its spans
	bytes    int64                           // that the spans take
	evicted  bool                            // spans were dropped for want of memory
}

type spanKey struct{ attemptID, spanID string }

type runRow struct {
	run         agl.Run
	metrics     []agl.StepMetrics // by step
	checkpoints []agl.Checkpoint  // by step
	log         runLog
}

// runLog is the log of a run. Nothing of it is changed in place.
type runLog struct {
	lines []agl.LogLine // that are kept, by position
	first int64         // position of the first of them, less 1
	bytes int64
}

type answer struct {
	text    []byte
	expires float64
}

// table keeps items in the order of insertion and finds them by id.
type table[T any] struct {
	items []*T
	byID  map[string]int
}

func (t *table[T]) get(id string) *T {
	if at, ok := t.byID[id]; ok {
		return t.items[at]
	}
	return nil
}

// put inserts or replaces an item and returns how to undo that.
func (t *table[T]) put(id string, item *T) func() {
	if at, ok := t.byID[id]; ok {
		old := t.items[at]
		t.items[at] = item
		return func() { t.items[at] = old }
	}
	t.byID[id] = len(t.items)
	t.items = append(t.items, item)
	return func() {
		t.items = t.items[:len(t.items)-1]
		delete(t.byID, id)
	}
}

func counts(s *state) store.Statistics {
	return store.Statistics{
		TotalRollouts:  int64(len(s.rollouts)),
		TotalAttempts:  s.attempts,
		TotalSpans:     s.spans,
		TotalResources: int64(len(s.resources.items)),
		TotalWorkers:   int64(len(s.workers.items)),
		SpanBytes:      s.spanBytes,
		EvictBytes:     s.limits.evict,
		SafeBytes:      s.limits.safe,
		MemoryBytes:    s.limits.capacity,
	}
}
