package otlp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	agl "agentlightning"
	"agentlightning/otlp"
	"agentlightning/semconv"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// setup starts a receiver over a fresh store with one attempt that runs.
func setup(tb testing.TB) (*engine.Store, *httptest.Server, agl.AttemptedRollout) {
	tb.Helper()
	s := engine.New(memory.New(), engine.Config{})
	server := httptest.NewServer(otlp.NewHandler(s, otlp.Config{}))
	tb.Cleanup(func() {
		server.Close()
		_ = s.Close()
	})
	r, err := s.StartRollout(tb.Context(), store.StartRequest{})
	if err != nil {
		tb.Fatal(err)
	}
	return s, server, r
}

func spansOf(tb testing.TB, s store.Store, rolloutID string) []agl.Span {
	tb.Helper()
	page, err := s.QuerySpans(tb.Context(), store.SpanQuery{RolloutID: rolloutID, Paging: store.Paging{SortBy: "sequence_id"}})
	if err != nil {
		tb.Fatal(err)
	}
	return page.Items
}

// TestExporter sends spans with the exporter of the OpenTelemetry SDK.
func TestExporter(t *testing.T) {
	t.Parallel()
	for _, compression := range []otlptracehttp.Compression{otlptracehttp.NoCompression, otlptracehttp.GzipCompression} {
		s, server, r := setup(t)
		exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(server.URL+otlp.TracesPath),
			otlptracehttp.WithCompression(compression))
		if err != nil {
			t.Fatal(err)
		}
		provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(
			resource.NewWithAttributes("https://schema", attribute.String(semconv.RolloutID, r.RolloutID),
				attribute.String(semconv.AttemptID, r.Attempt.AttemptID))))
		ctx, parent := provider.Tracer("x").Start(t.Context(), "parent")
		at := time.Unix(1700000000, 250000000)
		_, child := provider.Tracer("x").Start(ctx, "child", trace.WithTimestamp(at), trace.WithAttributes(
			attribute.Int("int", 1), attribute.Float64("float", 1), attribute.StringSlice("list", []string{"a", "b"})),
			trace.WithLinks(trace.LinkFromContext(ctx)))
		child.AddEvent("event", trace.WithTimestamp(at), trace.WithAttributes(attribute.Bool("b", true)))
		child.SetStatus(codes.Error, "why")
		child.End(trace.WithTimestamp(at.Add(time.Second)))
		parent.End()
		if err := provider.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		spans := spansOf(t, s, r.RolloutID)
		if len(spans) != 2 {
			t.Fatalf("%d spans were stored, want 2", len(spans))
		}
		got, outer := spans[0], parent.SpanContext()
		trace, span := child.SpanContext().TraceID().String(), child.SpanContext().SpanID().String()
		start, end := 1700000000.25, 1700000001.25
		want := agl.Span{
			RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, SequenceID: 1, TraceID: trace, SpanID: span,
			ParentID: new(outer.SpanID().String()), Name: "child",
			Status:     agl.TraceStatus{StatusCode: agl.StatusError, Description: new("why")},
			Attributes: agl.Attributes{{Key: "int", Value: int64(1)}, {Key: "float", Value: 1.0}, {Key: "list", Value: []string{"a", "b"}}},
			Events:     []agl.Event{{Name: "event", Attributes: agl.Attributes{{Key: "b", Value: true}}, Timestamp: &start}},
			Links:      []agl.Link{{Context: agl.SpanContext{TraceID: trace, SpanID: outer.SpanID().String()}}},
			StartTime:  &start, EndTime: &end, Context: &agl.SpanContext{TraceID: trace, SpanID: span}, Resource: got.Resource,
		}
		if diff := cmp.Diff(string(want.AppendJSON(nil)), string(got.AppendJSON(nil))); diff != "" {
			t.Errorf("span differs (-want +got):\n%s", diff)
		}
		if got.Resource.SchemaURL != "https://schema" {
			t.Errorf("schema = %q", got.Resource.SchemaURL)
		}
		latest, err := s.LatestAttempt(t.Context(), r.RolloutID)
		if err != nil || latest.Status != agl.AttemptRunning {
			t.Errorf("attempt = %+v, %v, want it running", latest, err)
		}
	}
}

// TestExporterHearsOfRejected checks that the SDK reports what was not stored.
func TestExporterHearsOfRejected(t *testing.T) {
	t.Parallel()
	s, server, r := setup(t)
	export := newExport()
	export.span("good", r.RolloutID, r.Attempt.AttemptID)
	export.span("stray", "", "")
	export.span("bad", "ro-unknown", "at-unknown")
	export.span("worse", r.RolloutID, "at-unknown")
	status, body := export.post(t, server, "application/x-protobuf")
	got := ptraceotlp.NewExportResponse()
	if err := got.UnmarshalProto([]byte(body)); err != nil || status != http.StatusOK {
		t.Fatalf("answer %d: %v", status, err)
	}
	const reason = "2 spans were not stored; the first: Rollout ro-unknown not found"
	if p := got.PartialSuccess(); p.RejectedSpans() != 2 || p.ErrorMessage() != reason {
		t.Errorf("partial success = %d, %q, want 2, %q", p.RejectedSpans(), p.ErrorMessage(), reason)
	}
	if spans := spansOf(t, s, r.RolloutID); len(spans) != 1 || spans[0].Name != "good" {
		t.Errorf("stored %+v, want the good span", spans)
	}
	_, again := export.post(t, server, "application/x-protobuf")
	if again != body {
		t.Errorf("sent again: %q, want %q: a span that is stored already is not rejected", again, body)
	}
}

// export is a request in the making.
type export struct {
	traces ptrace.Traces
	spans  ptrace.SpanSlice
}

func newExport() *export {
	e := &export{traces: ptrace.NewTraces()}
	e.spans = e.traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	return e
}

func (e *export) span(name, rolloutID, attemptID string) ptrace.Span {
	s := e.spans.AppendEmpty()
	s.SetName(name)
	s.SetTraceID(pcommon.TraceID{1})
	s.SetSpanID(pcommon.SpanID{byte(e.spans.Len())})
	if rolloutID != "" {
		s.Attributes().PutStr(semconv.RolloutID, rolloutID)
		s.Attributes().PutStr(semconv.AttemptID, attemptID)
	}
	return s
}

func (e *export) post(tb testing.TB, server *httptest.Server, kind string) (int, string) {
	tb.Helper()
	req := ptraceotlp.NewExportRequestFromTraces(e.traces)
	body, err := req.MarshalProto()
	if kind == "application/json" {
		body, err = req.MarshalJSON()
	}
	if err != nil {
		tb.Fatal(err)
	}
	return post(tb, server, body, "Content-Type", kind)
}

func post(tb testing.TB, server *httptest.Server, body []byte, header ...string) (int, string) {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), http.MethodPost, server.URL+otlp.TracesPath, bytes.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := server.Client().Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

func TestJSON(t *testing.T) {
	t.Parallel()
	s, server, r := setup(t)
	e := newExport()
	e.span("good", r.RolloutID, r.Attempt.AttemptID).Attributes().PutInt("n", 1<<60)
	status, body := e.post(t, server, "application/json")
	if status != http.StatusOK || body != "{}" {
		t.Errorf("answer = %d %s", status, body)
	}
	if n, _ := spansOf(t, s, r.RolloutID)[0].Attributes.Get("n"); n != int64(1<<60) {
		t.Errorf("attribute = %v, want %d", n, int64(1<<60))
	}
	e.span("bad", "ro-unknown", "at-unknown")
	_, body = e.post(t, server, "application/json")
	const want = `{"partialSuccess":{"errorMessage":"Rollout ro-unknown not found","rejectedSpans":"1"}}`
	if body != want {
		t.Errorf("answer = %s, want %s", body, want)
	}
	status, body = post(t, server, []byte(`{"resourceSpans":7}`), "Content-Type", "application/json")
	if status != http.StatusBadRequest || !strings.HasPrefix(body, `{"message":"Unable to parse`) {
		t.Errorf("malformed JSON: %d %s", status, body)
	}
}

func TestRefusedBodies(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(otlp.NewHandler(nil, otlp.Config{MaxBody: 1000}))
	t.Cleanup(server.Close)
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, _ = z.Write(make([]byte, 100_000))
	_ = z.Close()
	var small bytes.Buffer
	z = gzip.NewWriter(&small)
	_, _ = z.Write([]byte("some bytes"))
	_ = z.Close()
	for _, tt := range []struct {
		name       string
		body       []byte
		encoding   string
		wantStatus int
		wantReason string
	}{
		{"no gzip", []byte("not gzip"), "gzip", 400, "not valid gzip"},
		{"cut gzip", small.Bytes()[:20], "GZIP", 400, "not valid gzip"},
		{"no protobuf", []byte("not-a-proto"), "", 400, "Wire format was corrupt"},
		{"long", make([]byte, 2000), "", 413, "send fewer spans"},
		{"gzip that unpacks to more", bomb.Bytes(), "gzip", 413, "send fewer spans"},
	} {
		status, body := post(t, server, tt.body, "Content-Type", "application/x-protobuf", "Content-Encoding", tt.encoding)
		if status != tt.wantStatus || !strings.Contains(body, tt.wantReason) {
			t.Errorf("%s: %d %q, want %d with %q", tt.name, status, body, tt.wantStatus, tt.wantReason)
		}
	}
}

// writer is a store whose answers a test chooses.
type writer struct {
	next func([]store.Attempted) ([]int64, error)
	add  func([]agl.Span) ([]store.AddedSpan, error)
}

func (w writer) NextSequenceIDs(_ context.Context, a []store.Attempted) ([]int64, error) {
	return w.next(a)
}

func (w writer) AddSpans(_ context.Context, s []agl.Span) ([]store.AddedSpan, error) { return w.add(s) }

// TestNumbering checks that ids are asked for once, in the order of the spans
// that lack one.
func TestNumbering(t *testing.T) {
	t.Parallel()
	var asked []string
	stored := map[string]int64{}
	server := httptest.NewServer(otlp.NewHandler(writer{
		next: func(a []store.Attempted) ([]int64, error) {
			ids := make([]int64, len(a))
			for i := range a {
				asked = append(asked, a[i].RolloutID)
				ids[i] = int64(100 + i)
			}
			return ids, nil
		},
		add: func(spans []agl.Span) ([]store.AddedSpan, error) {
			for _, s := range spans {
				stored[s.Name] = s.SequenceID
			}
			return make([]store.AddedSpan, len(spans)), nil
		},
	}, otlp.Config{}))
	t.Cleanup(server.Close)
	e := newExport()
	e.span("none", "a", "x")
	e.span("given", "a", "x").Attributes().PutStr(semconv.SpanSequenceID, " 7 ")
	e.span("stray", "", "")
	e.span("negative", "b", "x").Attributes().PutInt(semconv.SpanSequenceID, -1)
	e.span("zero", "a", "x").Attributes().PutInt(semconv.SpanSequenceID, 0)
	e.span("float", "a", "x").Attributes().PutDouble(semconv.SpanSequenceID, 3)
	e.post(t, server, "application/x-protobuf")
	if want := []string{"a", "b", "a"}; !slices.Equal(asked, want) {
		t.Errorf("asked for the ids of %v, want %v", asked, want)
	}
	want := map[string]int64{"none": 100, "given": 7, "negative": 101, "zero": 0, "float": 102}
	if diff := cmp.Diff(want, stored); diff != "" {
		t.Errorf("sequence ids differ (-want +got):\n%s", diff)
	}
}

func TestFaultsOfTheStore(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err        error
		wantStatus int
		wantReason string
	}{
		{store.ErrClosed, 503, "shutting down"},
		{errors.New("SELECT secret"), 500, "internal error"},
	} {
		server := httptest.NewServer(otlp.NewHandler(writer{
			add: func([]agl.Span) ([]store.AddedSpan, error) { return nil, tt.err },
		}, otlp.Config{}))
		t.Cleanup(server.Close)
		e := newExport()
		e.span("x", "a", "x").Attributes().PutInt(semconv.SpanSequenceID, 1)
		status, body := e.post(t, server, "application/x-protobuf")
		if status != tt.wantStatus || !strings.Contains(body, tt.wantReason) || strings.Contains(body, "secret") {
			t.Errorf("store says %v: %d %q, want %d with %q", tt.err, status, body, tt.wantStatus, tt.wantReason)
		}
	}
}

func TestAttributeValues(t *testing.T) {
	t.Parallel()
	e := newExport()
	a := e.span("x", "a", "x").Attributes()
	a.PutEmptyBytes("bytes").FromRaw([]byte{0, 171})
	a.PutEmpty("nothing")
	m := a.PutEmptyMap("map")
	m.PutStr("k", "v")
	m.PutEmptySlice("l").AppendEmpty().SetDouble(2)
	mixed := a.PutEmptySlice("mixed numbers")
	mixed.AppendEmpty().SetInt(1)
	mixed.AppendEmpty().SetDouble(2.5)
	odd := a.PutEmptySlice("number and text")
	odd.AppendEmpty().SetInt(1)
	odd.AppendEmpty().SetStr("x")
	a.PutEmptySlice("empty")
	got := otlp.FromTraces(e.traces).Spans[0].Attributes
	const want = `{"agentlightning.rollout_id":"a","agentlightning.attempt_id":"x","bytes":"00ab","map":"{\"k\":\"v\",\"l\":[2.0]}",` +
		`"mixed numbers":[1.0,2.5],"number and text":"[1,\"x\"]","empty":[]}`
	if string(got.AppendJSON(nil)) != want {
		t.Errorf("attributes\n got %s\nwant %s", got.AppendJSON(nil), want)
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	start, end := 1700000000.123456, 1700000001.0
	in := agl.Span{
		RolloutID: "ro-1", AttemptID: "at-1", SequenceID: 3, TraceID: strings.Repeat("0a", 16), SpanID: strings.Repeat("0b", 8),
		ParentID: new(strings.Repeat("0c", 8)), Name: "call", Status: agl.TraceStatus{StatusCode: agl.StatusError, Description: new("no")},
		Attributes: agl.Attributes{
			{Key: "i", Value: int64(1)},
			{Key: "f", Value: 1.0},
			{Key: "b", Value: true},
			{Key: "s", Value: "x"},
			{Key: "li", Value: []int64{1, 2}},
			{Key: "lf", Value: []float64{1, 2}},
			{Key: "ls", Value: []string{"a"}},
			{Key: "lb", Value: []bool{true}},
		},
		Events:    []agl.Event{{Name: "e", Attributes: agl.Attributes{}, Timestamp: &start}},
		StartTime: &start, EndTime: &end, Context: &agl.SpanContext{TraceID: strings.Repeat("0a", 16), SpanID: strings.Repeat("0b", 8)},
		Links:    []agl.Link{{Context: agl.SpanContext{TraceID: strings.Repeat("0d", 16), SpanID: strings.Repeat("0e", 8)}}},
		Resource: agl.OtelResource{Attributes: agl.Attributes{{Key: "service.name", Value: "x"}}, SchemaURL: "u"},
	}
	raw, err := otlp.Marshal([]agl.Span{in, in})
	if err != nil {
		t.Fatal(err)
	}
	req := ptraceotlp.NewExportRequest()
	if err := req.UnmarshalProto(raw); err != nil {
		t.Fatal(err)
	}
	if n := req.Traces().ResourceSpans().Len(); n != 1 {
		t.Errorf("%d resources, want 1 for spans that share it", n)
	}
	out := otlp.FromTraces(req.Traces()).Spans[1]
	in.Attributes.Set(semconv.RolloutID, "ro-1")
	in.Attributes.Set(semconv.AttemptID, "at-1")
	in.Attributes.Set(semconv.SpanSequenceID, int64(3))
	if diff := cmp.Diff(string(in.AppendJSON(nil)), string(out.AppendJSON(nil))); diff != "" {
		t.Errorf("span differs after the trip (-want +got):\n%s", diff)
	}
}
