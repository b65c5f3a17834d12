package engine

import (
	"context"
	"sync"
	"sync/atomic"

	"agentlightning/store"
)

// feed gathers what changed for everybody who watches. Without watchers it costs
// one look at a counter.
type feed struct {
	count atomic.Int32 // of watchers

	mu       sync.Mutex
	watchers map[*watcher]struct{}
}

// watcher is one call of Watch. What changed is guarded by the feed's mutex.
type watcher struct {
	of      *Store
	changed map[store.Noun]*changes
	ready   chan struct{} // has a value when something changed
}

// changes are those of one noun since the last look.
type changes struct {
	n    int
	ids  map[string]struct{}
	many bool // more ids than are named
}

func (f *feed) watched() bool { return f.count.Load() > 0 }

// tell says that things of a noun changed.
func (f *feed) tell(noun store.Noun, ids ...string) {
	if !f.watched() || len(ids) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.watchers {
		c := w.changed[noun]
		if c == nil {
			c = &changes{ids: map[string]struct{}{}}
			w.changed[noun] = c
		}
		c.add(ids)
		select {
		case w.ready <- struct{}{}:
		default: // it knows already
		}
	}
}

func (c *changes) add(ids []string) {
	c.n += len(ids)
	for _, id := range ids {
		if c.many {
			return
		}
		c.ids[id] = struct{}{}
		if len(c.ids) > store.FeedIDs {
			c.many, c.ids = true, nil
		}
	}
}

// take returns what changed and starts anew.
func (f *feed) take(w *watcher) store.Happened {
	f.mu.Lock()
	changed := w.changed
	w.changed = map[store.Noun]*changes{}
	f.mu.Unlock()
	out := make(store.Happened, len(changed))
	for noun, c := range changed {
		told := store.Changes{N: c.n}
		if !c.many {
			told.IDs = make([]string, 0, len(c.ids))
			for id := range c.ids {
				told.IDs = append(told.IDs, id)
			}
		}
		out[noun] = told
	}
	return out
}

var _ store.Feed = (*Store)(nil)

// Watch implements [store.Feed].
func (s *Store) Watch() store.Watcher {
	w := &watcher{of: s, changed: map[store.Noun]*changes{}, ready: make(chan struct{}, 1)}
	f := &s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watchers == nil {
		f.watchers = map[*watcher]struct{}{}
	}
	f.watchers[w] = struct{}{}
	f.count.Store(int32(len(f.watchers))) //nolint:gosec // there are never that many
	return w
}

// Next implements [store.Watcher].
func (w *watcher) Next(ctx context.Context) (store.Happened, error) {
	select {
	case <-w.ready:
		return w.of.feed.take(w), nil
	case <-w.of.closed:
		return nil, store.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close implements [store.Watcher].
func (w *watcher) Close() {
	f := &w.of.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watchers, w)
	f.count.Store(int32(len(f.watchers))) //nolint:gosec // there are never that many
}

// tellSpans tells of the rollouts that got spans, once for each span.
func (s *Store) tellSpans(spans []store.EncodedSpan, outcomes []store.SpanOutcome) {
	if !s.feed.watched() {
		return
	}
	ids := make([]string, 0, len(spans))
	for i := range outcomes {
		if outcomes[i].Stored {
			ids = append(ids, spans[i].RolloutID)
		}
	}
	s.feed.tell(store.NounSpans, ids...)
}

// tellMoves tells of what a transaction did to rollouts and, with them, to workers.
func (s *Store) tellMoves(moves []Change) {
	if len(moves) == 0 || !s.feed.watched() {
		return
	}
	ids := make([]string, len(moves))
	for i := range moves {
		ids[i] = moves[i].RolloutID
	}
	s.feed.tell(store.NounRollouts, ids...)
}
