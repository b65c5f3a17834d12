// Package tracer records what happens during attempts, on the OpenTelemetry SDK.
//
// A [Tracer] opens one [Trace] an attempt. The trace travels in the context:
// everything inside that makes OpenTelemetry spans through the context (otelhttp,
// instrumented clients, package emit) is recorded as spans of that attempt and
// written to a [Sink], which every store is. There is no global state, so
// attempts that run side by side in one process never mix.
//
//	t := tracer.New(tracer.Config{Sink: store})
//	ctx, trace := t.Start(ctx, rolloutID, attemptID)
//	ctx, span := tracer.OTel(ctx).Start(ctx, "search")
//	…
//	span.End()
//	spans, err := trace.End(ctx) // everything is stored, or err says what is not
//
// Spans are written in batches: when enough are waiting, when one has waited for
// a while, on [Trace.Flush], and at the end. A failed write is tried again with
// the next one; what could not be stored is an error of [Trace.End], never
// silence.
//
// Like the OpenTelemetry tracer of the Python implementation the trace has no
// span of its own: a span made directly under it has no parent.
package tracer
