package observed_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/store/observed"
	"agentlightning/store/storetest"
)

func open(tb testing.TB, c engine.Config) (*observed.Store, *prometheus.Registry) {
	tb.Helper()
	registry := prometheus.NewPedanticRegistry()
	m, err := observed.NewMetrics(registry)
	if err != nil {
		tb.Fatal(err)
	}
	c.OnChange = m.OnChange
	return observed.New(engine.New(memory.New(), c), m), registry
}

// TestContract: a store that is watched is still one.
func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, o storetest.Options) store.Store {
		t.Helper()
		s, _ := open(t, engine.Config{Now: o.Now, HealthScanInterval: o.HealthScanInterval})
		return s
	}, storetest.Lack{Power: storetest.Browse, Reason: "whoever browses asks the store behind"})
}

func TestRolloutsAreCountedWhenTheyEnd(t *testing.T) {
	t.Parallel()
	s, registry := open(t, engine.Config{})
	defer func() { _ = s.Close() }()
	ctx := t.Context()
	made, err := s.EnqueueRollouts(ctx, []store.EnqueueRequest{{Input: []byte("1"), Mode: agl.ModeTrain}, {Input: []byte("2")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.DequeueRollouts(ctx, store.DequeueRequest{Limit: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.UpdateAttempt(ctx, made[0].RolloutID, agl.LatestAttempt, store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.UpdateRollout(ctx, made[1].RolloutID, store.RolloutUpdate{Status: store.To(agl.RolloutCancelled)}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Rollout(ctx, "ro-unknown"); !errors.Is(err, store.ErrNotFound) {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Statistics(gone); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for labels, want := range map[string]float64{"succeeded train": 1, "cancelled unknown": 1} {
		status, mode, _ := strings.Cut(labels, " ")
		for _, name := range []string{"agl_rollouts_total", "agl_rollouts_duration"} {
			if got := value(t, registry, name, map[string]string{"status": status, "mode": mode}); got != want {
				t.Errorf("%s of %s = %v, want %v", name, labels, got, want)
			}
		}
	}
	for labels, want := range map[string]float64{
		"enqueue_many_rollouts OK": 1, "dequeue_many_rollouts OK": 1, "update_attempt OK": 1, "get_rollout_by_id ValueError": 1,
		"statistics CancelledError": 1, "query_spans OK": 0,
	} {
		name, status, _ := strings.Cut(labels, " ")
		if got := value(t, registry, "agl_store_total", map[string]string{"method": name, "store_pubmeth": name, "status": status}); got != want {
			t.Errorf("agl_store_total of %s = %v, want %v", labels, got, want)
		}
		if got := value(t, registry, "agl_store_latency", map[string]string{"method": name, "store_pubmeth": name, "status": status}); got != want {
			t.Errorf("agl_store_latency of %s has %v values, want %v", labels, got, want)
		}
	}
}

// value returns a counter, or how many values a histogram has.
func value(t *testing.T, from prometheus.Gatherer, name string, labels map[string]string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			got := map[string]string{}
			for _, l := range m.GetLabel() {
				got[l.GetName()] = l.GetValue()
			}
			if reflect.DeepEqual(got, labels) {
				return m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	t.Fatalf("there is no %s with %v", name, labels)
	return 0
}

// BenchmarkOverhead is what watching adds to a call that does next to nothing.
func BenchmarkOverhead(b *testing.B) {
	s, _ := open(b, engine.Config{})
	plain := engine.New(memory.New(), engine.Config{})
	defer func() { _, _ = s.Close(), plain.Close() }()
	for name, one := range map[string]store.Store{"observed": s, "plain": plain} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := one.DequeueRollouts(b.Context(), store.DequeueRequest{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
