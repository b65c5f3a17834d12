package emit

import (
	"context"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"agentlightning/semconv"
	"agentlightning/tracer"
)

// Operation is a span around a piece of work. Its methods are safe for
// concurrent use and do nothing after the end.
type Operation struct {
	span trace.Span

	mu    sync.Mutex
	ended bool
}

// Start begins an operation; an empty name is left out. What is emitted or
// called with the returned context becomes its child. The caller ends it with
// [Operation.End].
func Start(ctx context.Context, name string, options ...Option) (context.Context, *Operation, error) {
	tr := tracer.FromContext(ctx)
	if tr == nil {
		return ctx, nil, fmt.Errorf("%s: %w", semconv.SpanOperation, ErrNoTrace)
	}
	extra, err := extrasOf(options)
	if err != nil {
		return ctx, nil, fmt.Errorf("operation %q: %w", name, err)
	}
	for _, m := range extra.members {
		if name != "" && m.key == semconv.OperationName {
			return ctx, nil, fmt.Errorf("operation %q: the name is also given as attribute %s", name, m.key)
		}
	}
	if name != "" {
		extra.set(semconv.OperationName, name)
	}
	flat, err := attributes(extra, false)
	if err != nil {
		return ctx, nil, fmt.Errorf("operation %q: %w", name, err)
	}
	// Operation.End ends the span.
	ctx, span := tracer.OTel(ctx).Start(ctx, semconv.SpanOperation, //nolint:spancheck // see above
		trace.WithAttributes(tracer.KeyValues(flat)...))
	return ctx, &Operation{span: span}, nil //nolint:spancheck // see above
}

// Input records a named input.
func (o *Operation) Input(name string, value any) error {
	return o.record(semconv.OperationInput+"."+name, value)
}

// Args records inputs by position.
func (o *Operation) Args(values ...any) error {
	for i, v := range values {
		if err := o.record(fmt.Sprintf("%s.args.%d", semconv.OperationInput, i), v); err != nil {
			return err
		}
	}
	return nil
}

// Output records the result.
func (o *Operation) Output(value any) error { return o.record(semconv.OperationOutput, value) }

func (o *Operation) record(key string, value any) error {
	v, err := valueOf(value)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	flat, err := attributes(object{members: []member{{key, v}}}, false)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return fmt.Errorf("%s: the operation has ended", key)
	}
	o.span.SetAttributes(tracer.KeyValues(flat)...)
	return nil
}

// End ends the operation; an error marks it as failed. Only the first call counts.
func (o *Operation) End(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return
	}
	o.ended = true
	if err != nil {
		o.span.RecordError(err, trace.WithStackTrace(true))
		o.span.SetStatus(codes.Error, typeOfError(err)+": "+err.Error())
	}
	o.span.End()
}

// Do runs f as an operation and records its result. Outside of a trace f runs
// all the same, unrecorded.
func Do[T any](ctx context.Context, name string, f func(ctx context.Context) (T, error), options ...Option) (T, error) {
	if tracer.FromContext(ctx) == nil {
		return f(ctx)
	}
	ctx, op, err := Start(ctx, name, options...)
	if err != nil {
		var none T
		return none, err
	}
	panicked := true
	defer func() {
		if panicked {
			op.End(fmt.Errorf("operation %q panicked", name))
		}
	}()
	out, err := f(ctx)
	panicked = false
	if err == nil {
		err = op.Output(out)
	}
	op.End(err)
	return out, err
}
