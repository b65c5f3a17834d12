package otlp_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	agl "agentlightning"
	"agentlightning/otlp"
	"agentlightning/semconv"
	"agentlightning/store"
)

// BenchmarkTraces decodes exports of 100 spans with ten attributes each; the
// store behind takes them at no cost.
func BenchmarkTraces(b *testing.B) {
	const spans = 100
	e := newExport()
	for i := range spans {
		s := e.span("call", "ro-1", "at-1")
		s.SetSpanID(pcommon.SpanID{byte(i), 1})
		s.SetStartTimestamp(1700000000250000000)
		s.SetEndTimestamp(1700000000350000000)
		s.Attributes().PutInt(semconv.SpanSequenceID, int64(i))
		for _, key := range []string{"a", "b", "c", "d", "e", "f", "g"} {
			s.Attributes().PutStr(key, "some text")
		}
	}
	body, err := ptraceotlp.NewExportRequestFromTraces(e.traces).MarshalProto()
	if err != nil {
		b.Fatal(err)
	}
	h := otlp.NewHandler(writer{add: func(s []agl.Span) ([]store.AddedSpan, error) {
		return make([]store.AddedSpan, len(s)), nil
	}}, otlp.Config{})
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, otlp.TracesPath, bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/x-protobuf")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			b.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	b.ReportMetric(float64(b.N*spans)/b.Elapsed().Seconds(), "spans/s")
}
