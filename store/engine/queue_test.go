package engine_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/store/sqlite"
)

// onBackends runs a test on every backend, and on one that runs transactions twice.
func onBackends(t *testing.T, run func(t *testing.T, b engine.Backend)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) { t.Parallel(); run(t, memory.New()) })
	t.Run("twice", func(t *testing.T) { t.Parallel(); run(t, twice{memory.New()}) })
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		b, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "agl.db")})
		if err != nil {
			t.Fatal(err)
		}
		run(t, b)
	})
}

func TestQueueState(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, b engine.Backend) {
		w := newWorld(t, b, engine.Config{})
		expect := func(what string, want engine.QueueState) {
			t.Helper()
			if got, err := w.Queue(t.Context()); err != nil || got != want {
				t.Errorf("%s: Queue() = %+v, %v, want %+v", what, got, err, want)
			}
		}
		expect("empty", engine.QueueState{})
		retried := w.enqueue(agl.RolloutConfig{MaxAttempts: 2, RetryCondition: []agl.AttemptStatus{agl.AttemptFailed}})
		w.pass(10 * time.Second)
		w.enqueue(agl.RolloutConfig{MaxAttempts: 1})
		w.pass(5 * time.Second)
		expect("two", engine.QueueState{Length: 2, Waiting: 15 * time.Second})
		w.claim()
		expect("one claimed", engine.QueueState{Length: 1, Waiting: 5 * time.Second})
		if _, err := w.UpdateAttempt(t.Context(), retried, agl.LatestAttempt, store.AttemptUpdate{Status: store.To(agl.AttemptFailed)}); err != nil {
			t.Fatal(err)
		}
		w.claim()
		w.pass(3 * time.Second)
		expect("back after an attempt", engine.QueueState{Length: 1, Waiting: 3 * time.Second})
	})
}

func TestSecret(t *testing.T) {
	t.Parallel()
	onBackends(t, func(t *testing.T, b engine.Backend) {
		s := engine.New(b, engine.Config{})
		defer func() { _ = s.Close() }()
		secret := func(name string) []byte {
			t.Helper()
			got, err := s.Secret(t.Context(), name)
			if err != nil || len(got) != 32 {
				t.Fatalf("Secret(%q) = %x, %v, want 32 bytes", name, got, err)
			}
			return got
		}
		one := secret("one")
		if again := secret("one"); !bytes.Equal(again, one) {
			t.Errorf("Secret = %x, then %x, want the same", one, again)
		}
		if other := secret("other"); bytes.Equal(other, one) {
			t.Error("two names have one secret")
		}
		// What is undone leaves none.
		undone := errors.New("undone")
		err := b.Update(t.Context(), func(tx engine.Tx) error {
			if _, err := tx.Secret("late", []byte("first")); err != nil {
				return err
			}
			return undone
		})
		if !errors.Is(err, undone) {
			t.Fatal(err)
		}
		if got := secret("late"); bytes.Equal(got, []byte("first")) {
			t.Errorf("Secret = %q, want a fresh one after a rollback", got)
		}
	})
}
