package runlog

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	agl "agentlightning"
)

// Store is where the lines of runs go.
type Store interface {
	AddLogLines(ctx context.Context, runID string, lines ...agl.LogLine) error
}

// mostEarly bounds what is kept of the time before the first run is open.
const mostEarly = 1000

// Log copies what is logged to the logs of the runs that are open. It is safe for
// concurrent use.
type Log struct {
	next slog.Handler

	mu    sync.Mutex
	runs  []*journal
	begun bool          // a run was open
	early []agl.LogLine // before that
	lost  int           // of those
}

// New returns a log beside a handler; nil stands for one that discards.
func New(next slog.Handler) *Log {
	if next == nil {
		next = slog.DiscardHandler
	}
	return &Log{next: next}
}

// Of returns the log that a logger writes to, nil when it writes to none.
func Of(logger *slog.Logger) *Log {
	if logger == nil {
		return nil
	}
	if h, ok := logger.Handler().(*handler); ok {
		return h.log
	}
	return nil
}

// Join returns the logger itself and its log when it has one, and otherwise a
// logger of a new log beside its handler.
func Join(logger *slog.Logger) (*slog.Logger, *Log) {
	if l := Of(logger); l != nil {
		return logger, l
	}
	var next slog.Handler
	if logger != nil {
		next = logger.Handler()
	}
	l := New(next)
	return l.Logger(), l
}

// Logger returns a logger that writes to the log.
func (l *Log) Logger() *slog.Logger { return slog.New(&handler{log: l, next: l.next}) }

// Open makes a run one that lines go to, from now on and, the first one, from
// the beginning. One that is open stays so. Whoever opens a run calls Close or End.
func (l *Log) Open(s Store, runID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.find(runID) != nil {
		return
	}
	j := &journal{store: s, runID: runID, report: slog.New(l.next), hurry: make(chan struct{}, 1)}
	if !l.begun {
		j.waiting, j.dropped = l.early, l.lost
		for i := range j.waiting {
			j.bytes += j.waiting[i].Size()
		}
		l.begun, l.early = true, nil
	}
	l.runs = append(l.runs, j)
}

func (l *Log) find(runID string) *journal {
	for _, j := range l.runs {
		if j.runID == runID {
			return j
		}
	}
	return nil
}

// lastWords bounds how long it may take to store what waits at the end.
const lastWords = 5 * time.Second

// Close takes a run off, if it is open, and says as its last line how it ended. It
// waits until that and everything before it is stored, also when ctx has ended,
// but no longer than a few seconds.
func (l *Log) Close(ctx context.Context, runID string, status agl.RunStatus, failure error) {
	j := l.take(runID)
	if j == nil {
		return
	}
	level := slog.LevelInfo
	switch status {
	case agl.RunFailed:
		level = slog.LevelError
	case agl.RunInterrupted:
		level = slog.LevelWarn
	case agl.RunSucceeded, agl.RunRunning:
	}
	r := slog.NewRecord(time.Now(), level, "run "+string(status), 0)
	if failure != nil {
		r.AddAttrs(slog.Any("err", failure))
	}
	last := lineOf(&r, nil, "")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	j.end(ctx, &last)
}

// End takes off the runs that are still open, without a last line, and waits as
// Close does.
func (l *Log) End(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	l.mu.Lock()
	open := slices.Clone(l.runs)
	l.mu.Unlock()
	for _, j := range open {
		if l.take(j.runID) == j {
			j.end(ctx, nil)
		}
	}
}

func (l *Log) take(runID string) *journal {
	l.mu.Lock()
	defer l.mu.Unlock()
	j := l.find(runID)
	l.runs = slices.DeleteFunc(slices.Clone(l.runs), func(other *journal) bool { return other == j })
	return j
}

// Add writes a line to the log of a run, if it is open, and nowhere else.
func (l *Log) Add(ctx context.Context, runID string, level slog.Level, message string, attrs ...slog.Attr) {
	r := slog.NewRecord(time.Now(), level, message, 0)
	r.AddAttrs(attrs...)
	l.mu.Lock()
	j := l.find(runID)
	l.mu.Unlock()
	if j != nil {
		j.add(ctx, lineOf(&r, nil, ""))
	}
}

// listens reports whether anything becomes of a line.
func (l *Log) listens() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.begun || len(l.runs) > 0
}

// write gives a line to every run that is open.
func (l *Log) write(ctx context.Context, line agl.LogLine) {
	l.mu.Lock()
	runs := l.runs // never changed in place
	if !l.begun {
		if len(l.early) < mostEarly {
			l.early = append(l.early, line)
		} else {
			l.lost++
		}
	}
	l.mu.Unlock()
	for _, j := range runs {
		j.add(ctx, line)
	}
}

// handler is a [slog.Handler] with the attributes of its logger.
type handler struct {
	log   *Log
	next  slog.Handler
	given []slog.Attr // with the names of their groups
	group string      // of what comes, with a dot behind each
}

// Enabled implements [slog.Handler].
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.next.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if h.log.listens() {
		h.log.write(ctx, lineOf(&r, h.given, h.group))
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	out := *h
	out.next = h.next.WithAttrs(attrs)
	out.given = slices.Clip(h.given)
	for _, a := range attrs {
		if h.group != "" {
			a = slog.Attr{Key: h.group[:len(h.group)-1], Value: slog.GroupValue(a)}
		}
		out.given = append(out.given, a)
	}
	return &out
}

// WithGroup implements [slog.Handler].
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	out := *h
	out.next, out.group = h.next.WithGroup(name), h.group+name+"."
	return &out
}

var errGivenUp = errors.New("the end of the run did not wait any longer")
