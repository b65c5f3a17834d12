package sqlite

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// The size of the write-ahead log at which something is done about it, in
// pages of 4 KiB.
const (
	// checkpointPages starts a checkpoint beside the writer. Rarer ones are a
	// little cheaper, but what the log holds on a disk that is full has no room
	// in the database any more, which is then harder to mend.
	checkpointPages = 1000
	// maxLogPages makes the writer wait for readers so that the log can start
	// from its beginning; it is far from anything that short transactions reach.
	maxLogPages = 16000
	// lookEvery is after how many groups the writer looks at the log.
	lookEvery = 8
)

// checkpointer moves the pages of the log into the database. Most of the work,
// and its fsync, happens on a goroutine and a connection of its own while the
// writer goes on; the writer then moves the few pages that were added meanwhile,
// so that the log is used up and starts from its beginning. Left to itself SQLite
// does all of it inside a commit, which every caller of that group waits for.
type checkpointer struct {
	c    *conn
	log  *slog.Logger
	work chan struct{} // asks for a checkpoint
	done chan struct{} // closed when the goroutine has ended

	state atomic.Int32

	groups int // counted by the writer
	limit  int64
}

// The states of a checkpoint beside the writer.
const (
	checkpointNone = iota
	checkpointRunning
	checkpointDone
)

func newCheckpointer(c *conn, log *slog.Logger) *checkpointer {
	return &checkpointer{c: c, log: log, work: make(chan struct{}, 1), done: make(chan struct{}), limit: maxLogPages}
}

// run is the checkpointer's goroutine; it ends when work is closed.
func (cp *checkpointer) run() {
	defer close(cp.done)
	for range cp.work {
		cp.report(checkpoint(cp.c, "PASSIVE"))
		cp.state.Store(checkpointDone)
	}
}

func (cp *checkpointer) stop() {
	close(cp.work)
	<-cp.done
}

// tidy keeps the log short. The writer calls it after every group, and with idle
// when nothing has been queued for a while.
func (cp *checkpointer) tidy(writer *conn, idle bool) {
	cp.groups++
	state := cp.state.Load()
	switch {
	case state == checkpointDone || idle && state == checkpointNone:
		cp.state.Store(checkpointNone)
		cp.report(checkpoint(writer, "PASSIVE"))
		return
	case cp.groups%lookEvery != 0:
		return
	}
	l, err := checkpoint(writer, "NOOP")
	cp.report(l, err)
	switch {
	case err != nil:
	case l.pages > cp.limit:
		l, err = checkpoint(writer, "RESTART")
		cp.report(l, err)
		cp.limit = maxLogPages
		if l.busy { // somebody reads for a long time: wait again only when it got much worse
			cp.limit = l.pages + maxLogPages/4
		}
	case l.pages-l.moved >= checkpointPages && state == checkpointNone:
		cp.state.Store(checkpointRunning)
		cp.work <- struct{}{}
	}
}

// report logs a failed checkpoint. Nothing is lost by one: the log holds all of
// it, and the next attempt may succeed.
func (cp *checkpointer) report(l walState, err error) {
	if err != nil {
		cp.log.LogAttrs(context.Background(), slog.LevelWarn, "checkpoint failed",
			slog.Int64("log_pages", l.pages), slog.Any("err", err))
	}
}

// walState is how long the log is and how much of it is in the database already.
type walState struct {
	busy         bool
	pages, moved int64
}

func checkpoint(c *conn, mode string) (walState, error) {
	var s walState
	_, err := c.one(func(r row) error {
		s = walState{busy: r.int(0) != 0, pages: r.int(1), moved: r.int(2)}
		return nil
	}, "PRAGMA wal_checkpoint("+mode+")")
	return s, err
}
