package tracer

import (
	"context"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
	"go.opentelemetry.io/otel/trace/noop"
)

// Scope is the instrumentation scope of spans made through [OTel].
const Scope = "agentlightning"

type traceKey struct{}

// FromContext returns the trace that the context carries, nil when there is none.
func FromContext(ctx context.Context) *Trace {
	tr, _ := ctx.Value(traceKey{}).(*Trace)
	return tr
}

// OTel returns an OpenTelemetry tracer whose spans belong to the trace in the
// context, or one that records nothing.
func OTel(ctx context.Context) trace.Tracer {
	if tr := FromContext(ctx); tr != nil {
		return tr.provider.Tracer(Scope)
	}
	return noop.NewTracerProvider().Tracer(Scope)
}

// Provider returns a provider that records each span in the trace that the
// context of its start carries, and nothing outside of traces. It is for
// instrumentation that must be given a provider when it is set up, before any
// attempt exists.
func Provider() trace.TracerProvider { return contextProvider{} }

type contextProvider struct{ embedded.TracerProvider }

func (contextProvider) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	return contextTracer{name: name, options: options}
}

type contextTracer struct {
	embedded.Tracer
	name    string
	options []trace.TracerOption
}

func (t contextTracer) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	var provider trace.TracerProvider = noop.NewTracerProvider()
	if tr := FromContext(ctx); tr != nil {
		provider = tr.provider
	}
	return provider.Tracer(t.name, t.options...).Start(ctx, name, options...) //nolint:spancheck // the caller ends it
}
