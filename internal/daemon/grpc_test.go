package daemon_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	agl "agentlightning"
	"agentlightning/internal/daemon"
	"agentlightning/otlp"
	"agentlightning/otlp/otlpgrpc"
	"agentlightning/semconv"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// startGRPC runs a server with both ports until the test ends.
func startGRPC(t *testing.T, c daemon.Config) (url, address string, st store.Store) {
	t.Helper()
	st = engine.New(memory.New(), engine.Config{})
	c.Store, c.OTLPGRPCPort = st, new(int)
	server, err := daemon.Listen(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		began := time.Now()
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the server stopped after %v", took)
		}
		if err := st.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	return server.URL(), server.OTLPGRPCAddress(), st
}

func TestOTLPOverGRPCAsksForTheToken(t *testing.T) {
	t.Parallel()
	url, address, st := startGRPC(t, daemon.Config{AuthToken: "secret"})
	s := site{url: url}
	for _, at := range []*store.Attempted{&s.one, &s.other} {
		r, err := st.StartRollout(t.Context(), store.StartRequest{})
		if err != nil {
			t.Fatal(err)
		}
		*at = store.Attempted{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID}
	}
	s.token = s.issue(t, "secret", s.one, "")

	// The official exporter, as an operator sets it up.
	exporter, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithInsecure(), otlptracegrpc.WithEndpoint(address),
		otlptracegrpc.WithHeaders(map[string]string{"authorization": "Bearer " + s.token}))
	if err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(resource.NewSchemaless(
		attribute.String(semconv.RolloutID, s.one.RolloutID), attribute.String(semconv.AttemptID, s.one.AttemptID))))
	_, one := provider.Tracer("test").Start(t.Context(), "think")
	one.End()
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Errorf("export with the token of the attempt: %v", err)
	}
	page, err := st.QuerySpans(t.Context(), store.SpanQuery{RolloutID: s.one.RolloutID})
	if err != nil || len(page.Items) != 1 || page.Items[0].Name != "think" {
		t.Errorf("stored are %+v, %v, want the span", page.Items, err)
	}

	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	both := []agl.Span{
		agl.SpanCore{Name: "own"}.Span(s.one.RolloutID, s.one.AttemptID, 1, 1),
		agl.SpanCore{Name: "other"}.Span(s.other.RolloutID, s.other.AttemptID, 1, 1),
	}
	for _, tt := range []struct {
		token    string
		code     codes.Code
		rejected int64
	}{{"secret", codes.OK, 0}, {s.token, codes.OK, 1}, {"wrong", codes.Unauthenticated, 0}, {"", codes.Unauthenticated, 0}} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", basic(tt.token))
		answer, err := ptraceotlp.NewGRPCClient(conn).Export(ctx, ptraceotlp.NewExportRequestFromTraces(otlp.ToTraces(both)))
		if status.Code(err) != tt.code || err == nil && answer.PartialSuccess().RejectedSpans() != tt.rejected {
			t.Errorf("token %q: %v, %d rejected, want %v and %d", tt.token, err, answer.PartialSuccess().RejectedSpans(), tt.code, tt.rejected)
		}
	}
	_, _, text := ask(t, "GET", url+"/metrics", "", "X-Api-Key", "secret")
	for code, want := range map[string]float64{"200": 3, "401": 2} {
		if got := metric(t, text, `agl_http_total{method="POST",path="`+otlpgrpc.Method+`",status="`+code+`"}`); got != want {
			t.Errorf("%v calls are counted as %s, want %v", got, code, want)
		}
	}
}

// heldStore holds writes of spans until the test lets them go or the call ends.
type heldStore struct {
	*engine.Store

	entered, release chan struct{}
}

func (s heldStore) AddSpans(ctx context.Context, spans []agl.Span) ([]store.AddedSpan, error) {
	close(s.entered)
	select {
	case <-s.release:
		return s.Store.AddSpans(ctx, spans)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestStopLetsExportsFinish stops a server during an export over gRPC while the
// port for HTTP has nothing to do.
func TestStopLetsExportsFinish(t *testing.T) {
	t.Parallel()
	st := heldStore{engine.New(memory.New(), engine.Config{}), make(chan struct{}), make(chan struct{})}
	server, err := daemon.Listen(t.Context(), daemon.Config{Store: st, OTLPGRPCPort: new(int)})
	if err != nil {
		t.Fatal(err)
	}
	r, err := st.StartRollout(t.Context(), store.StartRequest{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	conn, err := grpc.NewClient(server.OTLPGRPCAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	call := make(chan error, 1)
	go func() {
		spans := []agl.Span{agl.SpanCore{Name: "last"}.Span(r.RolloutID, r.Attempt.AttemptID, 1, 1)}
		_, err := ptraceotlp.NewGRPCClient(conn).Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(otlp.ToTraces(spans)))
		call <- err
	}()
	<-st.entered
	stop()
	select {
	case err := <-call:
		t.Errorf("the export ended before it was stored: %v", err)
		call <- err
	case <-time.After(300 * time.Millisecond): // longer than it takes to cut it off
	}
	close(st.release)
	if err := <-call; err != nil {
		t.Errorf("Export = %v", err)
	}
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
	page, err := st.QuerySpans(t.Context(), store.SpanQuery{RolloutID: r.RolloutID})
	if err != nil || len(page.Items) != 1 {
		t.Errorf("%d spans are stored, %v, want 1", len(page.Items), err)
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
}

func TestGRPCPortIsRefused(t *testing.T) {
	t.Parallel()
	_, address, _ := startGRPC(t, daemon.Config{})
	st := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() { _ = st.Close() })
	taken := 0
	for _, c := range address[strings.LastIndex(address, ":")+1:] {
		taken = 10*taken + int(c-'0')
	}
	for port, want := range map[int]string{taken: "pass another --otlp-grpc-port", 70000: "--otlp-grpc-port 70000", 4747: "not that of --port"} {
		c := daemon.Config{Store: st, OTLPGRPCPort: &port}
		if port == 4747 {
			c.Port = 4747
		}
		if _, err := daemon.Listen(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Listen with port %d = %v, want an error with %q", port, err, want)
		}
	}
}
