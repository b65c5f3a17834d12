package otlp_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"agentlightning/otlp"
	"agentlightning/semconv"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// Any OpenTelemetry SDK can report what happens during an attempt.
func Example() {
	ctx := context.Background()
	s := engine.New(memory.New(), engine.Config{})
	defer s.Close()
	server := httptest.NewServer(otlp.NewHandler(s, otlp.Config{}))
	defer server.Close()
	r, _ := s.StartRollout(ctx, store.StartRequest{})

	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(server.URL+otlp.TracesPath))
	if err != nil {
		fmt.Println(err)
		return
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter), sdktrace.WithResource(resource.NewSchemaless(
		attribute.String(semconv.RolloutID, r.RolloutID),
		attribute.String(semconv.AttemptID, r.Attempt.AttemptID))))
	_, span := provider.Tracer("my-agent").Start(ctx, "plan")
	span.End()
	_ = provider.Shutdown(ctx)

	spans, _ := s.QuerySpans(ctx, store.SpanQuery{RolloutID: r.RolloutID})
	for _, span := range spans.Items {
		fmt.Println(span.SequenceID, span.Name, span.Status.StatusCode)
	}
	// Output: 1 plan UNSET
}
