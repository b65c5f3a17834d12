package tracer

import (
	"context"
	"sync"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Bridge returns a processor for a program that has an OpenTelemetry provider of
// its own. Spans of that provider whose start has a context with a [Trace] are
// recorded there as well; what the program does with them otherwise stays as it
// is. Give one bridge to one provider:
//
//	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(tracer.Bridge()))
//
// Spans that the provider's sampler drops never reach it.
func Bridge() sdktrace.SpanProcessor { return &bridge{} }

// bridge knows for each span that is open which trace it belongs to, since the
// context is at hand only when it starts.
type bridge struct {
	open sync.Map // of spanKey to *Trace
}

type spanKey struct {
	trace trace.TraceID
	span  trace.SpanID
}

func keyOf(sc trace.SpanContext) spanKey { return spanKey{sc.TraceID(), sc.SpanID()} }

func (b *bridge) OnStart(ctx context.Context, s sdktrace.ReadWriteSpan) {
	if tr := FromContext(ctx); tr != nil {
		b.open.Store(keyOf(s.SpanContext()), tr)
		tr.started()
	}
}

func (b *bridge) OnEnd(s sdktrace.ReadOnlySpan) {
	if tr, ok := b.open.LoadAndDelete(keyOf(s.SpanContext())); ok {
		tr.(*Trace).record(s) //nolint:forcetypeassert // OnStart stores nothing else
	}
}

func (*bridge) Shutdown(context.Context) error   { return nil }
func (*bridge) ForceFlush(context.Context) error { return nil }
