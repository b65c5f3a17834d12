package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

func next(t *testing.T, s *engine.Store, id string) int64 {
	t.Helper()
	n, err := s.NextSequenceIDs(t.Context(), []store.Attempted{{RolloutID: id}})
	if err != nil {
		t.Fatal(err)
	}
	return n[0]
}

func TestNumberingGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	b := memory.New()
	s := engine.New(b, engine.Config{})
	for want := int64(1); want <= 40; want++ {
		if got := next(t, s, "ro-1"); got != want {
			t.Fatalf("number %d, want %d", got, want)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	after := engine.New(b, engine.Config{})
	if got := next(t, after, "ro-1"); got != 41 {
		t.Errorf("after Close: number %d, want 41", got)
	}
	// A store that is not closed is one that crashed.
	crashed := engine.New(b, engine.Config{})
	defer crashed.Close()
	if got := next(t, crashed, "ro-1"); got <= 41 || got > 41+64 {
		t.Errorf("after a crash: number %d, want a little above 41", got)
	}
}

func TestNumbersOfSpansOutliveACrash(t *testing.T) {
	t.Parallel()
	b := memory.New()
	s := engine.New(b, engine.Config{})
	if _, err := s.AddSpans(t.Context(), []agl.Span{{RolloutID: "ro-1", SequenceID: 500}}); err != nil {
		t.Fatal(err)
	}
	crashed := engine.New(b, engine.Config{})
	defer crashed.Close()
	if got := next(t, crashed, "ro-1"); got != 501 {
		t.Errorf("number %d, want 501", got)
	}
}

func TestMostNumbersNeedNoTransaction(t *testing.T) {
	t.Parallel()
	b := &counted{Backend: memory.New()}
	s := engine.New(b, engine.Config{})
	defer s.Close()
	for range 320 {
		next(t, s, "ro-1")
	}
	if n := b.updates.Load(); n > 10 {
		t.Errorf("320 numbers took %d transactions, want 10 at most", n)
	}
}

// committed calls a function between the commit of a transaction and what
// follows from it.
type committed struct {
	engine.Backend
	then func()
}

func (b *committed) Update(ctx context.Context, f func(engine.Tx) error) error {
	err := b.Backend.Update(ctx, f)
	if then := b.then; then != nil {
		b.then = nil
		then()
	}
	return err
}

func TestTheFirstNumbersComeWithTheAttempt(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(t *testing.T, s *engine.Store) string{
		"claim": func(t *testing.T, s *engine.Store) string {
			t.Helper()
			if _, err := s.EnqueueRollouts(t.Context(), make([]store.EnqueueRequest, 1)); err != nil {
				t.Fatal(err)
			}
			got, err := s.DequeueRollouts(t.Context(), store.DequeueRequest{Limit: 1})
			if err != nil || len(got) != 1 {
				t.Fatalf("claimed %d, %v", len(got), err)
			}
			return got[0].RolloutID
		},
		"start": func(t *testing.T, s *engine.Store) string {
			t.Helper()
			got, err := s.StartRollout(t.Context(), store.StartRequest{})
			if err != nil {
				t.Fatal(err)
			}
			return got.RolloutID
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			memory := memory.New()
			b := &counted{Backend: memory}
			s := engine.New(b, engine.Config{})
			defer s.Close()
			id := begin(t, s)
			before := b.updates.Load()
			for want := int64(1); want <= 20; want++ {
				if got := next(t, s, id); got != want {
					t.Fatalf("number %d, want %d", got, want)
				}
			}
			if n := b.updates.Load() - before; n != 0 {
				t.Errorf("20 numbers took %d transactions, want none", n)
			}
			crashed := engine.New(memory, engine.Config{})
			defer crashed.Close()
			if got := next(t, crashed, id); got <= 20 || got > 20+64 {
				t.Errorf("after a crash: number %d, want a little above 20", got)
			}
		})
	}
}

// Whoever asks for a number before the counter has heard of those that are
// reserved gets one above them; none is issued twice.
func TestNumbersThatAreAskedForBeforeTheyAreGranted(t *testing.T) {
	t.Parallel()
	b := &committed{Backend: memory.New()}
	s := engine.New(b, engine.Config{})
	defer s.Close()
	enqueued, err := s.EnqueueRollouts(t.Context(), make([]store.EnqueueRequest, 1))
	if err != nil {
		t.Fatal(err)
	}
	id := enqueued[0].RolloutID
	seen := map[int64]bool{}
	b.then = func() { seen[next(t, s, id)] = true }
	if _, err := s.DequeueRollouts(t.Context(), store.DequeueRequest{Limit: 1}); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		n := next(t, s, id)
		if seen[n] {
			t.Fatalf("number %d was issued twice", n)
		}
		seen[n] = true
	}
	if len(seen) != 101 {
		t.Errorf("%d numbers, want 101", len(seen))
	}
}

func TestSeveralProcessesNeverIssueTheSameNumber(t *testing.T) {
	t.Parallel()
	b := memory.New()
	var all []int64
	for i := range 30 {
		s := engine.New(b, engine.Config{PollInterval: 1e9})
		all = append(all, next(t, s, "ro-1"))
		if i%2 == 0 {
			defer s.Close()
		} else if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for i, n := range all {
		if n != int64(i+1) {
			t.Fatalf("numbers = %v, want 1 to 30", all)
		}
	}
}

// More rollouts than counters are kept for, used by many at once, with spans
// that bring their own numbers.
func TestCountersThatAreForgottenGoOn(t *testing.T) {
	t.Parallel()
	const rollouts, callers, rounds = 9000, 8, 3
	b := memory.New()
	s := engine.New(b, engine.Config{})
	defer s.Close()
	issued := make([][]int64, rollouts)
	var mu sync.Mutex
	var calls sync.WaitGroup
	for c := range callers {
		calls.Go(func() {
			for round := range rounds {
				for i := c; i < rollouts; i += callers / 2 { // two callers each
					id := fmt.Sprint("ro-", i)
					if i%100 == 0 && round == 1 {
						if _, err := s.AddSpans(t.Context(), []agl.Span{{RolloutID: id, SequenceID: 50}}); err != nil {
							t.Error(err)
						}
						if n := next(t, s, id); n <= 50 {
							t.Errorf("number %d of %s after a span with 50", n, id)
						}
					}
					n := next(t, s, id)
					mu.Lock()
					issued[i] = append(issued[i], n)
					mu.Unlock()
				}
			}
		})
	}
	calls.Wait()
	crashed := engine.New(b, engine.Config{})
	defer crashed.Close()
	for i, numbers := range issued {
		slices.Sort(numbers)
		if n := next(t, crashed, fmt.Sprint("ro-", i)); n <= numbers[len(numbers)-1] {
			t.Fatalf("rollout %d was given %v and, after a crash, %d", i, numbers, n)
		}
		if len(slices.Compact(slices.Clone(numbers))) != len(numbers) {
			t.Fatalf("rollout %d was given %v, twice the same", i, numbers)
		}
		if i%100 != 0 && numbers[len(numbers)-1] != int64(len(numbers)) {
			t.Fatalf("rollout %d was given %v, want no gap", i, numbers)
		}
	}
}
