package tracer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	agl "agentlightning"
	"agentlightning/store"
)

// ErrEnded is the error of using a trace after its end.
var ErrEnded = errors.New("the trace has ended")

// Trace collects and writes the spans of one attempt. It is safe for concurrent use.
type Trace struct {
	cfg       Config
	rolloutID string
	attemptID string
	provider  *sdktrace.TracerProvider
	root      rootSpan

	waiting chan struct{} // a span waits where none waited before
	full    chan struct{} // a batch is complete
	flushes chan flush
	stop    chan struct{} // closed by End
	stopped chan struct{} // closed by the writer

	mu       sync.Mutex
	recorded []agl.Span // every span, in the order in which they ended
	written  int        // of recorded, how many left the queue
	numbered int        // of recorded, how many have a sequence id
	refused  []error    // spans that the sink did not take
	open     int        // spans started and not ended
	ended    bool
}

// flush asks the writer to write; the outcome goes into done.
type flush struct{ done chan error }

// RolloutID returns the rollout that the trace belongs to.
func (tr *Trace) RolloutID() string { return tr.rolloutID }

// AttemptID returns the attempt that the trace belongs to.
func (tr *Trace) AttemptID() string { return tr.attemptID }

// TracerProvider returns the OpenTelemetry provider whose spans are recorded here.
func (tr *Trace) TracerProvider() trace.TracerProvider { return tr.provider }

// Spans returns the spans that ended so far, in that order. Those not written
// yet have sequence id 0.
func (tr *Trace) Spans() []agl.Span {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return slices.Clone(tr.recorded)
}

// Flush writes the spans that have ended and returns when they are stored. When
// it fails the spans are kept and written with the next flush.
func (tr *Trace) Flush(ctx context.Context) error {
	f := flush{make(chan error, 1)}
	select {
	case tr.flushes <- f:
	case <-tr.stopped:
		return ErrEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-f.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// End writes what is left and returns all spans of the trace. The error says
// what could not be stored. Spans that end later are lost and logged. Only the
// first call writes. It tries until ctx ends or [Config].GiveUp has passed, so ctx
// should not be the one that the agent was cancelled by.
func (tr *Trace) End(ctx context.Context) ([]agl.Span, error) {
	tr.mu.Lock()
	again := tr.ended
	tr.ended = true
	open := tr.open
	tr.mu.Unlock()
	if again {
		<-tr.stopped
		return tr.Spans(), nil
	}
	if open > 0 {
		tr.cfg.Logger.WarnContext(ctx, "trace ended before some of its spans; they are not stored",
			"rollout_id", tr.rolloutID, "attempt_id", tr.attemptID, "spans", open)
	}
	err := tr.finish(ctx)
	close(tr.stop)
	<-tr.stopped

	tr.mu.Lock()
	defer tr.mu.Unlock()
	if lost := len(tr.recorded) - tr.written; lost > 0 {
		err = fmt.Errorf("%d of %d spans were not stored: %w", lost, len(tr.recorded), err)
	}
	return slices.Clone(tr.recorded), errors.Join(append([]error{err}, tr.refused...)...)
}

// finish flushes until everything is stored, the error is one that trying again
// does not heal, or the time for it is over.
func (tr *Trace) finish(ctx context.Context) error {
	deadline := time.NewTimer(tr.cfg.GiveUp)
	defer deadline.Stop()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := tr.Flush(ctx)
		if err == nil || final(err) || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		case <-deadline.C:
			return fmt.Errorf("gave up after %v: %w", tr.cfg.GiveUp, err)
		}
	}
}

// The pauses between the attempts of a last flush.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// final reports whether the sink understood and refused, so that asking again
// gets the same answer.
func final(err error) bool {
	return errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrNotFound) ||
		errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrClosed) || errors.Is(err, store.ErrDenied)
}

// write owns all writing; it ends when the trace does.
func (tr *Trace) write(ctx context.Context) {
	defer close(tr.stopped)
	timer := time.NewTimer(tr.cfg.FlushInterval)
	timer.Stop()
	defer timer.Stop()
	for {
		var err error
		select {
		case <-tr.stop:
			return
		case <-tr.waiting:
		case f := <-tr.flushes:
			f.done <- tr.writeBatch(ctx)
		case <-tr.full:
			err = tr.writeBatch(ctx)
		case <-timer.C:
			err = tr.writeBatch(ctx)
		}
		if err != nil {
			tr.cfg.Logger.WarnContext(ctx, "spans were not stored; trying again",
				"rollout_id", tr.rolloutID, "attempt_id", tr.attemptID, "err", err)
		}
		if tr.pending() { // of this write, or ended during it
			timer.Reset(tr.cfg.FlushInterval)
		} else {
			timer.Stop()
		}
	}
}

func (tr *Trace) pending() bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.written < len(tr.recorded)
}

// writeBatch writes everything that waits. Only the writer calls it.
func (tr *Trace) writeBatch(ctx context.Context) error {
	tr.mu.Lock()
	from, numbered, to := tr.written, tr.numbered, len(tr.recorded)
	tr.mu.Unlock()
	if from == to {
		return nil
	}
	if tr.cfg.Sink == nil {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		for i := from; i < to; i++ {
			tr.recorded[i].SequenceID = int64(i + 1)
		}
		tr.written, tr.numbered = to, to
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, tr.cfg.WriteTimeout)
	defer cancel()
	if numbered < to {
		wanted := slices.Repeat([]store.Attempted{{RolloutID: tr.rolloutID, AttemptID: tr.attemptID}}, to-numbered)
		ids, err := tr.cfg.Sink.NextSequenceIDs(ctx, wanted)
		if err != nil {
			return fmt.Errorf("sequence ids of attempt %s: %w", tr.attemptID, err)
		}
		if len(ids) != len(wanted) {
			return fmt.Errorf("sequence ids of attempt %s: got %d, asked for %d", tr.attemptID, len(ids), len(wanted))
		}
		tr.mu.Lock()
		for i, id := range ids {
			tr.recorded[numbered+i].SequenceID = id
		}
		tr.numbered = to
		tr.mu.Unlock()
	}
	tr.mu.Lock()
	batch := slices.Clone(tr.recorded[from:to])
	tr.mu.Unlock()
	added, err := tr.cfg.Sink.AddSpans(ctx, batch)
	if err != nil {
		return fmt.Errorf("spans of attempt %s: %w", tr.attemptID, err)
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.written = to
	for i := range added {
		if added[i].Err != nil {
			tr.refused = append(tr.refused, fmt.Errorf("span %q: %w", batch[i].Name, added[i].Err))
		}
	}
	return nil
}

// processor receives the spans of the SDK for a trace.
type processor Trace

func (p *processor) OnStart(context.Context, sdktrace.ReadWriteSpan) { (*Trace)(p).started() }
func (p *processor) OnEnd(s sdktrace.ReadOnlySpan)                   { (*Trace)(p).record(s) }
func (p *processor) Shutdown(context.Context) error                  { return nil }
func (p *processor) ForceFlush(context.Context) error                { return nil }

func (tr *Trace) started() {
	tr.mu.Lock()
	tr.open++
	tr.mu.Unlock()
}

func (tr *Trace) record(s sdktrace.ReadOnlySpan) {
	span := convert(s, tr.rolloutID, tr.attemptID, tr.root.context.SpanID())
	tr.mu.Lock()
	tr.open--
	late := tr.ended
	if !late {
		tr.recorded = append(tr.recorded, span)
	}
	n := len(tr.recorded) - tr.written
	tr.mu.Unlock()
	switch {
	case late:
		tr.cfg.Logger.Warn("span ended after its trace and is lost", "rollout_id", tr.rolloutID,
			"attempt_id", tr.attemptID, "span_id", span.SpanID, "name", span.Name)
	case n >= tr.cfg.BatchSize:
		signal(tr.full)
	case n == 1:
		signal(tr.waiting)
	}
}

// signal leaves a token unless one is there already.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
