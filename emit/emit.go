package emit

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	agl "agentlightning"
	"agentlightning/tracer"
)

// ErrNoTrace is the error of emitting outside of an attempt.
var ErrNoTrace = errors.New("no trace in the context; pass on the context that the agent was given")

// Reward emits the reward of what was done so far. Value must be finite.
func Reward(ctx context.Context, value float64, options ...Option) error {
	c, err := RewardCore(value, options...)
	return emit(ctx, c, err, true)
}

// Rewards emits a reward with several dimensions. The first is the primary one,
// which training reads.
func Rewards(ctx context.Context, dimensions []agl.RewardDimension, options ...Option) error {
	c, err := RewardsCore(dimensions, options...)
	return emit(ctx, c, err, true)
}

// Annotation emits attributes: a map, a struct or [agl.Attributes]. Null is refused.
func Annotation(ctx context.Context, attributes any, options ...Option) error {
	c, err := AnnotationCore(attributes, options...)
	return emit(ctx, c, err, true)
}

// Message emits a text.
func Message(ctx context.Context, text string, options ...Option) error {
	c, err := MessageCore(text, options...)
	return emit(ctx, c, err, false)
}

// Object emits any value that can be written as JSON.
func Object(ctx context.Context, value any, options ...Option) error {
	c, err := ObjectCore(value, options...)
	return emit(ctx, c, err, false)
}

// Exception emits an error with its type and the stack of the caller.
func Exception(ctx context.Context, err error, options ...Option) error {
	c, err := ExceptionCore(err, options...)
	return emit(ctx, c, err, false)
}

// emit records a span without duration and, if asked, waits until it is stored.
func emit(ctx context.Context, c agl.SpanCore, err error, flush bool) error {
	if err != nil {
		return err
	}
	tr := tracer.FromContext(ctx)
	if tr == nil {
		return fmt.Errorf("%s: %w", c.Name, ErrNoTrace)
	}
	at := trace.WithTimestamp(agl.Time(*c.StartTime))
	_, span := tracer.OTel(ctx).Start(ctx, c.Name, at, trace.WithAttributes(tracer.KeyValues(c.Attributes)...))
	if c.Status.StatusCode == agl.StatusOK {
		span.SetStatus(codes.Ok, "")
	}
	span.End(at)
	if !flush {
		return nil
	}
	if err := tr.Flush(ctx); err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	return nil
}
