package sqlite

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"agentlightning/store"
	"agentlightning/store/engine"
)

// Limits of one group. The first bounds what a failing commit takes with it,
// the second how long the first caller of a group waits for the others.
const (
	maxGroup     = 512
	maxGroupTime = 4 * time.Millisecond
)

// idleAfter is how long the writer waits for work before it tidies the log.
const idleAfter = 200 * time.Millisecond

// writer owns the only connection that writes. Callers queue their functions;
// the writer runs those that wait inside one transaction and commits once, so
// that one fsync serves them all. There is no delay to collect more: a group is
// what arrived while the group before was being made durable. That happens on
// another goroutine, while the writer runs the functions of the next group.
type writer struct {
	c *conn
	t *tx
	// sync makes groups durable; nil when a commit is enough.
	sync *syncer
	// recent is told of what every group changed.
	recent *recent
	// tidy is called on the writer's goroutine after every group, and once
	// with true when nothing has been queued for a while.
	tidy func(c *conn, idle bool)
	// onCommit is told of every commit; nil for nobody.
	onCommit func(calls int, took time.Duration)

	mu      sync.Mutex
	pending []*call
	closed  bool
	// onQueued tells tests, which want certain calls in one group, that a call
	// waits.
	onQueued func()

	wake chan struct{}
	done chan struct{} // closed when the goroutine has ended
}

// call is one function given to Update.
type call struct {
	ctx   context.Context //nolint:containedctx // its owner waits in Update as long as the call lives
	f     func(engine.Tx) error
	state atomic.Int32
	err   error
	ended chan struct{}
}

// The life of a call: the writer starts it, or its owner gives up first.
const (
	callWaiting = iota
	callStarted
	callAbandoned
)

// newWriter returns a writer that makes what it commits durable by flush, or is
// content with the commit when that is nil.
func newWriter(c *conn, flush func() error, tidy func(c *conn, idle bool)) *writer {
	w := &writer{
		c: c, t: &tx{reader: reader{c}, known: newKnown()}, recent: newRecent(), tidy: tidy,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if flush != nil {
		w.sync = newSyncer(flush, func(g *group, err error) {
			w.recent.put(g.changed, g.spans) // failed or not: the log has it, and so have readers
			w.answer(g, err)
		})
	}
	return w
}

// update queues f and waits until it is durable.
func (w *writer) update(ctx context.Context, f func(engine.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c := &call{ctx: ctx, f: f, ended: make(chan struct{})}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return store.ErrClosed
	}
	w.pending = append(w.pending, c)
	if w.onQueued != nil {
		w.onQueued()
	}
	w.mu.Unlock()
	w.signal()

	select {
	case <-c.ended:
	case <-ctx.Done():
		if c.state.CompareAndSwap(callWaiting, callAbandoned) {
			return ctx.Err()
		}
		<-c.ended // started: what counts is whether it became durable
	}
	return c.err
}

func (w *writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// stop lets the queued calls finish and waits for the goroutines.
func (w *writer) stop() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.signal()
	<-w.done
	if w.sync != nil {
		w.sync.stop()
	}
}

// run is the writer's goroutine; it ends after stop.
func (w *writer) run() {
	defer close(w.done)
	idle := time.NewTimer(idleAfter)
	defer idle.Stop()
	for {
		waiting, closed := w.status()
		if waiting {
			gather()
			w.group()
			w.tidy(w.c, false)
			idle.Reset(idleAfter)
			continue
		}
		if closed {
			return
		}
		select {
		case <-w.wake:
		case <-idle.C:
			w.tidy(w.c, true)
		}
	}
}

// gather lets the goroutines that are ready to run go first, since some of them
// are about to queue a call: without full sync, at 16 clients, the larger groups
// took an eighth off the processor time. On an idle machine it returns at once.
func gather() {
	for range 2 {
		runtime.Gosched()
	}
}

func (w *writer) status() (waiting, closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.pending) > 0, w.closed
}

// next starts the call that has waited longest, nil when none waits.
func (w *writer) next() *call {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.pending) > 0 {
		c := w.pending[0]
		w.pending[0] = nil
		w.pending = w.pending[1:]
		if c.state.CompareAndSwap(callWaiting, callStarted) {
			return c
		}
	}
	w.pending = nil
	return nil
}

// group is a transaction in the making.
type group struct {
	began     time.Time
	calls     []*call // that were started
	inside    []*call // those that the transaction holds
	dirty     bool    // one of them has written
	turn      bool    // the syncer waits for this group
	committed time.Time
	number    int64 // of the commit, for the syncer
	changed   []recentRollout
	spans     []spanChange
}

// group runs the calls that wait, and those that arrive meanwhile, in one
// transaction, and has their owners told once it is durable.
func (w *writer) group() {
	g := &group{began: time.Now()}
	err := w.transaction(g, func() *call { return w.collect(g) })
	if err == nil {
		return
	}
	if len(g.calls) == 0 {
		if c := w.next(); c != nil {
			g.calls = append(g.calls, c)
		}
	}
	for _, c := range g.calls {
		// One of them may have filled the disk; alone, each gets the answer
		// that is its own.
		if len(g.calls) > 1 {
			one := c
			alone := &group{began: time.Now()}
			err = w.transaction(alone, func() *call {
				next := one
				one = nil
				return next
			})
		}
		if err != nil {
			c.err = err
			close(c.ended)
		}
	}
}

// collect returns the next call of a group, nil when it is time to commit: no
// other call waits, and the group before is durable.
func (w *writer) collect(g *group) *call {
	for {
		full := len(g.calls) == maxGroup || len(g.calls) > 0 && time.Since(g.began) > maxGroupTime
		if !full {
			if c := w.next(); c != nil {
				return c
			}
		}
		switch {
		case w.sync == nil || g.turn:
			return nil
		case full:
			<-w.sync.free
			g.turn = true
			return nil
		}
		select {
		case <-w.sync.free:
			g.turn = true
		case <-w.wake:
		}
	}
}

// transaction runs the calls that next returns, until it returns nil, commits,
// and sees to it that their owners are told. The outcome of each is in its err;
// an error of transaction means that nothing of any of them is stored, and that
// nobody is told.
func (w *writer) transaction(g *group, next func() *call) error {
	t := w.t
	*t = tx{reader: t.reader, known: t.known, touched: t.touched[:0]}
	_, err := w.c.exec(beginWrite)
	for err == nil {
		c := next()
		if c == nil {
			break
		}
		g.calls = append(g.calls, c)
		if c.err = c.ctx.Err(); c.err == nil {
			err = w.call(g, c)
		}
	}
	if w.sync != nil && !g.turn {
		<-w.sync.free
		g.turn = true
	}
	if err == nil {
		err = w.commit(g)
	}
	if err != nil {
		w.rollback()
		t.forget()
		if w.sync != nil {
			w.sync.free <- struct{}{}
		}
	}
	return classify(err)
}

// commit ends the transaction and hands the group over.
func (w *writer) commit(g *group) error {
	durable := w.sync == nil || !g.dirty
	if !durable {
		if err := w.sync.begin(g); err != nil {
			return err
		}
	}
	g.committed = time.Now()
	if err := w.end(g); err != nil {
		if !durable {
			w.sync.reach(g.number)
		}
		return err
	}
	if w.c.queued != nil {
		w.c.queued.Add(int64(w.t.queued))
	}
	if !durable {
		w.sync.work <- g
		return nil
	}
	if w.sync != nil {
		w.sync.free <- struct{}{}
		w.sync.await() // its calls may have read what is not at hand yet
	}
	w.answer(g, nil)
	return nil
}

// end commits the transaction of a group.
func (w *writer) end(g *group) error {
	if w.sync == nil {
		// Readers see the group at once, and are not to find less at hand.
		w.recent.mu.Lock()
		defer w.recent.mu.Unlock()
	}
	if _, err := w.c.exec(commit); err != nil {
		return err
	}
	g.changed, g.spans = w.t.changed(), w.t.spans
	if w.sync == nil {
		w.recent.putLocked(g.changed, g.spans)
	}
	return nil
}

// answer tells the owners of a group's calls what became of it.
func (w *writer) answer(g *group, err error) {
	if err == nil && w.onCommit != nil {
		w.onCommit(len(g.calls), time.Since(g.committed))
	}
	for _, c := range g.calls {
		if err != nil {
			c.err = err
		}
		close(c.ended)
	}
}

// rollback leaves the transaction. After a full disk or a failed write SQLite
// has left it already and says that there is none, which is no news.
func (w *writer) rollback() { _, _ = w.c.exec(rollback) }

// call runs one function. Its own failure goes to c.err and leaves no trace in
// the transaction; an error of call means that the transaction is lost.
func (w *writer) call(g *group, c *call) error {
	w.t.dirty = false
	err := protect(w.t, c.f)
	c.err = classify(err)
	if err == nil {
		g.inside = append(g.inside, c)
		g.dirty = g.dirty || w.t.dirty
		return nil
	}
	// After an error of its own, such as one of the disk at a mere read, SQLite
	// may have undone the transaction.
	if !w.t.dirty && code(err) == 0 {
		return nil
	}
	return w.again(g)
}

// again runs the calls of a transaction once more, without the one that failed
// after it had written, or took the transaction with it. That is rare; a savepoint
// for each call, which would spare it, took a sixth of the writer's time.
func (w *writer) again(g *group) error {
	w.rollback()
	w.t.forget()
	calls := g.inside
	g.inside, g.dirty = nil, false
	if _, err := w.c.exec(beginWrite); err != nil {
		return err
	}
	for _, c := range calls {
		if err := w.call(g, c); err != nil {
			return err
		}
	}
	return nil
}

// protect turns a panic of a function into its error, so that the writer and
// the other callers live on.
func protect(t *tx, f func(engine.Tx) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic in a transaction: %v\n%s", v, debug.Stack())
		}
	}()
	return f(t)
}
