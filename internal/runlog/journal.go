package runlog

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	agl "agentlightning"
	"agentlightning/store"
)

const (
	// pause is how long lines wait for others to be stored with.
	pause = 300 * time.Millisecond
	// batchLines and batchBytes bound what is stored at a time.
	batchLines = 500
	batchBytes = 1 << 20
	// mostWaiting and mostBytes bound what waits for a store that is slow.
	mostWaiting = 5000
	mostBytes   = 4 << 20
	// patience is how long one attempt to store lines may take.
	patience = 40 * time.Second
	// firstRetry is the pause after an attempt that failed, the next one twice
	// as long, up to lastRetry.
	firstRetry = time.Second
	lastRetry  = 15 * time.Second
)

// journal brings the lines of one run to the store. A goroutine does it, which is
// there while lines wait.
type journal struct {
	store  Store
	runID  string
	report *slog.Logger  // is told of a store that fails
	hurry  chan struct{} // has a value when nobody should wait for more lines

	mu      sync.Mutex
	waiting []agl.LogLine
	bytes   int // of those
	dropped int // lines for which there was no room
	writer  *writer
	ended   bool // nothing is added any more
	gone    bool // the store takes nothing more for this run
	told    bool // the report, of a failure
	failing bool // the last attempt failed: the next one waits its time
}

// writer is the goroutine that is at work.
type writer struct {
	stop context.CancelCauseFunc
	done chan struct{}
}

// add takes a line, or counts it when there is no room.
func (j *journal) add(ctx context.Context, line agl.LogLine) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.ended || j.gone:
		return
	case len(j.waiting) >= mostWaiting || j.bytes+line.Size() > mostBytes:
		j.dropped++
	default:
		j.noteDropped(line.Time)
		j.push(line)
	}
	j.start(ctx)
	if len(j.waiting) >= batchLines && !j.failing {
		j.wake()
	}
}

func (j *journal) push(line agl.LogLine) {
	j.waiting = append(j.waiting, line)
	j.bytes += line.Size()
}

// noteDropped puts the count of the lines that were dropped in their place.
func (j *journal) noteDropped(at float64) {
	if j.dropped == 0 {
		return
	}
	r := slog.NewRecord(time.Time{}, slog.LevelWarn, "lines of the log were dropped: the store was too slow to take them", 0)
	r.AddAttrs(slog.Int("dropped", j.dropped))
	line := lineOf(&r, nil, "")
	line.Time = at
	j.dropped = 0
	j.push(line)
}

func (j *journal) wake() {
	select {
	case j.hurry <- struct{}{}:
	default: // it knows
	}
}

// start sees to it that a writer is at work when there is something to write.
func (j *journal) start(ctx context.Context) {
	if j.writer != nil || len(j.waiting) == 0 {
		return
	}
	ctx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	j.writer = &writer{stop: stop, done: make(chan struct{})}
	go j.write(ctx, j.writer)
}

// write stores lines until none are left.
func (j *journal) write(ctx context.Context, w *writer) {
	defer close(w.done)
	defer w.stop(nil)
	wait, retry, key := pause, firstRetry, ""
	var batch []agl.LogLine // that could not be stored
	for {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-j.hurry:
		case <-ctx.Done():
		}
		timer.Stop()
		if batch == nil {
			if batch = j.batch(); batch == nil {
				return
			}
			key = agl.NewTraceID() // so that what is tried again is not there twice
		}
		err := j.send(ctx, key, batch)
		if err == nil {
			j.stored(batch)
			wait, retry, batch = pause, firstRetry, nil
			continue
		}
		if !j.failed(ctx, err) {
			return
		}
		wait, retry = retry, min(2*retry, lastRetry)
	}
}

// batch returns the lines that are stored next; without any the writer is done.
func (j *journal) batch() []agl.LogLine {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.waiting) == 0 {
		j.writer = nil
		return nil
	}
	n, size := 0, 0
	for n < len(j.waiting) && n < batchLines && (n == 0 || size+j.waiting[n].Size() <= batchBytes) {
		size += j.waiting[n].Size()
		n++
	}
	if j.ended || len(j.waiting)-n >= batchLines {
		j.wake() // the next one need not wait
	}
	return j.waiting[:n:n]
}

func (j *journal) send(ctx context.Context, key string, batch []agl.LogLine) error {
	ctx, cancel := context.WithTimeout(store.WithKey(ctx, key), patience)
	defer cancel()
	return j.store.AddLogLines(ctx, j.runID, batch...)
}

func (j *journal) stored(batch []agl.LogLine) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range batch {
		j.bytes -= batch[i].Size()
	}
	j.failing = false
	j.waiting = j.waiting[len(batch):]
	if len(j.waiting) == 0 {
		j.waiting = nil
		if j.dropped > 0 {
			j.noteDropped(agl.Seconds(time.Now()))
		}
	}
}

// hopeless tells whether trying again does not heal an error: the run was deleted,
// the store is closed, or the server is of an earlier version.
func hopeless(err error) bool {
	return errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrClosed) ||
		errors.Is(err, store.ErrDenied) || errors.Is(err, errors.ErrUnsupported)
}

// failed notes an error of the store and tells whether to try again.
func (j *journal) failed(ctx context.Context, err error) (again bool) {
	j.mu.Lock()
	again = !hopeless(err) && !j.ended && ctx.Err() == nil
	said, lines := j.told, len(j.waiting)+j.dropped
	j.told, j.failing = true, true
	if !again {
		j.gone = true // and the writer stays known, for the end waits for its report
		j.waiting, j.bytes, j.dropped = nil, 0, 0
	}
	j.mu.Unlock()
	switch {
	case !again:
		j.report.WarnContext(ctx, "the log of the run is not complete: the store does not take it", "run_id", j.runID, "lines", lines, "err", err)
	case !said:
		j.report.WarnContext(ctx, "lines of the log of the run could not be stored yet", "run_id", j.runID, "err", err)
	}
	return again
}

// end adds a last line, for which there is always room, and waits until
// everything is stored or ctx ends.
func (j *journal) end(ctx context.Context, last *agl.LogLine) {
	j.mu.Lock()
	if !j.gone && !j.ended {
		if last != nil {
			j.noteDropped(last.Time)
			j.push(*last)
		}
		j.start(ctx)
	}
	j.ended = true
	w := j.writer
	j.wake()
	j.mu.Unlock()
	if w == nil {
		return
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		w.stop(errGivenUp)
		<-w.done
	}
}
