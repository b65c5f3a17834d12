package sqlite_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/store/sqlite"
)

// benchSpan is a span of about 1.3 kB of JSON, as a model call leaves behind.
func benchSpan(rollout, i int) agl.Span {
	start := 1.7e9 + float64(i)
	id := fmt.Sprintf("%016x", i)
	return agl.Span{
		RolloutID: fmt.Sprintf("ro-%012x", rollout*7919), AttemptID: fmt.Sprintf("at-%08x", rollout),
		SequenceID: int64(i), TraceID: strings.Repeat("0af7651916cd43dd", 2), SpanID: id, ParentID: &id,
		Name: "openai.chat.completion", Status: agl.TraceStatus{StatusCode: agl.StatusOK},
		Attributes: agl.Attributes{
			{Key: "gen_ai.request.model", Value: "small"},
			{Key: "gen_ai.prompt.0.content", Value: strings.Repeat("what is six times seven? ", 12)},
			{Key: "gen_ai.completion.0.content", Value: strings.Repeat("let me see: ", 12)},
			{Key: "token_ids", Value: []int64{101, 2054, 2003, 2416, 2335, 2698, 1029, 102, 17, 99, 1234, 5, 6, 7, 8}},
			{Key: "temperature", Value: 0.7},
		},
		StartTime: &start, EndTime: &start, Context: &agl.SpanContext{TraceID: strings.Repeat("0af7651916cd43dd", 2), SpanID: id},
		Resource: agl.OtelResource{Attributes: agl.Attributes{{Key: "service.name", Value: "calc"}}},
	}
}

func openBench(b *testing.B, mode sqlite.Sync) *sqlite.Backend {
	b.Helper()
	backend, err := sqlite.Open(b.Context(), sqlite.Config{Path: filepath.Join(b.TempDir(), "agl.db"), Sync: mode})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := backend.Close(); err != nil {
			b.Error(err)
		}
	})
	return backend
}

func openEngine(b *testing.B, backend engine.Backend) *engine.Store {
	b.Helper()
	s := engine.New(backend, engine.Config{HealthScanInterval: engine.DefaultHealthScanInterval})
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

// stopwatch collects how long the calls of one goroutine took.
type stopwatch []time.Duration

func (s *stopwatch) call(f func() error) error {
	began := time.Now()
	err := f()
	*s = append(*s, time.Since(began))
	return err
}

// meter adds up what measured stretches of a benchmark took.
type meter struct {
	wall, cpu time.Duration
	calls     []time.Duration
	ops       int
}

// run spreads n operations, numbered from the ones before on, over some goroutines.
func (m *meter) run(b *testing.B, workers, n int, op func(s *stopwatch, worker, i int) error) {
	b.Helper()
	var wg sync.WaitGroup
	watches := make([]stopwatch, workers)
	began, cpu := time.Now(), cpuTime()
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				if err := op(&watches[w], w, m.ops+i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	m.wall += time.Since(began)
	m.cpu += cpuTime() - cpu
	m.ops += n
	for _, w := range watches {
		m.calls = append(m.calls, w...)
	}
}

// report shows the rate, the processor time of an operation, and the latency of
// the calls that were timed.
func (m *meter) report(b *testing.B) {
	b.Helper()
	if b.Failed() || len(m.calls) == 0 {
		return
	}
	slices.Sort(m.calls)
	b.ReportMetric(float64(m.ops)/m.wall.Seconds(), "ops/s")
	b.ReportMetric(float64(m.cpu.Microseconds())/float64(m.ops), "cpu-µs/op")
	b.ReportMetric(float64(m.calls[len(m.calls)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(m.calls[len(m.calls)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(0, "ns/op")
}

// parallel measures b.N operations.
func parallel(b *testing.B, workers int, op func(s *stopwatch, worker, i int) error) {
	b.Helper()
	var m meter
	m.run(b, workers, b.N, op)
	m.report(b)
}

// addRollouts stores rollouts that spans of benchSpan can belong to.
func addRollouts(b *testing.B, backend engine.Backend, n int) {
	b.Helper()
	err := backend.Update(b.Context(), func(tx engine.Tx) error {
		for i := range n {
			if err := tx.InsertRollouts([]agl.Rollout{{RolloutID: benchSpan(i, 0).RolloutID, Status: agl.RolloutRunning}}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkInsertSpan stores spans one by one, each durable before the next of
// its goroutine.
func BenchmarkInsertSpan(b *testing.B) {
	for _, mode := range []sqlite.Sync{sqlite.SyncFull, sqlite.SyncNormal} {
		for _, workers := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("sync=%s/writers=%d", mode, workers), func(b *testing.B) {
				backend := openBench(b, mode)
				addRollouts(b, backend, b.N/8+2*workers)
				b.ResetTimer()
				parallel(b, workers, func(s *stopwatch, w, i int) error {
					span := benchSpan(i/8/workers*workers+w, i)
					return s.call(func() error {
						return backend.Update(b.Context(), func(tx engine.Tx) error {
							_, err := tx.InsertSpans([]store.EncodedSpan{store.EncodeSpan(&span)})
							return err
						})
					})
				})
			})
		}
	}
}

// BenchmarkRollout drives whole rollouts through the engine, 16 at a time: queue,
// claim, eight spans one by one, success.
func BenchmarkRollout(b *testing.B) {
	for _, kind := range []string{"memory", "full", "normal"} {
		b.Run("backend="+kind, func(b *testing.B) {
			var backend engine.Backend = memory.New()
			if kind != "memory" {
				backend = openBench(b, sqlite.Sync(kind))
			}
			s := openEngine(b, backend)
			parallel(b, 16, func(watch *stopwatch, w, i int) error {
				return wholeRollout(b.Context(), s, watch, fmt.Sprintf("worker-%d", w), 8*i)
			})
		})
	}
}

func wholeRollout(ctx context.Context, s *engine.Store, watch *stopwatch, worker string, firstSpan int) error {
	enqueue := []store.EnqueueRequest{{Input: []byte(`{"question":"what is six times seven?"}`)}}
	if err := watch.call(func() error { _, err := s.EnqueueRollouts(ctx, enqueue); return err }); err != nil {
		return err
	}
	var claimed []agl.AttemptedRollout
	err := watch.call(func() (err error) {
		claimed, err = s.DequeueRollouts(ctx, store.DequeueRequest{WorkerID: &worker, Limit: 1})
		return err
	})
	if err != nil {
		return err
	}
	for _, ro := range claimed {
		at := store.Attempted{RolloutID: ro.RolloutID, AttemptID: ro.Attempt.AttemptID}
		for n := range 8 {
			span := benchSpan(0, firstSpan+n)
			span.RolloutID, span.AttemptID = at.RolloutID, at.AttemptID
			err := watch.call(func() error {
				ids, err := s.NextSequenceIDs(ctx, []store.Attempted{at})
				span.SequenceID = ids[0]
				return err
			})
			if err != nil {
				return err
			}
			if err := watch.call(func() error { _, err := s.AddSpans(ctx, []agl.Span{span}); return err }); err != nil {
				return err
			}
		}
		done := store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)}
		err := watch.call(func() error { _, err := s.UpdateAttempt(ctx, at.RolloutID, at.AttemptID, done); return err })
		if err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkClaim claims rollouts one by one from a short and from a long queue,
// which should make no difference.
func BenchmarkClaim(b *testing.B) {
	for _, mode := range []sqlite.Sync{sqlite.SyncFull, sqlite.SyncNormal} {
		for _, queued := range []int{1_000, 1_000_000} {
			b.Run(fmt.Sprintf("sync=%s/queued=%d", mode, queued), func(b *testing.B) {
				s := openEngine(b, openBench(b, mode))
				enqueue := func(n int) {
					reqs := make([]store.EnqueueRequest, min(n, 1000))
					for i := range reqs {
						reqs[i].Input = []byte(`{"question":"what is six times seven?"}`)
					}
					for ; n > 0; n -= len(reqs) {
						if _, err := s.EnqueueRollouts(b.Context(), reqs[:min(n, len(reqs))]); err != nil {
							b.Fatal(err)
						}
					}
				}
				enqueue(queued)
				b.ResetTimer()
				var m meter
				for m.ops < b.N {
					n := min(500, b.N-m.ops)
					m.run(b, 16, n, func(watch *stopwatch, _, _ int) error {
						return watch.call(func() error {
							_, err := s.DequeueRollouts(b.Context(), store.DequeueRequest{Limit: 1})
							return err
						})
					})
					enqueue(n) // keeps the queue as long as it is
				}
				m.report(b)
			})
		}
	}
}
