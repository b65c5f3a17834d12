package otlpgrpc_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rpc "connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
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
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

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
	_, address := start(t, w, in, c)
	return address
}

// start starts a receiver over w, which ends with the test at the latest.
func start(t *testing.T, w otlp.SpanWriter, in otlp.Config, c otlpgrpc.Config) (*otlpgrpc.Server, string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := otlpgrpc.NewServer(otlp.NewReceiver(w, in), c)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("Serve = %v", err)
		}
	})
	return server, listener.Addr().String()
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
		Done: func(code rpc.Code, _ time.Duration) { calls.Add(1); last.Store(int32(code)) },
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

func TestOtherSignalsAreNotServed(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	conn := connect(t, serve(t, s, otlp.Config{}, otlpgrpc.Config{}))
	_, logs := plogotlp.NewGRPCClient(conn).Export(t.Context(), plogotlp.NewExportRequest())
	_, metrics := pmetricotlp.NewGRPCClient(conn).Export(t.Context(), pmetricotlp.NewExportRequest())
	for name, err := range map[string]error{"logs": logs, "metrics": metrics} {
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: %v, want %v", name, err, codes.Unimplemented)
		}
	}
}

// asIs is a codec of messages that are encoded already.
type asIs struct{}

func (asIs) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (asIs) Unmarshal(mem.BufferSlice, any) error { return nil }
func (asIs) Name() string                         { return "proto" }

// TestShortIDs exports a span whose ids are short: they are filled up as over HTTP.
func TestShortIDs(t *testing.T) {
	t.Parallel()
	s, r := newStore(t)
	server := httptest.NewServer(otlp.NewHandler(s, otlp.Config{}))
	t.Cleanup(server.Close)
	field := func(num protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), value)
	}
	id := func(key, value string) []byte { // an attribute of the resource
		return field(1, append(field(1, []byte(key)), field(2, field(1, []byte(value)))...))
	}
	export := func(span string) []byte {
		res := append(id(semconv.RolloutID, r.RolloutID), id(semconv.AttemptID, r.Attempt.AttemptID)...)
		one := slices.Concat(field(1, []byte{1, 2}), field(2, []byte{3}), field(4, []byte{4}), field(5, []byte(span)))
		return field(1, append(field(1, res), field(2, field(2, one))...))
	}
	resp, err := http.Post(server.URL+otlp.TracesPath, "application/x-protobuf", bytes.NewReader(export("by HTTP")))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	byHTTP := spansOf(t, s, r)
	if len(byHTTP) != 1 {
		t.Fatalf("over HTTP: %s, %d spans", resp.Status, len(byHTTP))
	}
	s, r = newStore(t)
	conn := connect(t, serve(t, s, otlp.Config{}, otlpgrpc.Config{}))
	if err := conn.Invoke(t.Context(), otlpgrpc.Method, export("by gRPC"), new([]byte), grpc.ForceCodecV2(asIs{})); err != nil {
		t.Fatal(err)
	}
	got, want := spansOf(t, s, r), byHTTP[0]
	if len(got) != 1 || got[0].TraceID != strings.Repeat("0", 28)+"0102" || got[0].TraceID != want.TraceID ||
		got[0].SpanID != want.SpanID || *got[0].ParentID != *want.ParentID {
		t.Errorf("over gRPC are stored %+v, over HTTP %+v", got, want)
	}
	// What is no protobuf is refused, and nothing breaks.
	err = conn.Invoke(t.Context(), otlpgrpc.Method, []byte("\xff\xff"), new([]byte), grpc.ForceCodecV2(asIs{}))
	if err == nil || status.Code(err) == codes.OK {
		t.Errorf("garbage: %v, want an error", err)
	}
}

// TestExportersSendMuch has the exporters of the SDK send ten thousand spans in
// one message, and messages of more than four MiB.
func TestExportersSendMuch(t *testing.T) {
	t.Parallel()
	for _, over := range []string{"HTTP", "gRPC"} {
		t.Run(over, func(t *testing.T) {
			t.Parallel()
			s, r := newStore(t)
			var exports atomic.Int32
			var exporter sdktrace.SpanExporter
			var err error
			if over == "gRPC" {
				exporter, err = otlptracegrpc.New(t.Context(), otlptracegrpc.WithInsecure(), otlptracegrpc.WithEndpoint(
					serve(t, s, otlp.Config{}, otlpgrpc.Config{Done: func(rpc.Code, time.Duration) { exports.Add(1) }})))
			} else {
				handler := otlp.NewHandler(s, otlp.Config{})
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					exports.Add(1)
					handler.ServeHTTP(w, req)
				}))
				t.Cleanup(server.Close)
				exporter, err = otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(server.URL+otlp.TracesPath))
			}
			if err != nil {
				t.Fatal(err)
			}
			const many, large = 10_000, 80
			provider := sdktrace.NewTracerProvider(
				sdktrace.WithBatcher(exporter, sdktrace.WithMaxQueueSize(2*many), sdktrace.WithMaxExportBatchSize(many), sdktrace.WithBatchTimeout(time.Hour)),
				sdktrace.WithResource(resource.NewSchemaless(attribute.String(semconv.RolloutID, r.RolloutID), attribute.String(semconv.AttemptID, r.Attempt.AttemptID))))
			tracer := provider.Tracer("test")
			for i := range many {
				_, span := tracer.Start(t.Context(), "small")
				span.SetAttributes(attribute.Int("n", i))
				span.End()
			}
			if err := provider.ForceFlush(t.Context()); err != nil {
				t.Fatal(err)
			}
			text := strings.Repeat("x", 64<<10)
			for range large { // five MiB together
				_, span := tracer.Start(t.Context(), "large")
				span.SetAttributes(attribute.String("text", text))
				span.End()
			}
			if err := provider.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			spans := spansOf(t, s, r)
			if len(spans) != many+large || exports.Load() != 2 {
				t.Fatalf("%d spans are stored by %d exports, want %d by 2", len(spans), exports.Load(), many+large)
			}
			for i, span := range spans {
				if span.SequenceID != int64(i)+1 {
					t.Fatalf("span %d has the sequence id %d", i, span.SequenceID)
				}
				if n, _ := span.Attributes.Get("n"); i < many && n != int64(i) {
					t.Fatalf("span %d is number %v", i, n)
				}
				if got, _ := span.Attributes.Get("text"); i >= many && got != text {
					t.Fatalf("the text of span %d is not what was sent", i)
				}
			}
		})
	}
}
