package tracer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	agl "agentlightning"
	"agentlightning/semconv"
	"agentlightning/store"
	"agentlightning/tracer"
)

// sink is a store that can be away.
type sink struct {
	mu     sync.Mutex
	next   int64
	spans  []agl.Span
	writes int
	down   error            // of every call
	refuse map[string]error // by name of the span
}

func (s *sink) NextSequenceIDs(_ context.Context, attempts []store.Attempted) ([]int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil {
		return nil, s.down
	}
	out := make([]int64, len(attempts))
	for i := range out {
		s.next++
		out[i] = s.next
	}
	return out, nil
}

func (s *sink) AddSpans(_ context.Context, spans []agl.Span) ([]store.AddedSpan, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil {
		return nil, s.down
	}
	s.writes++
	out := make([]store.AddedSpan, len(spans))
	for i := range spans {
		out[i].Err = s.refuse[spans[i].Name]
		if out[i].Stored = out[i].Err == nil; out[i].Stored {
			s.spans = append(s.spans, spans[i])
		}
	}
	return out, nil
}

func (s *sink) setDown(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = err
}

func (s *sink) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for i := range s.spans {
		out = append(out, s.spans[i].Name)
	}
	return out
}

func point(ctx context.Context, name string) {
	_, span := tracer.OTel(ctx).Start(ctx, name)
	span.End()
}

func TestSpansOfAnAttempt(t *testing.T) {
	t.Parallel()
	s := &sink{}
	tr := tracer.New(tracer.Config{Sink: s, ServiceName: "test"})
	ctx, attempt := tr.Start(t.Context(), "ro-1", "at-1")
	outerCtx, outer := tracer.OTel(ctx).Start(ctx, "outer", trace.WithAttributes(
		attribute.String("s", "x"), attribute.Int("i", 1), attribute.Float64("f", 1), attribute.Bool("b", true),
		attribute.IntSlice("is", []int{1, 2}), attribute.StringSlice("ss", []string{"a"}),
		attribute.Float64Slice("fs", []float64{0.5}), attribute.BoolSlice("bs", []bool{true})))
	_, inner := tracer.OTel(outerCtx).Start(outerCtx, "inner", trace.WithLinks(trace.LinkFromContext(outerCtx, attribute.String("why", "test"))))
	inner.RecordError(errors.New("bad"))
	inner.SetStatus(codes.Error, "bad")
	inner.End()
	outer.SetStatus(codes.Ok, "")
	outer.End()
	spans, err := attempt.End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(spans, s.spans); diff != "" {
		t.Errorf("End() differs from what was stored:\n%s", diff)
	}
	if len(spans) != 2 || spans[0].Name != "inner" || spans[1].Name != "outer" {
		t.Fatalf("spans = %v, want inner and outer, as they ended", s.names())
	}
	in, out := spans[0], spans[1]
	if in.SequenceID != 1 || out.SequenceID != 2 {
		t.Errorf("sequence ids %d, %d, want 1, 2", in.SequenceID, out.SequenceID)
	}
	if out.ParentID != nil || out.Parent != nil {
		t.Errorf("outer has parent %v, want none", *out.ParentID)
	}
	if in.ParentID == nil || *in.ParentID != out.SpanID || in.TraceID != out.TraceID || in.Parent.SpanID != out.SpanID {
		t.Errorf("inner is not the child of outer: %+v", in)
	}
	want := agl.Attributes{
		{Key: "s", Value: "x"},
		{Key: "i", Value: int64(1)},
		{Key: "f", Value: 1.0},
		{Key: "b", Value: true},
		{Key: "is", Value: []int64{1, 2}},
		{Key: "ss", Value: []string{"a"}},
		{Key: "fs", Value: []float64{0.5}},
		{Key: "bs", Value: []bool{true}},
	}
	if diff := cmp.Diff(want, out.Attributes); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	if in.Status.StatusCode != agl.StatusError || *in.Status.Description != "bad" || out.Status.StatusCode != agl.StatusOK {
		t.Errorf("statuses %+v, %+v", in.Status, out.Status)
	}
	if len(in.Events) != 1 || in.Events[0].Name != "exception" || len(in.Links) != 1 || in.Links[0].Context.SpanID != out.SpanID {
		t.Errorf("events %+v, links %+v", in.Events, in.Links)
	}
	for key, want := range map[string]string{semconv.RolloutID: "ro-1", semconv.AttemptID: "at-1", "service.name": "test"} {
		if got, _ := out.Resource.Attributes.String(key); got != want {
			t.Errorf("resource %s = %q, want %q", key, got, want)
		}
	}
	if *out.StartTime > *in.StartTime || *out.EndTime < *in.EndTime {
		t.Errorf("times of inner are not within those of outer")
	}
}

func TestAttemptsDoNotMix(t *testing.T) {
	t.Parallel()
	s := &sink{}
	tr := tracer.New(tracer.Config{Sink: s})
	var attempts sync.WaitGroup
	for i := range 8 {
		attempts.Go(func() {
			ctx, attempt := tr.Start(t.Context(), fmt.Sprintf("ro-%d", i), "at")
			for range 50 {
				point(ctx, fmt.Sprintf("span of %d", i))
			}
			spans, err := attempt.End(t.Context())
			if err != nil || len(spans) != 50 {
				t.Errorf("End() = %d spans, %v, want 50", len(spans), err)
			}
		})
	}
	attempts.Wait()
	for _, span := range s.spans {
		if want := "span of " + strings.TrimPrefix(span.RolloutID, "ro-"); span.Name != want {
			t.Errorf("%s has %q", span.RolloutID, span.Name)
		}
	}
}

// Instrumentation takes its provider from the span in the context, or was given
// one before there was an attempt.
func TestInstrumentationFindsTheAttempt(t *testing.T) {
	t.Parallel()
	s := &sink{}
	before := tracer.Provider().Tracer("instrumentation")
	ctx, attempt := tracer.New(tracer.Config{Sink: s}).Start(t.Context(), "ro-1", "at-1")
	_, span := trace.SpanFromContext(ctx).TracerProvider().Tracer("http").Start(ctx, "GET")
	span.End()
	_, span = before.Start(ctx, "given before")
	span.End()
	_, span = before.Start(t.Context(), "outside")
	span.End()
	if span.IsRecording() || span.SpanContext().IsValid() {
		t.Error("a span outside of any attempt is recorded")
	}
	if _, err := attempt.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.names(); !slices.Equal(got, []string{"GET", "given before"}) {
		t.Errorf("stored %q", got)
	}
}

func TestBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &sink{}
		ctx, attempt := tracer.New(tracer.Config{Sink: s, BatchSize: 4, FlushInterval: time.Second}).Start(t.Context(), "ro", "at")
		point(ctx, "1")
		synctest.Wait()
		if got := s.names(); len(got) != 0 {
			t.Errorf("stored %q at once, want nothing yet", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := s.names(); !slices.Equal(got, []string{"1"}) {
			t.Errorf("stored %q after a second, want the span that waited", got)
		}
		for range 4 {
			point(ctx, "more")
		}
		synctest.Wait()
		if got := s.names(); len(got) != 5 {
			t.Errorf("stored %q, want a full batch at once", got)
		}
		point(ctx, "flushed")
		if err := attempt.Flush(ctx); err != nil || len(s.names()) != 6 {
			t.Errorf("Flush() = %v, stored %q", err, s.names())
		}
		point(ctx, "last")
		if _, err := attempt.End(ctx); err != nil || len(s.names()) != 7 || s.writes != 4 {
			t.Errorf("End() = %v, stored %q in %d writes", err, s.names(), s.writes)
		}
		if err := attempt.Flush(ctx); !errors.Is(err, tracer.ErrEnded) {
			t.Errorf("Flush() after the end = %v, want ErrEnded", err)
		}
	})
}

func TestSinkThatIsAwayForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("connection refused")
		s := &sink{down: away}
		ctx, attempt := tracer.New(tracer.Config{Sink: s}).Start(t.Context(), "ro", "at")
		point(ctx, "1")
		time.Sleep(5 * time.Second)
		point(ctx, "2")
		if err := attempt.Flush(ctx); !errors.Is(err, away) {
			t.Errorf("Flush() = %v, want %v", err, away)
		}
		time.AfterFunc(30*time.Second, func() { s.setDown(nil) })
		spans, err := attempt.End(ctx)
		if err != nil || !slices.Equal(s.names(), []string{"1", "2"}) {
			t.Errorf("End() = %v, stored %q", err, s.names())
		}
		if spans[0].SequenceID != 1 || spans[1].SequenceID != 2 {
			t.Errorf("sequence ids %d, %d", spans[0].SequenceID, spans[1].SequenceID)
		}
	})
}

func TestWhatIsNotStoredIsAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("connection refused")
		s := &sink{down: away}
		tr := tracer.New(tracer.Config{Sink: s, GiveUp: time.Minute})
		ctx, attempt := tr.Start(t.Context(), "ro", "at")
		point(ctx, "1")
		began := time.Now()
		_, err := attempt.End(ctx)
		if !errors.Is(err, away) || !strings.Contains(err.Error(), "1 of 1 spans were not stored: gave up after 1m0s") {
			t.Errorf("End() = %v", err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("End() took %v, want the minute of GiveUp", took)
		}

		s = &sink{refuse: map[string]error{"odd": store.ErrNotFound}}
		ctx, attempt = tracer.New(tracer.Config{Sink: s}).Start(t.Context(), "ro", "at")
		point(ctx, "even")
		point(ctx, "odd")
		if _, err := attempt.End(ctx); !errors.Is(err, store.ErrNotFound) || !strings.Contains(err.Error(), `"odd"`) {
			t.Errorf("End() = %v, want the span that was refused", err)
		}

		s = &sink{down: store.ErrClosed}
		ctx, attempt = tracer.New(tracer.Config{Sink: s}).Start(t.Context(), "ro", "at")
		point(ctx, "1")
		began = time.Now()
		if _, err := attempt.End(ctx); !errors.Is(err, store.ErrClosed) || time.Since(began) != 0 {
			t.Errorf("End() = %v after %v, want ErrClosed at once", err, time.Since(began))
		}
	})
}

func TestEndStopsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, attempt := tracer.New(tracer.Config{Sink: &sink{down: errors.New("away")}}).Start(t.Context(), "ro", "at")
		point(ctx, "1")
		limited, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		began := time.Now()
		if _, err := attempt.End(limited); err == nil || time.Since(began) != 3*time.Second {
			t.Errorf("End() = %v after %v", err, time.Since(began))
		}
	})
}

func TestLocalTrace(t *testing.T) {
	t.Parallel()
	s := &sink{}
	ctx, attempt := tracer.New(tracer.Config{Sink: s}).Start(t.Context(), "", "")
	point(ctx, "1")
	spans, err := attempt.End(ctx)
	if err != nil || len(spans) != 1 || spans[0].RolloutID != tracer.LocalRollout || spans[0].AttemptID != tracer.LocalAttempt {
		t.Errorf("End() = %+v, %v", spans, err)
	}
	if len(s.names()) != 0 {
		t.Errorf("stored %q of no attempt", s.names())
	}
	if tracer.FromContext(t.Context()) != nil || tracer.FromContext(ctx) != attempt {
		t.Error("FromContext() does not return the trace of the context")
	}
}

func TestTimesAreTheNearestFloats(t *testing.T) {
	t.Parallel()
	ctx, attempt := tracer.New(tracer.Config{}).Start(t.Context(), "", "")
	at := time.Unix(0, 1700000000123456789)
	_, span := tracer.OTel(ctx).Start(ctx, "x", trace.WithTimestamp(at))
	span.End(trace.WithTimestamp(time.Unix(0, 1000000000001)))
	spans, err := attempt.End(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if got := *spans[0].StartTime; got != 1700000000.1234567 {
		t.Errorf("start = %v", got)
	}
	if got := *spans[0].EndTime; got != 1000.000000001 {
		t.Errorf("end = %v", got)
	}
}

func TestLargeSpanIsKeptWhole(t *testing.T) {
	t.Parallel()
	ctx, attempt := tracer.New(tracer.Config{}).Start(t.Context(), "", "")
	var attributes []attribute.KeyValue
	for i := range 1000 {
		attributes = append(attributes, attribute.Int(fmt.Sprintf("a.%d", i), i))
	}
	_, span := tracer.OTel(ctx).Start(ctx, "large", trace.WithAttributes(attributes...))
	span.End()
	spans, err := attempt.End(ctx)
	if err != nil || len(spans[0].Attributes) != 1000 {
		t.Errorf("%d attributes, %v, want 1000", len(spans[0].Attributes), err)
	}
}
