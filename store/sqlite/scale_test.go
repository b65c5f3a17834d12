package sqlite_test

import (
	"cmp"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/sqlite"
)

// How full the full store is; measuring it at millions takes minutes.
var (
	scale      = flag.Int("scale", 20_000, "rollouts queued in the full store of BenchmarkScale")
	scaleSpans = flag.Int("scale.spans", 0, "spans in the full store of BenchmarkScale; 0 for as many as rollouts")
)

// BenchmarkScale measures calls on a store that is nearly empty and on one that
// is full; they should take the same time. One operation is one of each call.
func BenchmarkScale(b *testing.B) {
	for _, size := range []struct{ queued, spans int }{{1000, 1000}, {*scale, cmp.Or(*scaleSpans, *scale)}} {
		b.Run(fmt.Sprintf("queued=%d/spans=%d", size.queued, size.spans), func(b *testing.B) {
			backend := openBench(b, sqlite.SyncNormal)
			fillQueue(b, backend, size.queued)
			fillSpans(b, backend, size.spans)
			s := openEngine(b, backend)
			calls := map[string]stopwatch{}
			call := func(name string, f func() error) {
				watch := calls[name]
				if err := watch.call(f); err != nil {
					b.Fatalf("%s: %v", name, err)
				}
				calls[name] = watch
			}
			ctx, worker := b.Context(), "worker"
			for b.Loop() {
				var got []agl.AttemptedRollout
				call("dequeue", func() (err error) {
					got, err = s.DequeueRollouts(ctx, store.DequeueRequest{WorkerID: &worker, Limit: 1})
					return err
				})
				id, attempt := got[0].RolloutID, got[0].Attempt.AttemptID
				call("span", func() error {
					span := benchSpan(0, 1)
					span.RolloutID, span.AttemptID = id, attempt
					_, err := s.AddSpans(ctx, []agl.Span{span})
					return err
				})
				call("finish", func() error {
					_, err := s.UpdateAttempt(ctx, id, attempt, store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)})
					return err
				})
				call("enqueue", func() error {
					_, err := s.EnqueueRollouts(ctx, []store.EnqueueRequest{{Input: []byte("1")}})
					return err
				})
				call("queue", func() error { _, err := s.Queue(ctx); return err })
				call("statistics", func() error { _, err := s.Statistics(ctx); return err })
				call("newest", func() error {
					page := store.Paging{SortBy: "start_time", Desc: true, Limit: 20}
					_, err := s.QueryRollouts(ctx, store.RolloutQuery{Paging: page})
					return err
				})
			}
			for name, watch := range calls {
				slices.Sort(watch)
				b.ReportMetric(float64(watch[len(watch)/2])/float64(time.Microsecond), name+"-p50-µs")
			}
		})
	}
}

func fillQueue(b *testing.B, backend *sqlite.Backend, n int) {
	b.Helper()
	const batch = 1000
	for from := 0; from < n; from += batch {
		rollouts, ids := make([]agl.Rollout, batch), make([]string, batch)
		for i := range rollouts {
			ids[i] = agl.NewRolloutID()
			rollouts[i] = agl.Rollout{
				RolloutID: ids[i], Status: agl.RolloutQueuing, StartTime: 1.7e9 + float64(from+i)/100,
				Input: []byte(`{"question":"how many?"}`), Config: agl.RolloutConfig{MaxAttempts: 1},
			}
		}
		err := backend.Update(b.Context(), func(tx engine.Tx) error {
			if err := tx.InsertRollouts(rollouts); err != nil {
				return err
			}
			return tx.Push(ids)
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// fillSpans stores spans of finished rollouts, a thousand each.
func fillSpans(b *testing.B, backend *sqlite.Backend, n int) {
	b.Helper()
	const batch = 1000
	for from := 0; from < n; from += batch {
		spans := make([]agl.Span, batch)
		for i := range spans {
			spans[i] = benchSpan(from/batch, i)
		}
		first := &spans[0]
		err := backend.Update(b.Context(), func(tx engine.Tx) error {
			done := agl.Rollout{RolloutID: first.RolloutID, Status: agl.RolloutSucceeded, StartTime: 1, Config: agl.RolloutConfig{MaxAttempts: 1}}
			if err := tx.InsertRollouts([]agl.Rollout{done}); err != nil {
				return err
			}
			a := agl.Attempt{RolloutID: first.RolloutID, AttemptID: first.AttemptID, SequenceID: 1, Status: agl.AttemptSucceeded}
			if err := tx.InsertAttempts([]agl.Attempt{a}); err != nil {
				return err
			}
			_, err := tx.InsertSpans(encode(spans))
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

func encode(spans []agl.Span) []store.EncodedSpan {
	out := make([]store.EncodedSpan, len(spans))
	for i := range spans {
		out[i] = store.EncodeSpan(&spans[i])
	}
	return out
}

// BenchmarkLargeAttempt reads an attempt of 100,000 spans: a page at its end, and
// all of it.
func BenchmarkLargeAttempt(b *testing.B) {
	const spans, page = 100_000, 500
	backend := openBench(b, sqlite.SyncNormal)
	first := benchSpan(0, 0)
	for from := 0; from < spans; from += 1000 {
		batch := make([]agl.Span, 1000)
		for i := range batch {
			batch[i] = benchSpan(0, from+i)
		}
		err := backend.Update(b.Context(), func(tx engine.Tx) error {
			if from == 0 {
				ro := agl.Rollout{RolloutID: first.RolloutID, Status: agl.RolloutRunning, Config: agl.RolloutConfig{MaxAttempts: 1}}
				if err := tx.InsertRollouts([]agl.Rollout{ro}); err != nil {
					return err
				}
				a := agl.Attempt{RolloutID: first.RolloutID, AttemptID: first.AttemptID, SequenceID: 1, Status: agl.AttemptRunning}
				if err := tx.InsertAttempts([]agl.Attempt{a}); err != nil {
					return err
				}
			}
			_, err := tx.InsertSpans(encode(batch))
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	s := openEngine(b, backend)
	for _, at := range []struct {
		name   string
		offset int
	}{{"first page", 0}, {"last page", spans - page}} {
		b.Run(at.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				got, err := s.QuerySpans(b.Context(), store.SpanQuery{
					RolloutID: first.RolloutID, AttemptID: &first.AttemptID,
					Paging: store.Paging{SortBy: "sequence_id", Limit: page, Offset: at.offset},
				})
				if err != nil || len(got.Items) != page || got.Total != spans || got.Items[0].SequenceID != int64(at.offset) {
					b.Fatalf("%d of %d spans, %v", len(got.Items), got.Total, err)
				}
			}
		})
	}
}
