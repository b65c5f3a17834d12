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
// what arrived while the group before was being made durable.
type writer struct {
	c *conn
	t *tx
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

func newWriter(c *conn, tidy func(c *conn, idle bool)) *writer {
	t := &tx{reader: reader{c}, known: newKnown()}
	return &writer{
		c: c, t: t, tidy: tidy,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
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

// stop lets the queued calls finish and waits for the goroutine.
func (w *writer) stop() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.signal()
	<-w.done
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

// group runs the calls that wait, and those that arrive meanwhile, in one
// transaction, and wakes their owners.
func (w *writer) group() {
	var calls []*call
	began := time.Now()
	err := w.transaction(func() *call {
		if len(calls) == maxGroup || len(calls) > 0 && time.Since(began) > maxGroupTime {
			return nil
		}
		c := w.next()
		if c != nil {
			calls = append(calls, c)
		}
		return c
	})
	if err != nil && len(calls) == 0 {
		if c := w.next(); c != nil {
			calls = append(calls, c)
		}
	}
	for _, c := range calls {
		switch {
		case err == nil:
		case len(calls) == 1:
			c.err = err
		default:
			// One of them may have filled the disk; alone, each gets the
			// answer that is its own.
			if err := w.transaction(once(c)); err != nil {
				c.err = err
			}
		}
	}
	for _, c := range calls {
		close(c.ended)
	}
}

func once(c *call) func() *call {
	return func() *call {
		next := c
		c = nil
		return next
	}
}

// transaction runs the calls that next returns, until it returns nil, and
// commits. The outcome of each is in its err; an error of transaction means
// that nothing of any of them is stored.
func (w *writer) transaction(next func() *call) error {
	t := w.t
	*t = tx{reader: t.reader, known: t.known, touched: t.touched[:0]}
	_, err := w.c.exec(beginWrite)
	calls := 0
	for ; err == nil; calls++ {
		c := next()
		if c == nil {
			break
		}
		err = w.call(c)
	}
	if err == nil {
		began := time.Now()
		_, err = w.c.exec(commit)
		if err == nil && w.onCommit != nil {
			w.onCommit(calls, time.Since(began))
		}
	}
	if err != nil {
		w.rollback()
		t.forget(0)
	}
	return classify(err)
}

// rollback leaves the transaction. After a full disk or a failed write SQLite
// has left it already and says that there is none, which is no news.
func (w *writer) rollback() { _, _ = w.c.exec(rollback) }

// call runs one function. Its own failure goes to c.err and leaves no trace in
// the transaction; an error of call means that the transaction is lost.
func (w *writer) call(c *call) error {
	t := w.t
	touched := len(t.touched)
	t.dirty, t.saved = false, false
	if c.err = c.ctx.Err(); c.err != nil {
		return nil //nolint:nilerr // it is the caller's, not the transaction's
	}
	c.err = classify(protect(t, c.f))
	if c.err == nil {
		t.guard = t.guard || t.dirty
		if !t.saved {
			return nil
		}
		_, err := w.c.exec(release)
		return err
	}
	t.forget(touched)
	if t.saved {
		if _, err := w.c.exec(rollbackTo); err != nil {
			return err
		}
		_, err := w.c.exec(release)
		return err
	}
	if t.dirty { // the first to write, so there is nothing of others to keep
		w.rollback()
		_, err := w.c.exec(beginWrite)
		return err
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
