package otlpgrpc_test

import (
	"context"
	"fmt"
	"net"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"agentlightning/otlp"
	"agentlightning/otlp/otlpgrpc"
	"agentlightning/semconv"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

func Example() {
	ctx := context.Background()
	s := engine.New(memory.New(), engine.Config{})
	defer func() { _ = s.Close() }()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	server := otlpgrpc.NewServer(otlp.NewReceiver(s, otlp.Config{}), otlpgrpc.Config{})
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()

	// Anywhere, in any language:
	rollout, err := s.StartRollout(ctx, store.StartRequest{})
	if err != nil {
		fmt.Println(err)
		return
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithInsecure(), otlptracegrpc.WithEndpoint(listener.Addr().String()))
	if err != nil {
		fmt.Println(err)
		return
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(resource.NewSchemaless(
		attribute.String(semconv.RolloutID, rollout.RolloutID), attribute.String(semconv.AttemptID, rollout.Attempt.AttemptID))))
	_, span := provider.Tracer("agent").Start(ctx, "think")
	span.End()
	if err := provider.Shutdown(ctx); err != nil {
		fmt.Println(err)
		return
	}

	spans, err := s.QuerySpans(ctx, store.SpanQuery{RolloutID: rollout.RolloutID})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(spans.Items[0].SequenceID, spans.Items[0].Name)
	// Output: 1 think
}
