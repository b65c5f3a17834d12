package tracer

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	agl "agentlightning"
	"agentlightning/semconv"
	"agentlightning/store"
)

// Sink is where spans go. Every store is one.
type Sink interface {
	NextSequenceIDs(ctx context.Context, attempts []store.Attempted) ([]int64, error)
	AddSpans(ctx context.Context, spans []agl.Span) ([]store.AddedSpan, error)
}

// The ids of spans that belong to no attempt.
const (
	LocalRollout = "rollout-dummy"
	LocalAttempt = "attempt-dummy"
)

// Config configures a [Tracer].
type Config struct {
	// Sink is where spans are written. With nil they are only kept, and
	// returned by [Trace.End].
	Sink Sink
	// ServiceName is the service.name of the spans' resource; empty leaves it out.
	ServiceName string
	// BatchSize is how many spans wait before they are written at once. Default 128.
	BatchSize int
	// FlushInterval is how long a span waits at the most. It also bounds how
	// late the store learns that an attempt is alive. Default 1 s.
	FlushInterval time.Duration
	// WriteTimeout limits one write. Default 30 s.
	WriteTimeout time.Duration
	// GiveUp is how long [Trace.End] tries to store what is left while the sink
	// cannot be reached. Default 2 min.
	GiveUp time.Duration
	// Processors see every span as well, for instance to export it elsewhere.
	// The caller shuts them down.
	Processors []sdktrace.SpanProcessor
	// Logger gets warnings about writes that are tried again; nil discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.BatchSize = cmp.Or(c.BatchSize, 128)
	c.FlushInterval = cmp.Or(c.FlushInterval, time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 30*time.Second)
	c.GiveUp = cmp.Or(c.GiveUp, 2*time.Minute)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Tracer opens traces. It is safe for concurrent use.
type Tracer struct{ cfg Config }

// New returns a tracer.
func New(cfg Config) *Tracer { return &Tracer{cfg.withDefaults()} }

// Start opens the trace of an attempt and returns a context that carries it.
// With both ids empty the trace belongs to no attempt and nothing is written.
// The caller ends the trace with [Trace.End].
func (t *Tracer) Start(ctx context.Context, rolloutID, attemptID string) (context.Context, *Trace) {
	tr := &Trace{
		cfg:       t.cfg,
		rolloutID: cmp.Or(rolloutID, LocalRollout),
		attemptID: cmp.Or(attemptID, LocalAttempt),
		waiting:   make(chan struct{}, 1),
		full:      make(chan struct{}, 1),
		flushes:   make(chan flush),
		stop:      make(chan struct{}),
		stopped:   make(chan struct{}),
	}
	if rolloutID == "" && attemptID == "" {
		tr.cfg.Sink = nil
	}
	tr.provider = tr.newProvider()
	tr.root = rootSpan{provider: tr.provider, context: trace.NewSpanContext(trace.SpanContextConfig{
		TraceID:    traceID(agl.NewTraceID()),
		SpanID:     spanID(agl.NewSpanID()),
		TraceFlags: trace.FlagsSampled,
	})}
	go tr.write(context.WithoutCancel(ctx))
	ctx = context.WithValue(ctx, traceKey{}, tr)
	return trace.ContextWithSpan(ctx, tr.root), tr
}

// newProvider makes a provider for one attempt, so that a span belongs to the
// attempt whose context it was started from, however late it ends.
func (tr *Trace) newProvider() *sdktrace.TracerProvider {
	attributes := []attribute.KeyValue{
		attribute.String("telemetry.sdk.language", "go"),
		attribute.String("telemetry.sdk.name", "opentelemetry"),
		attribute.String("telemetry.sdk.version", sdk.Version()),
		attribute.String(semconv.RolloutID, tr.rolloutID),
		attribute.String(semconv.AttemptID, tr.attemptID),
	}
	if tr.cfg.ServiceName != "" {
		attributes = append(attributes, attribute.String("service.name", tr.cfg.ServiceName))
	}
	// The SDK's own limits would drop attributes of large spans without a word.
	unlimited := sdktrace.SpanLimits{
		AttributeValueLengthLimit: -1, AttributeValueDepthLimit: -1, AttributeCountLimit: -1, EventCountLimit: -1,
		LinkCountLimit: -1, AttributePerEventCountLimit: -1, AttributePerLinkCountLimit: -1,
	}
	options := []sdktrace.TracerProviderOption{
		sdktrace.WithResource(resource.NewSchemaless(attributes...)),
		sdktrace.WithSampler(sdktrace.AlwaysSample()),
		sdktrace.WithRawSpanLimits(unlimited),
		sdktrace.WithSpanProcessor((*processor)(tr)),
	}
	for _, p := range tr.cfg.Processors {
		options = append(options, sdktrace.WithSpanProcessor(p))
	}
	return sdktrace.NewTracerProvider(options...)
}

// rootSpan stands at the top of a trace without being recorded. It gives the
// spans of an attempt one trace id, and leads instrumentation that takes its
// provider from the span in the context to the right one.
type rootSpan struct {
	noop.Span
	provider trace.TracerProvider
	context  trace.SpanContext
}

func (s rootSpan) SpanContext() trace.SpanContext       { return s.context }
func (s rootSpan) TracerProvider() trace.TracerProvider { return s.provider }
func (s rootSpan) IsRecording() bool                    { return false }

// traceID reads an id that we made ourselves, so that it cannot be wrong.
func traceID(hex string) trace.TraceID {
	id, _ := trace.TraceIDFromHex(hex)
	return id
}

// spanID does the same for the id of a span.
func spanID(hex string) trace.SpanID {
	id, _ := trace.SpanIDFromHex(hex)
	return id
}
