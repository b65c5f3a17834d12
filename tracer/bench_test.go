package tracer_test

import (
	"testing"

	"agentlightning/tracer"
)

// BenchmarkAttempt is what the trace of an attempt with four spans costs.
func BenchmarkAttempt(b *testing.B) {
	t := tracer.New(tracer.Config{Sink: &sink{}})
	b.ReportAllocs()
	for b.Loop() {
		ctx, attempt := t.Start(b.Context(), "ro-1", "at-1")
		for range 4 {
			point(ctx, "span")
		}
		if _, err := attempt.End(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
