package memory_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// TestEviction holds more spans than fit. Those of the oldest rollouts go, as
// few as need be; the rollouts themselves stay.
func TestEviction(t *testing.T) {
	t.Parallel()
	const kib = 1 << 10
	var said bytes.Buffer
	b, err := memory.NewLimited(memory.SpanLimits{Evict: memory.Bytes(100 * kib), Safe: memory.Bytes(50 * kib)},
		slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1e9, 0)
	s := engine.New(b, engine.Config{Now: func() time.Time { now = now.Add(time.Second); return now }})
	t.Cleanup(func() { _ = s.Close() })
	ctx := t.Context()
	add := func(at *agl.Attempt) bool {
		t.Helper()
		span := agl.SpanCore{
			Name: "step", Status: agl.TraceStatus{StatusCode: agl.StatusOK},
			Attributes: agl.Attributes{{Key: "text", Value: strings.Repeat("x", 10*kib)}},
		}.Span(at.RolloutID, at.AttemptID, 1, 0)
		added, err := s.AddSpans(ctx, []agl.Span{span})
		if err != nil {
			t.Fatal(err)
		}
		return added[0].Stored
	}
	statistics := func() store.Statistics {
		t.Helper()
		st, err := s.Statistics(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	var attempts []*agl.Attempt
	for range 9 {
		ro, err := s.StartRollout(ctx, store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: json.RawMessage("1")}})
		if err != nil {
			t.Fatal(err)
		}
		attempts = append(attempts, ro.Attempt)
		add(ro.Attempt)
	}
	st := statistics()
	if st.TotalSpans != 9 || st.SpanBytes < 90*kib || st.SpanBytes > 100*kib || st.EvictBytes != 100*kib || st.SafeBytes != 50*kib || st.MemoryBytes <= 0 {
		t.Fatalf("statistics before = %+v, want 9 spans of 90 to 100 KiB", st)
	}
	add(attempts[8]) // the tenth is too much
	st = statistics()
	if st.TotalSpans != 4 || st.SpanBytes > 50*kib || st.SpanBytes < 40*kib || st.TotalRollouts != 9 || st.TotalAttempts != 9 {
		t.Errorf("statistics after = %+v, want 4 spans of 40 to 50 KiB, and all rollouts and attempts", st)
	}
	if !strings.Contains(said.String(), "memory is short") || !strings.Contains(said.String(), "rollouts=6 spans=6") {
		t.Errorf("said %q, want what was dropped", said.String())
	}
	for i, at := range attempts {
		page, err := s.QuerySpans(ctx, store.SpanQuery{RolloutID: at.RolloutID})
		gone := i < 6
		want := fmt.Sprintf("Spans for rollout %s have been evicted", at.RolloutID)
		if gone != errors.Is(err, store.ErrEvicted) || gone && err.Error() != want || !gone && page.Total == 0 {
			t.Errorf("spans of rollout %d: %d, %v, evicted must be %t", i, page.Total, err, gone)
		}
		if _, err := s.Rollout(ctx, at.RolloutID); err != nil {
			t.Errorf("rollout %d: %v", i, err)
		}
	}
	// What comes later is stored and counted, but nobody sees a part for the whole.
	if !add(attempts[0]) {
		t.Error("a span of a rollout whose spans were dropped is not stored")
	}
	if _, err := s.QuerySpans(ctx, store.SpanQuery{RolloutID: attempts[0].RolloutID}); !errors.Is(err, store.ErrEvicted) {
		t.Errorf("spans of the rollout: %v, want that they were dropped", err)
	}
}

func TestSpanLimits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		limits memory.SpanLimits
		want   string // of the error; empty for none
	}{
		{memory.SpanLimits{}, ""},
		{memory.SpanLimits{Evict: memory.Share(0.5), Safe: memory.Share(0.25)}, ""},
		{memory.SpanLimits{Evict: memory.Share(1), Safe: memory.Bytes(0)}, ""},
		{memory.SpanLimits{Evict: memory.Share(0.5), Safe: memory.Share(0)}, ""},
		{memory.SpanLimits{Evict: memory.Share(1.5)}, "SpanLimits.Evict is a share of 1.5: must be from 0 to 1"},
		{memory.SpanLimits{Evict: memory.Share(-1)}, "SpanLimits.Evict is a share of -1"},
		{memory.SpanLimits{Evict: memory.Share(0)}, "SpanLimits.Evict is 0 bytes: must be 1 or more"},
		{memory.SpanLimits{Evict: memory.Bytes(-5)}, "SpanLimits.Evict is -5 bytes"},
		{memory.SpanLimits{Safe: memory.Bytes(-5)}, "SpanLimits.Safe is -5 bytes"},
		{memory.SpanLimits{Evict: memory.Bytes(10), Safe: memory.Bytes(10)}, "SpanLimits.Safe is 10 bytes: must be less than Evict, 10"},
	} {
		_, err := memory.NewLimited(tt.limits, nil)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("NewLimited(%+v) = %v, want %q", tt.limits, err, tt.want)
		}
	}
}
