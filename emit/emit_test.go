package emit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	agl "agentlightning"
	"agentlightning/emit"
	"agentlightning/semconv"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/tracer"
)

func TestRewardMustBeFinite(t *testing.T) {
	t.Parallel()
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if _, err := emit.RewardCore(v); err == nil {
			t.Errorf("RewardCore(%v) is accepted", v)
		}
	}
	if _, err := emit.RewardsCore([]agl.RewardDimension{dim("a", 1), dim("a", 2)}); err == nil {
		t.Error("a dimension that is given twice is accepted")
	}
}

func TestBigIntegers(t *testing.T) {
	t.Parallel()
	c, err := emit.AnnotationCore(raw(`{"big":1180591620717411303424}`))
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := c.Attributes.Get("big"); v != json.Number("1180591620717411303424") {
		t.Errorf("big = %#v in the core, want the whole number", v)
	}
	ctx, trace := tracer.New(tracer.Config{}).Start(t.Context(), "", "")
	if err := emit.Annotation(ctx, raw(`{"big":1180591620717411303424}`)); err != nil {
		t.Fatal(err)
	}
	spans, err := trace.End(ctx)
	if v, _ := spans[0].Attributes.Get("big"); err != nil || v != "1180591620717411303424" {
		t.Errorf("big = %#v in the span, %v, want its digits", v, err)
	}
}

func TestOperationAfterItsEnd(t *testing.T) {
	t.Parallel()
	ctx, trace := tracer.New(tracer.Config{}).Start(t.Context(), "", "")
	_, op, err := emit.Start(ctx, "once")
	if err != nil {
		t.Fatal(err)
	}
	op.End(nil)
	op.End(errors.New("too late"))
	if err := op.Output(1); err == nil {
		t.Error("Output() after the end is accepted")
	}
	spans, err := trace.End(ctx)
	if err != nil || len(spans) != 1 || spans[0].Status.StatusCode != agl.StatusUnset {
		t.Errorf("spans = %+v, %v", spans, err)
	}
}

func TestPanicEndsTheOperation(t *testing.T) {
	t.Parallel()
	ctx, trace := tracer.New(tracer.Config{}).Start(t.Context(), "", "")
	func() {
		defer func() {
			if p := recover(); p != "broken" {
				t.Errorf("recovered %v, want the panic to go on", p)
			}
		}()
		_, _ = emit.Do(ctx, "risky", func(context.Context) (int, error) { panic("broken") })
	}()
	spans, err := trace.End(ctx)
	if err != nil || len(spans) != 1 || spans[0].Status.StatusCode != agl.StatusError {
		t.Errorf("spans = %+v, %v, want one that failed", spans, err)
	}
}

// A reward is stored when Reward returns, and everything emitted before it.
func TestRewardIsStoredInItsPlace(t *testing.T) {
	t.Parallel()
	s := engine.New(memory.New(), engine.Config{})
	defer s.Close()
	r, err := s.StartRollout(t.Context(), store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: raw(`{}`)}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, trace := tracer.New(tracer.Config{Sink: s}).Start(t.Context(), r.RolloutID, r.Attempt.AttemptID)
	if err := errors.Join(emit.Message(ctx, "first"), emit.Reward(ctx, 0.5)); err != nil {
		t.Fatal(err)
	}
	// Somebody else, the proxy for instance, takes the next number.
	ids, err := s.NextSequenceIDs(t.Context(), []store.Attempted{{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID}})
	if err != nil || ids[0] != 3 {
		t.Errorf("next sequence id %v, %v, want 3", ids, err)
	}
	page, err := s.QuerySpans(t.Context(), store.SpanQuery{RolloutID: r.RolloutID})
	if err != nil || page.Total != 2 {
		t.Errorf("%d spans are stored, %v, want 2", page.Total, err)
	}
	if _, err := trace.End(ctx); err != nil {
		t.Fatal(err)
	}
	if err := emit.Reward(ctx, 1); !errors.Is(err, tracer.ErrEnded) {
		t.Errorf("Reward() after the end = %v, want ErrEnded", err)
	}
}

func TestExceptionNamesTheTypeBehindWrappers(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("step 2: %w", fmt.Errorf("call: %w", customError{"m", 2}))
	c, buildErr := emit.ExceptionCore(err)
	if buildErr != nil {
		t.Fatal(buildErr)
	}
	if got, _ := c.Attributes.String(semconv.ExceptionType); got != "emit_test.customError" {
		t.Errorf("type = %q", got)
	}
	if got, _ := c.Attributes.String(semconv.ExceptionMessage); got != err.Error() {
		t.Errorf("message = %q", got)
	}
	if got, _ := c.Attributes.String(semconv.ExceptionStack); !strings.Contains(got, "emit_test.go") {
		t.Errorf("stack = %q", got)
	}
}

func BenchmarkMessage(b *testing.B) {
	ctx, trace := tracer.New(tracer.Config{}).Start(b.Context(), "", "")
	defer trace.End(ctx)
	attributes := map[string]any{"step": 1, "tags": []string{"a", "b"}}
	for b.Loop() {
		if err := emit.Message(ctx, "hello", emit.With(attributes)); err != nil {
			b.Fatal(err)
		}
	}
}
