package otlpgrpc_test

import (
	"context"
	"errors"
	"net"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	agl "agentlightning"
	"agentlightning/otlp"
	"agentlightning/otlp/otlpgrpc"
	"agentlightning/semconv"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a receiver over w and returns its address.
func serve(t *testing.T, w otlp.SpanWriter, in otlp.Config, c otlpgrpc.Config) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := otlpgrpc.NewServer(otlp.NewReceiver(w, in), c)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Errorf("Serve = %v", err)
		}
	})
	return listener.Addr().String()
}

func newStore(t *testing.T) (*engine.Store, agl.AttemptedRollout) {
	t.Helper()
	s := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() { _ = s.Close() })
	r, err := s.StartRollout(t.Context(), store.StartRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return s, r
}

func connect(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// record makes two spans with an exporter.
func record(t *testing.T, exporter sdktrace.SpanExporter, r agl.AttemptedRollout) {
	t.Helper()
	res := resource.NewSchemaless(attribute.String(semconv.RolloutID, r.RolloutID), attribute.String(semconv.AttemptID, r.Attempt.AttemptID))
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
	ctx, outer := provider.Tracer("test").Start(t.Context(), "outer")
	_, inner := provider.Tracer("test").Start(ctx, "inner")
	inner.SetAttributes(attribute.Int("n", 3), attribute.StringSlice("list", []string{"a", "b"}))
	inner.AddEvent("event")
	inner.End()
	outer.End()
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func spansOf(t *testing.T, s store.Store, r agl.AttemptedRollout) []agl.Span {
	t.Helper()
	page, err := s.QuerySpans(t.Context(), store.SpanQuery{RolloutID: r.RolloutID, Paging: store.Paging{SortBy: "sequence_id"}})
	if err != nil {
		t.Fatal(err)
	}
	return page.Items
}

// TestOfficialExporter exports by gRPC, packed and not, and by HTTP: what is
// stored is the same.
func TestOfficialExporter(t *testing.T) {
	t.Parallel()
	type exported struct {
		Name       string
		Sequence   int64
		Attributes agl.Attributes
		Events     int
		Child      bool
	}
	look := func(spans []agl.Span) []exported {
		var out []exported
		for _, s := range spans {
			out = append(out, exported{s.Name, s.SequenceID, s.Attributes, len(s.Events), s.ParentID != nil})
		}
		return out
	}
	s, r := newStore(t)
	server := httptest.NewServer(otlp.NewHandler(s, otlp.Config{}))
	t.Cleanup(server.Close)
	overHTTP, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(server.URL+otlp.TracesPath))
	if err != nil {
		t.Fatal(err)
	}
	record(t, overHTTP, r)
	want := look(spansOf(t, s, r))
	if len(want) != 2 || want[0].Name != "inner" || !want[0].Child {
		t.Fatalf("over HTTP are stored %+v", want)
	}
	for _, compressor := range []string{"", "gzip"} {
		s, r := newStore(t)
		options := []otlptracegrpc.Option{otlptracegrpc.WithInsecure(), otlptracegrpc.WithEndpoint(serve(t, s, otlp.Config{}, otlpgrpc.Config{}))}
		if compressor != "" {
			options = append(options, otlptracegrpc.WithCompressor(compressor))
		}
		exporter, err := otlptracegrpc.New(t.Context(), options...)
		if err != nil {
			t.Fatal(err)
		}
		record(t, exporter, r)
		if diff := cmp.Diff(want, look(spansOf(t, s, r))); diff != "" {
			t.Errorf("with compressor %q (-HTTP +gRPC):\n%s", compressor, diff)
		}
	}
}

// traces are n spans of an attempt.
func traces(n int, at store.Attempted, text string) ptraceotlp.ExportRequest {
	spans := make([]agl.Span, n)
	for i := range spans {
		core := agl.SpanCore{Name: "step", Attributes: agl.Attributes{{Key: "text", Value: text}}}
		spans[i] = core.Span(at.RolloutID, at.AttemptID, int64(i+1), 1)
	}
	return ptraceotlp.NewExportRequestFromTraces(otlp.ToTraces(spans))
}

func TestLargeExports(t *testing.T) {
	t.Parallel()
	s, r := newStore(t)
	at := store.Attempted{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID}
	address := serve(t, s, otlp.Config{}, otlpgrpc.Config{MaxMessage: 16 << 20})
	client := ptraceotlp.NewGRPCClient(connect(t, address))
	for name, req := range map[string]ptraceotlp.ExportRequest{
		"10,000 spans": traces(10_000, at, "x"),
		"5 MiB":        traces(1, at, strings.Repeat("x", 5<<20)),
	} {
		answer, err := client.Export(t.Context(), req)
		if err != nil || answer.PartialSuccess().RejectedSpans() != 0 {
			t.Errorf("%s: %v, %s", name, err, answer.PartialSuccess().ErrorMessage())
		}
	}
	if n := len(spansOf(t, s, r)); n != 10_001 {
		t.Errorf("%d spans are stored, want 10001", n)
	}
	if _, err := client.Export(t.Context(), traces(1, at, strings.Repeat("x", 17<<20))); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("17 MiB: %v, want %v", err, codes.ResourceExhausted)
	}
}

func TestPartialSuccess(t *testing.T) {
	t.Parallel()
	s, r := newStore(t)
	address := serve(t, s, otlp.Config{}, otlpgrpc.Config{})
	client := ptraceotlp.NewGRPCClient(connect(t, address))
	all := ptrace.NewTraces()
	for _, at := range []store.Attempted{{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID}, {RolloutID: "ro-x", AttemptID: "at-x"}} {
		traces(2, at, "x").Traces().ResourceSpans().MoveAndAppendTo(all.ResourceSpans())
	}
	answer, err := client.Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(all))
	if p := answer.PartialSuccess(); err != nil || p.RejectedSpans() != 2 || !strings.Contains(p.ErrorMessage(), "ro-x") {
		t.Errorf("Export = %d rejected, %q, %v, want 2 and the rollout", p.RejectedSpans(), p.ErrorMessage(), err)
	}
	if n := len(spansOf(t, s, r)); n != 2 {
		t.Errorf("%d spans are stored, want 2", n)
	}
}

func TestAdmitAndDone(t *testing.T) {
	t.Parallel()
	s, r := newStore(t)
	var calls atomic.Int32
	var last atomic.Int32
	address := serve(t, s, otlp.Config{}, otlpgrpc.Config{
		Admit: func(ctx context.Context, authorization, apiKey string) (context.Context, error) {
			if authorization != "Bearer good" && apiKey != "good" {
				return nil, errors.New("who are you")
			}
			return ctx, nil
		},
		Done: func(code codes.Code, _ time.Duration) { calls.Add(1); last.Store(int32(code)) },
	})
	client := ptraceotlp.NewGRPCClient(connect(t, address))
	at := store.Attempted{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID}
	for i, tt := range []struct {
		name, value string
		want        codes.Code
	}{
		{"authorization", "Bearer good", codes.OK}, {"x-api-key", "good", codes.OK}, {"x-api-key", "bad", codes.Unauthenticated}, {"other", "good", codes.Unauthenticated},
	} {
		_, err := client.Export(metadata.AppendToOutgoingContext(t.Context(), tt.name, tt.value), traces(1, at, "x"))
		if status.Code(err) != tt.want || tt.want != codes.OK && !strings.Contains(err.Error(), "who are you") {
			t.Errorf("%s: %s = %v, want %v", tt.name, tt.value, err, tt.want)
		}
		if int(calls.Load()) != i+1 || codes.Code(last.Load()) != tt.want {
			t.Errorf("%s: %s: %d calls were told of, the last as %v, want %d and %v", tt.name, tt.value, calls.Load(), codes.Code(last.Load()), i+1, tt.want)
		}
	}
}

// broken fails every write.
type broken struct{ err error }

func (b broken) AddSpans(context.Context, []agl.Span) ([]store.AddedSpan, error) { return nil, b.err }

func (b broken) NextSequenceIDs(_ context.Context, a []store.Attempted) ([]int64, error) {
	return make([]int64, len(a)), nil
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for want, err := range map[codes.Code]error{
		codes.Unavailable: store.ErrClosed, codes.ResourceExhausted: store.ErrFull, codes.Internal: errors.New("table spans is gone"),
	} {
		client := ptraceotlp.NewGRPCClient(connect(t, serve(t, broken{err}, otlp.Config{}, otlpgrpc.Config{})))
		_, got := client.Export(t.Context(), traces(1, store.Attempted{RolloutID: "r", AttemptID: "a"}, "x"))
		if status.Code(got) != want || strings.Contains(got.Error(), "table") {
			t.Errorf("Export with %v = %v, want %v without the inside", err, got, want)
		}
	}
}

func TestLogsAreNotServed(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	client := plogotlp.NewGRPCClient(connect(t, serve(t, s, otlp.Config{}, otlpgrpc.Config{})))
	if _, err := client.Export(t.Context(), plogotlp.NewExportRequest()); status.Code(err) != codes.Unimplemented {
		t.Errorf("logs: %v, want %v", err, codes.Unimplemented)
	}
}
