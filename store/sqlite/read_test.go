package sqlite

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
)

// TestSnapshot reads in one view while others write: it keeps seeing the state
// that it began with, and a later view sees all that was acknowledged.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	b := openTest(t, Config{})
	count := func(r engine.Reader) int64 {
		c, err := r.Counts()
		if err != nil {
			t.Fatal(err)
		}
		return c.TotalRollouts
	}
	add := func(i int) {
		if err := b.Update(t.Context(), insert(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	add(0)
	err := b.View(t.Context(), func(r engine.Reader) error {
		before := count(r)
		for i := 1; i <= 3; i++ {
			add(i)
			if after := count(r); after != before {
				t.Errorf("a view saw %d rollouts, then %d", before, after)
			}
			_ = b.View(t.Context(), func(r engine.Reader) error {
				if n := count(r); n != int64(i+1) {
					t.Errorf("a view after %d acknowledged rollouts saw %d", i+1, n)
				}
				return nil
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestReadersBesideTheWriter reads on more goroutines than there are connections
// while spans are written; every reader sees whole groups of eight.
func TestReadersBesideTheWriter(t *testing.T) {
	t.Parallel()
	b := openTest(t, Config{Readers: 3, Sync: SyncNormal})
	if err := b.Update(t.Context(), insert("ro-1")); err != nil {
		t.Fatal(err)
	}
	const groups = 60
	var wg sync.WaitGroup
	written := make(chan struct{})
	wg.Go(func() {
		defer close(written)
		for g := range groups {
			spans := make([]agl.Span, 8)
			for i := range spans {
				spans[i] = agl.SpanCore{Name: "step"}.Span("ro-1", "at-1", int64(8*g+i), 1)
			}
			if err := b.Update(t.Context(), func(tx engine.Tx) error { _, err := tx.InsertSpans(encode(spans...)); return err }); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 8 {
		wg.Go(func() {
			seen := 0
			for reading := true; reading; {
				select {
				case <-written:
					reading = false // once more, for the last group
				default:
				}
				err := b.View(t.Context(), func(r engine.Reader) error {
					page, err := r.QuerySpans(store.SpanQuery{RolloutID: "ro-1"})
					if page.Total%8 != 0 || page.Total < seen {
						t.Errorf("a reader saw %d spans after %d", page.Total, seen)
					}
					seen = page.Total
					return err
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
			if seen != 8*groups {
				t.Errorf("a reader saw %d spans in the end, want %d", seen, 8*groups)
			}
		})
	}
	wg.Wait()
}

// TestSpanAttributes stores values that JSON has no word for.
func TestSpanAttributes(t *testing.T) {
	t.Parallel()
	b := openTest(t, Config{})
	inf := math.Inf(1)
	attrs := agl.Attributes{
		{Key: "one", Value: 1.0},
		{Key: "int", Value: int64(1)},
		{Key: "big", Value: json.Number("123456789012345678901234567890")},
		{Key: "nan", Value: math.NaN()},
		{Key: "infinite", Value: -inf},
		{Key: "list", Value: []float64{1, math.NaN(), inf}},
		{Key: "text", Value: "a\x00b\u2028ü\U0001F600"},
	}
	want := agl.SpanCore{Name: "step", Attributes: attrs}.Span("ro-1", "at-1", 1, 12.5)
	want.Events = []agl.Event{{Name: "e", Attributes: agl.Attributes{{Key: "list", Value: []float64{1, inf}}}}}
	want.Links = []agl.Link{}
	err := b.Update(t.Context(), func(tx engine.Tx) error {
		if err := insert("ro-1")(tx); err != nil {
			return err
		}
		_, err := tx.InsertSpans(encode(want))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = b.View(t.Context(), func(r engine.Reader) error {
		page, err := r.QuerySpans(store.SpanQuery{RolloutID: "ro-1"})
		if err != nil || len(page.Items) != 1 {
			t.Fatalf("QuerySpans() = %d spans, %v, want 1", len(page.Items), err)
		}
		got, err := page.Items[0].Span()
		if err != nil {
			return err
		}
		// Below the span's own attributes what JSON lacks is null, read as NaN in a list.
		want.Events[0].Attributes[0].Value = []float64{1, math.NaN()}
		if diff := cmp.Diff(want, got, cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("span (-want +got):\n%s", diff)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestMetricsKeepNaN stores the loss of a run that diverged.
func TestMetricsKeepNaN(t *testing.T) {
	t.Parallel()
	b := openTest(t, Config{})
	want := []agl.StepMetrics{{Step: 1, Time: 1, Values: map[string]float64{"loss": math.NaN(), "norm": math.Inf(1), "reward": 0.5}}}
	if err := b.Update(t.Context(), func(tx engine.Tx) error { return tx.PutStepMetrics("run-1", want) }); err != nil {
		t.Fatal(err)
	}
	err := b.View(t.Context(), func(r engine.Reader) error {
		got, err := r.StepMetrics("run-1", 0)
		if diff := cmp.Diff(want, got, cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestBounded writes much more than the cache holds. Neither the memory of the
// process nor the log grows with it.
func TestBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("short: it writes 80 MB")
	}
	const cache, spans, writers, kilobytes = 4 << 20, 20_000, 8, 4
	b := openTest(t, Config{CacheBytes: cache, Sync: SyncNormal})
	if err := b.Update(t.Context(), insert("ro-1")); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("x", kilobytes<<10)
	write := func(from, to int) {
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for i := from + w; i < to; i += writers {
					s := agl.SpanCore{Name: "step", Attributes: agl.Attributes{{Key: "x", Value: text}}}.Span("ro-1", "at-1", int64(i), 1)
					if err := b.Update(t.Context(), func(tx engine.Tx) error { _, err := tx.InsertSpans(encode(s)); return err }); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	write(0, spans/10) // fills the cache
	before := resident(t)
	write(spans/10, spans)
	grown := resident(t) - before
	wal, err := os.Stat(b.cfg.Path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d MB written; memory grew by %d KiB, the log has %d KiB", spans*kilobytes>>10, grown>>10, wal.Size()>>10)
	if grown > 24<<20 {
		t.Errorf("memory grew by %d MiB while %d MiB were written", grown>>20, spans*kilobytes>>10)
	}
	if most := int64(maxLogPages+maxGroup*4) * 4120; wal.Size() > most {
		t.Errorf("the log has %d bytes, want at most %d", wal.Size(), most)
	}
}

// resident is how much memory the process occupies, garbage aside.
func resident(t *testing.T) int64 {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip(runtime.GOOS + ": resident memory is read from /proc")
	}
	runtime.GC()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
