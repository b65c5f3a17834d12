package interop

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/otlp"
	"agentlightning/store"
)

// claimed starts a rollout with its first attempt.
func (s *server) claimed(t *testing.T) map[string]string {
	t.Helper()
	r, err := s.client.StartRollout(t.Context(), store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: []byte("1")}})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{"rollout_id": r.RolloutID, "attempt_id": r.Attempt.AttemptID}
}

// export sends spans over HTTP and returns how many bytes they have, not compressed.
func (s *server) export(t *testing.T, kind, compression string, arguments map[string]any) int {
	t.Helper()
	return export(t, s.url+otlp.TracesPath, kind, compression, arguments)
}

// export runs exporting.main. An endpoint that is no address of HTTP is one of gRPC.
func export(t *testing.T, endpoint, kind, compression string, arguments map[string]any) int {
	t.Helper()
	arguments["endpoint"], arguments["kind"], arguments["compression"] = endpoint, kind, compression
	var got struct {
		Exported bool
		Bytes    int
	}
	call(t, "exporting", arguments, &got)
	if !got.Exported {
		t.Fatalf("the exporter says that it could not send %d bytes of %s", got.Bytes, kind)
	}
	return got.Bytes
}

// TestExporterSendsMany sends ten thousand spans in one request.
func TestExporterSendsMany(t *testing.T) {
	t.Parallel()
	const count = 10_000
	for _, compression := range []string{"none", "gzip"} {
		t.Run(compression, func(t *testing.T) {
			t.Parallel()
			eachBackend(t, func(t *testing.T, s *server) {
				at := s.claimed(t)
				s.export(t, "many", compression, map[string]any{"attempt": at, "count": count})
				spans := s.spans(t, at["rollout_id"])
				if len(spans) != count || s.statistics(t).TotalSpans != count {
					t.Fatalf("%d spans are stored, want %d", len(spans), count)
				}
				// In the order in which they ended, so the root is the last.
				root := spans[count-1]
				for i, span := range spans {
					number, _ := span.Attributes.Get("number")
					if span.SequenceID != int64(i)+1 || span.AttemptID != at["attempt_id"] || span.TraceID != root.TraceID ||
						i < count-1 && (number != int64(i) || span.ParentID == nil || *span.ParentID != root.SpanID) {
						t.Fatalf("span %d is %+v, want number %d below the root with sequence id %d", i, span, i, i+1)
					}
				}
				checkRoot(t, root)
				first := spans[0]
				if len(first.Links) != 1 || first.Links[0].Context.SpanID != root.SpanID || !cmp.Equal(first.Links[0].Attributes, agl.Attributes{{Key: "n", Value: int64(0)}}) {
					t.Errorf("links of the first span are %+v, want one to the root", first.Links)
				}
				if r := s.rollout(t, at["rollout_id"]); r.Status != agl.RolloutRunning || r.Attempt.Status != agl.AttemptRunning {
					t.Errorf("rollout and attempt are %s and %s, want them running", r.Status, r.Attempt.Status)
				}
			})
		})
	}
}

func checkRoot(t *testing.T, root agl.Span) {
	t.Helper()
	// What ATTRIBUTES of exporting.py says.
	if diff := cmp.Diff(agl.Attributes{
		{Key: "s", Value: "ü\u2028\U0001f44b"},
		{Key: "empty", Value: ""},
		{Key: "b", Value: false},
		{Key: "i", Value: int64(-1 << 62)},
		{Key: "f", Value: 2.0},
		{Key: "tiny", Value: 5e-324},
		{Key: "ss", Value: []string{"a", ""}},
		{Key: "bs", Value: []bool{true, false}},
		{Key: "is", Value: []int64{1, 1<<53 + 1}},
		{Key: "fs", Value: []float64{1, -0.5}},
		{Key: "none", Value: []string{}},
	}, root.Attributes); diff != "" {
		t.Errorf("attributes of the root (-want +got):\n%s", diff)
	}
	if root.Name != "root" || root.ParentID != nil || root.Status.StatusCode != agl.StatusError || root.Status.Description == nil || *root.Status.Description != "told to" {
		t.Errorf("the root is %+v, want an error without a parent", root)
	}
	if len(root.Events) != 1 || root.Events[0].Timestamp == nil || *root.Events[0].Timestamp != 1700000000.25 ||
		!cmp.Equal(root.Events[0].Attributes, agl.Attributes{{Key: "k", Value: []int64{1, 2}}}) {
		t.Errorf("events of the root are %+v", root.Events)
	}
	if name, _ := root.Resource.Attributes.Get("service.name"); name != "exporter" {
		t.Errorf("the service is %v", name)
	}
}

// TestExporterSendsLarge sends more than four MiB in one request.
func TestExporterSendsLarge(t *testing.T) {
	t.Parallel()
	const count = 72
	for _, compression := range []string{"none", "gzip"} {
		t.Run(compression, func(t *testing.T) {
			t.Parallel()
			eachBackend(t, func(t *testing.T, s *server) {
				at := s.claimed(t)
				if sent := s.export(t, "large", compression, map[string]any{"attempt": at, "count": count}); sent < 4<<20 {
					t.Fatalf("the request has %d bytes, want 4 MiB and more", sent)
				}
				checkLarge(t, s.spans(t, at["rollout_id"]), count)
			})
		})
	}
}

func checkLarge(t *testing.T, spans []agl.Span, count int) {
	t.Helper()
	if len(spans) != count {
		t.Fatalf("%d spans are stored, want %d", len(spans), count)
	}
	for i, span := range spans {
		text, _ := span.Attributes.Get("text")
		if s, _ := text.(string); len([]rune(s)) != 64<<10 {
			t.Fatalf("the text of span %d has %d letters, want %d", i, len([]rune(s)), 64<<10)
		}
	}
}

// TestExporterOverGRPC sends the same over gRPC, whose own limit is 4 MiB.
func TestExporterOverGRPC(t *testing.T) {
	t.Parallel()
	needPython(t)
	port := freePort(t)
	s := serve(t, "sqlite:"+filepath.Join(t.TempDir(), "agl.db"), "--otlp-grpc-port", port)
	for _, compression := range []string{"none", "gzip"} {
		t.Run(compression, func(t *testing.T) {
			const count, large = 10_000, 72
			at := s.claimed(t)
			export(t, "127.0.0.1:"+port, "many", compression, map[string]any{"attempt": at, "count": count})
			spans := s.spans(t, at["rollout_id"])
			if len(spans) != count {
				t.Fatalf("%d spans are stored, want %d", len(spans), count)
			}
			checkRoot(t, spans[count-1])
			at = s.claimed(t)
			if sent := export(t, "127.0.0.1:"+port, "large", compression, map[string]any{"attempt": at, "count": large}); sent < 4<<20 {
				t.Fatalf("the request has %d bytes, want 4 MiB and more", sent)
			}
			checkLarge(t, s.spans(t, at["rollout_id"]), large)
		})
	}
}

// TestExporterSendsMixed sends spans of several rollouts, of none, and of one
// that does not exist.
func TestExporterSendsMixed(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, s *server) {
		at, first, second := s.claimed(t), s.claimed(t), s.claimed(t)
		s.export(t, "mixed", "none", map[string]any{"attempt": at, "others": []any{first, second, first}})
		type stored struct {
			Name string
			Seq  int64
		}
		for _, want := range []struct {
			at    map[string]string
			spans []stored
		}{
			{at, []stored{{"own", 1}, {"numbered", 41}}},
			{first, []stored{{"other 0", 1}, {"other 2", 2}}},
			{second, []stored{{"other 1", 1}}},
		} {
			var got []stored
			for _, span := range s.spans(t, want.at["rollout_id"]) {
				got = append(got, stored{span.Name, span.SequenceID})
			}
			if diff := cmp.Diff(want.spans, got); diff != "" {
				t.Errorf("spans (-want +got):\n%s", diff)
			}
		}
		if got := s.statistics(t).TotalSpans; got != 5 {
			t.Errorf("%d spans are stored, want 5", got)
		}
	})
}
