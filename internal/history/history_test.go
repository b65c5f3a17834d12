package history_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentlightning/internal/history"
	"agentlightning/llmproxy"
)

// values writes a series with -1 where nothing is known.
func values(s []*float64) []float64 {
	out := make([]float64, len(s))
	for i, v := range s {
		out[i] = -1
		if v != nil {
			out[i] = *v
		}
	}
	return out
}

// world is what is looked at; each look finds more.
type world struct {
	mu       sync.Mutex // held while a look reads, and while the test changes something
	looks    int
	fails    bool
	backends []llmproxy.Traffic
}

func (w *world) store(context.Context) (history.Store, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fails {
		return history.Store{}, errors.New("no disk")
	}
	w.looks++
	n := int64(w.looks)
	return history.Store{Bytes: 1000 * n, Rollouts: n, Spans: 10 * n, Queue: 7, Commits: 50 * n}, nil
}

func (w *world) traffic() []llmproxy.Traffic {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.backends)
}

// change changes what the next look finds.
func (w *world) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// lived runs f with a history that looks every five seconds.
func lived(t *testing.T, w *world, f func(h *history.History)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := history.New(history.Config{Store: w.store, Backends: w.traffic})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { h.Run(ctx); close(done) }()
		synctest.Wait()
		f(h)
		stop()
		<-done
	})
}

// pass lets time go by, and the looks in it happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestSamplesOfTheStore(t *testing.T) {
	t.Parallel()
	w := &world{}
	lived(t, w, func(h *history.History) {
		if got := h.Show(false, 100); len(got.Times) != 0 || got.Started == 0 || got.Step != 5 {
			t.Errorf("at the start: %+v", got)
		}
		pass(15 * time.Second)
		w.change(func() { w.fails = true })
		pass(5 * time.Second)
		w.change(func() { w.fails = false })
		pass(5 * time.Second)
		got := h.Show(false, 100)
		for _, s := range []struct {
			name string
			got  []*float64
			want []float64
		}{
			{"bytes", got.Store.Bytes, []float64{2000, 3000, 4000, -1, 5000}},
			{"spans", got.Store.Spans, []float64{20, 30, 40, -1, 50}},
			{"queue", got.Store.Queue, []float64{7, 7, 7, -1, 7}},
			{"commits", got.Store.Commits, []float64{10, 10, 10, -1, -1}},
		} {
			if diff := cmp.Diff(s.want, values(s.got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", s.name, diff)
			}
		}
		if len(got.Times) != 5 || got.Times[4]-got.Times[0] != 20 {
			t.Errorf("times are %v", got.Times)
		}
		if got := h.Show(true, 100); len(got.Times) != 0 || got.Step != 60 {
			t.Errorf("the day after 25 s: %+v", got)
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	w := &world{}
	for i := range 70 {
		w.backends = append(w.backends, llmproxy.Traffic{Model: "m", Endpoint: strconv.Itoa(i)})
	}
	lived(t, w, func(h *history.History) {
		pass(25 * time.Hour)
		recent, day := h.Show(false, 2000), h.Show(true, 2000)
		if n, of := len(recent.Times), recent.Times[len(recent.Times)-1]-recent.Times[0]; n != 180 || of != 179*5 {
			t.Errorf("recent has %d times over %v s", n, of)
		}
		if n, of := len(day.Times), day.Times[len(day.Times)-1]-day.Times[0]; n != 1440 || of != 1439*60 {
			t.Errorf("the day has %d times over %v s", n, of)
		}
		if len(day.Backends) != 64 {
			t.Errorf("%d backends are followed", len(day.Backends))
		}
		// The newest is last, however the ring has turned.
		looks := 0
		w.change(func() { looks = w.looks })
		if got := values(recent.Store.Rollouts); got[179] != float64(looks) || got[0] != float64(looks-179) {
			t.Errorf("rollouts are from %v to %v, want up to %d", got[0], got[179], looks)
		}
		// A new backend takes the place of one that is gone.
		w.change(func() {
			w.backends = append(w.backends[1:], llmproxy.Traffic{Model: "m", Endpoint: "new"})
			w.backends = w.backends[len(w.backends)-64:]
		})
		pass(5 * time.Second)
		found := false
		for _, b := range h.Show(false, 10).Backends {
			found = found || b.Endpoint == "new"
		}
		if !found {
			t.Error("the new backend is not followed")
		}
		// Joined, it is as long as asked for, and ends with the newest.
		short := h.Show(true, 100)
		if n := len(short.Times); n < 90 || n > 100 || short.Step != 15*60 || short.Times[n-1] != day.Times[1439] {
			t.Errorf("joined to %d times with a step of %v", n, short.Step)
		}
	})
}

func TestSamplesOfABackend(t *testing.T) {
	t.Parallel()
	w := &world{backends: []llmproxy.Traffic{{Model: "m", Endpoint: "a"}}}
	a := &w.backends[0]
	call := func(n int64, took time.Duration) {
		a.Calls += n
		for i := range a.Durations {
			if took <= llmproxy.DurationBound(i) {
				a.Durations[i] += n
				break
			}
		}
	}
	lived(t, w, func(h *history.History) {
		w.change(func() {
			call(90, 10*time.Millisecond)
			call(10, 2*time.Second)
			a.PromptTokens, a.AnswerTokens, a.Failures, a.Open = 1000, 500, 5, 3
		})
		pass(5 * time.Second)
		pass(5 * time.Second) // nothing more
		b := h.Show(false, 100).Backends[0]
		for _, s := range []struct {
			name string
			got  []*float64
			want []float64
		}{
			{"calls", b.Calls, []float64{20, 0}},
			{"failures", b.Failures, []float64{1, 0}},
			{"prompt", b.PromptTokens, []float64{200, 0}},
			{"answer", b.AnswerTokens, []float64{100, 0}},
			{"open", b.Open, []float64{3, 3}},
		} {
			if diff := cmp.Diff(s.want, values(s.got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", s.name, diff)
			}
		}
		near := func(name string, got *float64, low, high float64) {
			if got == nil || *got < low || *got > high {
				t.Errorf("%s = %v, want from %v to %v", name, values([]*float64{got}), low, high)
			}
		}
		near("p50", b.P50[0], 0.008, 0.0114)
		near("p95", b.P95[0], 1.4, 2.1)
		if b.P50[1] != nil || b.P95[1] != nil {
			t.Errorf("latencies without a call are %v, %v", b.P50[1], b.P95[1])
		}

		// It goes, and comes back with counts of its own.
		w.change(func() { w.backends = nil })
		pass(5 * time.Second)
		w.change(func() { w.backends = []llmproxy.Traffic{{Model: "m", Endpoint: "a", Calls: 10}} })
		pass(5 * time.Second)
		w.change(func() { w.backends = []llmproxy.Traffic{{Model: "m", Endpoint: "a", Calls: 5}} }) // registered anew
		pass(5 * time.Second)
		b = h.Show(false, 100).Backends[0]
		if diff := cmp.Diff([]float64{20, 0, -1, 2, 1}, values(b.Calls)); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		// The highest latency of those that are joined, and the mean of what is known.
		b = h.Show(false, 1).Backends[0]
		near("p95", b.P95[0], 1.4, 2.1)
		if got := values(b.Calls)[0]; math.Abs(got-5.75) > 0.001 {
			t.Errorf("calls joined = %v, want 5.75", got)
		}
	})
}
