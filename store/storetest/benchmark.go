package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	agl "agentlightning"
	"agentlightning/store"
)

// Benchmark measures what a training run asks of a store. Every figure is per
// operation of its kind; with -cpu and SetParallelism many callers are in
// flight, as with a server.
func Benchmark(b *testing.B, open func(b *testing.B) store.Store) {
	for _, bench := range []struct {
		name string
		run  func(b *testing.B, s store.Store)
	}{
		{"Enqueue", benchEnqueue},
		{"Claim", benchClaim},
		{"AddSpan", func(b *testing.B, s store.Store) { benchSpans(b, s, 1) }},
		{"AddSpans16", func(b *testing.B, s store.Store) { benchSpans(b, s, 16) }},
		{"NextSequenceID", benchNext},
		{"Rollout", benchRollout},
		{"SpansOfAttempt", benchQuerySpans},
		{"Lifecycle", benchLifecycle},
	} {
		b.Run(bench.name, func(b *testing.B) {
			s := open(b)
			defer func() {
				if err := s.Close(); err != nil {
					b.Error(err)
				}
			}()
			b.ReportAllocs()
			bench.run(b, s)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
		})
	}
}

// callers is how many calls are in flight for each core.
const callers = 32

func inParallel(b *testing.B, f func(ctx context.Context) error) {
	b.SetParallelism(callers)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := f(b.Context()); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func benchRequest() store.EnqueueRequest {
	return store.EnqueueRequest{Input: json.RawMessage(`{"question":"` + strings.Repeat("how many? ", 20) + `"}`)}
}

func benchEnqueue(b *testing.B, s store.Store) {
	req := []store.EnqueueRequest{benchRequest()}
	inParallel(b, func(ctx context.Context) error {
		_, err := s.EnqueueRollouts(ctx, req)
		return err
	})
}

func fill(b *testing.B, s store.Store, n int) {
	reqs := make([]store.EnqueueRequest, min(n, 1000))
	for i := range reqs {
		reqs[i] = benchRequest()
	}
	for ; n > 0; n -= len(reqs) {
		if _, err := s.EnqueueRollouts(b.Context(), reqs[:min(n, len(reqs))]); err != nil {
			b.Fatal(err)
		}
	}
}

func benchClaim(b *testing.B, s store.Store) {
	fill(b, s, b.N)
	worker := "w"
	inParallel(b, func(ctx context.Context) error {
		got, err := s.DequeueRollouts(ctx, store.DequeueRequest{Limit: 1, WorkerID: &worker})
		if err == nil && len(got) != 1 {
			err = fmt.Errorf("claimed %d, want 1", len(got))
		}
		return err
	})
}

func benchAttempts(b *testing.B, s store.Store, n int) []*agl.Attempt {
	out := make([]*agl.Attempt, n)
	for i := range out {
		ro, err := s.StartRollout(b.Context(), store.StartRequest{EnqueueRequest: benchRequest()})
		if err != nil {
			b.Fatal(err)
		}
		out[i] = ro.Attempt
	}
	return out
}

func benchSpan(a *agl.Attempt, n int64) agl.Span {
	s := newSpan(a, n)
	s.Attributes.Set("text", strings.Repeat("x", 1000))
	return s
}

func benchSpans(b *testing.B, s store.Store, batch int) {
	attempts := benchAttempts(b, s, 64)
	var n atomic.Int64
	inParallel(b, func(ctx context.Context) error {
		a := attempts[n.Add(1)%int64(len(attempts))]
		spans := make([]agl.Span, batch)
		for i := range spans {
			spans[i] = benchSpan(a, int64(i))
		}
		_, err := s.AddSpans(ctx, spans)
		return err
	})
}

func benchNext(b *testing.B, s store.Store) {
	attempts := benchAttempts(b, s, 64)
	var n atomic.Int64
	inParallel(b, func(ctx context.Context) error {
		a := attempts[n.Add(1)%int64(len(attempts))]
		_, err := s.NextSequenceIDs(ctx, []store.Attempted{{RolloutID: a.RolloutID, AttemptID: a.AttemptID}})
		return err
	})
}

func benchRollout(b *testing.B, s store.Store) {
	attempts := benchAttempts(b, s, 1000)
	var n atomic.Int64
	inParallel(b, func(ctx context.Context) error {
		_, err := s.Rollout(ctx, attempts[n.Add(1)%int64(len(attempts))].RolloutID)
		return err
	})
}

func benchQuerySpans(b *testing.B, s store.Store) {
	attempts := benchAttempts(b, s, 100)
	for _, a := range attempts {
		spans := make([]agl.Span, 20)
		for i := range spans {
			spans[i] = benchSpan(a, int64(20-i))
		}
		if _, err := s.AddSpans(b.Context(), spans); err != nil {
			b.Fatal(err)
		}
	}
	var n atomic.Int64
	inParallel(b, func(ctx context.Context) error {
		a := attempts[n.Add(1)%int64(len(attempts))]
		page, err := s.QuerySpans(ctx, store.SpanQuery{
			RolloutID: a.RolloutID, AttemptID: &a.AttemptID,
			Paging: store.Paging{SortBy: "sequence_id"},
		})
		if err == nil && page.Total != 20 {
			err = fmt.Errorf("%d spans, want 20", page.Total)
		}
		return err
	})
}

// benchLifecycle takes rollouts from the queue to success, with eight spans each.
func benchLifecycle(b *testing.B, s store.Store) {
	req := []store.EnqueueRequest{benchRequest()}
	var worker atomic.Int64
	inParallel(b, func(ctx context.Context) error {
		if _, err := s.EnqueueRollouts(ctx, req); err != nil {
			return err
		}
		w := fmt.Sprint("w", worker.Add(1)%16)
		got, err := s.DequeueRollouts(ctx, store.DequeueRequest{Limit: 1, WorkerID: &w})
		if err != nil {
			return err
		}
		for i := range got {
			a := got[i].Attempt
			for n := range 8 {
				if _, err := s.AddSpans(ctx, []agl.Span{benchSpan(a, int64(n+1))}); err != nil {
					return err
				}
			}
			if _, err := s.UpdateAttempt(ctx, a.RolloutID, a.AttemptID,
				store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)}); err != nil {
				return err
			}
		}
		return nil
	})
}
