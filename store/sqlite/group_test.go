package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

func openTest(t testing.TB, cfg Config) *Backend {
	t.Helper()
	if cfg.Path == "" {
		cfg.Path = filepath.Join(t.TempDir(), "agl.db")
	}
	b, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return b
}

type update struct {
	ctx context.Context
	f   func(engine.Tx) error
}

// together hands functions to the writer so that they are run in one group, in
// order, and returns what each was answered.
func together(t *testing.T, b *Backend, updates ...update) []error {
	t.Helper()
	w := b.writer
	hold, held := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	begun := sync.OnceFunc(func() { close(held) }) // the function may run again
	go func() {
		first <- b.Update(t.Context(), func(engine.Tx) error {
			begun()
			<-hold
			return nil
		})
	}()
	<-held
	answers := make([]chan error, len(updates))
	for i, u := range updates {
		answers[i] = make(chan error, 1)
		queued := make(chan struct{})
		w.mu.Lock()
		w.onQueued = func() { close(queued) }
		w.mu.Unlock()
		go func() { answers[i] <- b.Update(u.ctx, u.f) }()
		<-queued
	}
	w.mu.Lock()
	w.onQueued = nil
	w.mu.Unlock()
	close(hold)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	out := make([]error, len(updates))
	for i := range out {
		out[i] = <-answers[i]
	}
	return out
}

func insert(id string) func(engine.Tx) error {
	return func(tx engine.Tx) error {
		if err := tx.InsertRollouts([]agl.Rollout{{RolloutID: id, Status: agl.RolloutQueuing}}); err != nil {
			return err
		}
		return tx.Push([]string{id})
	}
}

func idsOf(t *testing.T, b engine.Backend) []string {
	t.Helper()
	ids := []string{}
	err := b.View(t.Context(), func(r engine.Reader) error {
		page, err := r.QueryRollouts(store.RolloutQuery{})
		for _, ro := range page.Items {
			ids = append(ids, ro.RolloutID)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// TestGroupIsolation runs good and bad functions in one group: the bad ones
// leave nothing behind and the good ones are none the wiser.
func TestGroupIsolation(t *testing.T) {
	t.Parallel()
	errBad := errors.New("bad")
	after := func(f func(engine.Tx) error, then func() error) func(engine.Tx) error {
		return func(tx engine.Tx) error {
			if err := f(tx); err != nil {
				return err
			}
			return then()
		}
	}
	fail := func() error { return errBad }
	burst := func() error { panic("burst") }

	for _, tt := range []struct {
		name string
		fs   []func(engine.Tx) error
		want []string
		errs []string // parts of the errors, empty for none
	}{
		{
			"bad first",
			[]func(engine.Tx) error{after(insert("a"), fail), insert("b"), insert("c")},
			[]string{"b", "c"},
			[]string{"bad", "", ""},
		},
		{
			"bad between",
			[]func(engine.Tx) error{insert("a"), after(insert("b"), fail), insert("c")},
			[]string{"a", "c"},
			[]string{"", "bad", ""},
		},
		{
			"bad last",
			[]func(engine.Tx) error{insert("a"), insert("b"), after(insert("c"), fail)},
			[]string{"a", "b"},
			[]string{"", "", "bad"},
		},
		{
			"all bad",
			[]func(engine.Tx) error{after(insert("a"), fail), after(insert("a"), fail), after(insert("a"), burst)},
			[]string{},
			[]string{"bad", "bad", "burst"},
		},
		{
			"panic",
			[]func(engine.Tx) error{insert("a"), after(insert("b"), burst), insert("b")},
			[]string{"a", "b"},
			[]string{"", "burst", ""},
		},
		{
			"constraint",
			[]func(engine.Tx) error{insert("a"), insert("a"), insert("b")},
			[]string{"a", "b"},
			[]string{"", "conflict", ""},
		},
		{
			"same id after a failure",
			[]func(engine.Tx) error{insert("x"), after(insert("a"), fail), insert("a")},
			[]string{"x", "a"},
			[]string{"", "bad", ""},
		},
		{
			"the transaction is lost",
			[]func(engine.Tx) error{insert("a"), lose(insert("b")), insert("c")},
			[]string{"a", "c"},
			[]string{"", "lost", ""},
		},
		{
			"the transaction is lost by a read",
			[]func(engine.Tx) error{insert("a"), loseReading, insert("b")},
			[]string{"a", "b"},
			[]string{"", "syntax", ""},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := openTest(t, Config{})
			updates := make([]update, len(tt.fs))
			for i, f := range tt.fs {
				updates[i] = update{t.Context(), f}
			}
			for i, err := range together(t, b, updates...) {
				if (err == nil) != (tt.errs[i] == "") || err != nil && !strings.Contains(err.Error(), tt.errs[i]) {
					t.Errorf("answer %d = %v, want %q", i, err, tt.errs[i])
				}
			}
			if diff := cmp.Diff(tt.want, idsOf(t, b)); diff != "" {
				t.Errorf("rollouts (-want +got):\n%s", diff)
			}
			var popped []string
			err := b.Update(t.Context(), func(tx engine.Tx) (err error) { popped, err = tx.Pop(10); return err })
			if err != nil || !cmp.Equal(append([]string{}, popped...), tt.want) {
				t.Errorf("Pop() = %q, %v, want %q", popped, err, tt.want)
			}
		})
	}
}

// TestGivenUp cancels calls before they start: they do not run, and the writer
// goes on without them.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	b := openTest(t, Config{})
	never := func(engine.Tx) error {
		t.Error("a call that was given up ran")
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	errs := together(t, b,
		update{t.Context(), func(tx engine.Tx) error { cancel(); return insert("a")(tx) }},
		update{ctx, never},
		update{t.Context(), insert("b")})
	if errs[0] != nil || !errors.Is(errs[1], context.Canceled) || errs[2] != nil {
		t.Errorf("answers = %v, want nil, context.Canceled, nil", errs)
	}
	if err := b.Update(ctx, never); !errors.Is(err, context.Canceled) {
		t.Errorf("Update with a cancelled context = %v", err)
	}
	if err := b.View(ctx, func(engine.Reader) error { t.Error("a view ran"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("View with a cancelled context = %v", err)
	}
	if diff := cmp.Diff([]string{"a", "b"}, idsOf(t, b)); diff != "" {
		t.Errorf("rollouts (-want +got):\n%s", diff)
	}
}

// lose makes a function leave the transaction behind the writer's back, as
// SQLite does when the disk is full.
func lose(f func(engine.Tx) error) func(engine.Tx) error {
	return func(inner engine.Tx) error {
		if err := f(inner); err != nil {
			return err
		}
		_, err := inner.(*tx).c.exec(rollback)
		return errors.Join(errors.New("lost"), err)
	}
}

// loseReading has a statement that only reads fail, and the transaction with it,
// as SQLite does when the disk cannot be read.
func loseReading(inner engine.Tx) error {
	c := inner.(*tx).c
	if _, err := c.exec(rollback); err != nil {
		return err
	}
	return c.run("no statement")
}

// TestCommittedIsNil cancels a context while the function runs: the commit counts.
func TestCommittedIsNil(t *testing.T) {
	t.Parallel()
	b := openTest(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	err := b.Update(ctx, func(tx engine.Tx) error {
		cancel()
		return insert("a")(tx)
	})
	if err != nil {
		t.Errorf("Update() = %v, want nil: it is durable", err)
	}
	if diff := cmp.Diff([]string{"a"}, idsOf(t, b)); diff != "" {
		t.Errorf("rollouts (-want +got):\n%s", diff)
	}
}

// TestRandomGroups gives groups of random functions, some of which fail after
// they wrote, to this backend and, one after the other, to the one in memory.
// What every function reads and what is left must be the same. It is here that
// what the writer remembers between transactions is put to the test.
func TestRandomGroups(t *testing.T) {
	t.Parallel()
	seeds := uint64(150)
	if testing.Short() {
		seeds = 15
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 7))
			sqlite, inMemory := openTest(t, Config{Sync: SyncNormal}), memory.New()
			for range 25 {
				n := 1 + r.IntN(6)
				var updates []update
				got, want := make([][]string, n), make([][]string, n)
				var wantErrs []error
				for i := range n {
					script := newScript(r)
					updates = append(updates, update{t.Context(), func(tx engine.Tx) error {
						got[i] = nil
						return script.run(tx, &got[i])
					}})
					wantErrs = append(wantErrs, inMemory.Update(t.Context(), func(tx engine.Tx) error { return script.run(tx, &want[i]) }))
				}
				errs := together(t, sqlite, updates...)
				for i := range n {
					if diff := cmp.Diff(want[i], got[i]); diff != "" || (errs[i] == nil) != (wantErrs[i] == nil) {
						t.Fatalf("function %d of the group: errors %v and %v, seen (-memory +sqlite):\n%s", i, wantErrs[i], errs[i], diff)
					}
				}
				if diff := cmp.Diff(dump(t, inMemory), dump(t, sqlite)); diff != "" {
					t.Fatalf("after a group (-memory +sqlite):\n%s", diff)
				}
			}
		})
	}
}

// script is a function as data, so that both backends can run it.
type script struct {
	steps []step
	fails bool
}

type step struct {
	kind, rollout, attempt, n int
	status                    int
}

func newScript(r *rand.Rand) script {
	s := script{fails: r.IntN(4) == 0}
	for range 1 + r.IntN(5) {
		s.steps = append(s.steps, step{r.IntN(12), r.IntN(6), r.IntN(3), 1 + r.IntN(40), r.IntN(7)})
	}
	return s
}

var errScript = errors.New("the script fails")

func (s script) run(tx engine.Tx, seen *[]string) error {
	note := func(v any, err error) error {
		*seen = append(*seen, fmt.Sprintf("%s %v", jsonOf(v), err != nil))
		return err
	}
	for _, st := range s.steps {
		if err := st.run(tx, note); err != nil {
			return err
		}
	}
	if s.fails {
		return errScript
	}
	return nil
}

func (s step) run(tx engine.Tx, note func(any, error) error) error {
	id := fmt.Sprintf("ro-%d", s.rollout)
	attempt := agl.Attempt{
		RolloutID: id, AttemptID: fmt.Sprintf("at-%d", s.attempt), SequenceID: 1 + s.attempt,
		Status: agl.AttemptStatuses()[s.status%6], StartTime: float64(s.n),
	}
	rollout := agl.Rollout{
		RolloutID: id, Status: agl.RolloutStatuses()[s.status], StartTime: float64(s.n),
		Config: agl.RolloutConfig{MaxAttempts: 1},
	}
	if s.n%2 == 0 {
		rollout.Config.TimeoutSeconds = new(float64(s.n))
	}
	// A step that the backends would refuse is left out: what they do with
	// broken promises of the engine is their own affair.
	known, err := tx.Rollouts([]string{id})
	if err := note(known, err); err != nil {
		return err
	}
	_, exists := known[id]
	have, started, err := tx.Attempt(id, attempt.AttemptID)
	if err := note(have, err); err != nil {
		return err
	}
	switch s.kind {
	case 0, 1:
		if !exists {
			return tx.InsertRollouts([]agl.Rollout{rollout})
		}
		return tx.UpdateRollouts([]agl.Rollout{rollout})
	case 2:
		if exists && s.n%3 == 0 {
			return tx.PushFront([]string{id})
		}
		if exists {
			return tx.Push([]string{id})
		}
	case 3:
		return note(tx.Pop(s.n % 4))
	case 4, 5:
		if exists && !started {
			return tx.InsertAttempts([]agl.Attempt{attempt})
		}
		if started {
			return tx.UpdateAttempts([]agl.Attempt{attempt})
		}
	case 6:
		return tx.DeleteAttempts([]store.Attempted{{RolloutID: id, AttemptID: attempt.AttemptID}})
	case 7:
		return note(tx.LatestAttempts([]string{id, "ro-0", "ro-1"}))
	case 8, 9:
		if s.n%8 == 0 { // a number that was taken and not issued comes back
			if err := note(tx.TakeSequenceIDs(id, s.n)); err != nil {
				return err
			}
			return note(tx.TakeSequenceIDs(id, -s.n/2))
		}
		return note(tx.TakeSequenceIDs(id, s.n))
	case 10:
		return tx.RaiseSequenceID(id, int64(s.n))
	case 11:
		if exists {
			return note(tx.InsertSpans(encode(agl.Span{RolloutID: id, AttemptID: attempt.AttemptID, SpanID: fmt.Sprint(s.n % 4)})))
		}
	}
	return nil
}

func jsonOf(v any) string {
	switch v := v.(type) {
	case []string:
		return fmt.Sprint(v)
	case map[string]agl.Rollout, map[string]agl.Attempt, agl.Attempt, int64, []bool:
		return mustJSON(v)
	}
	return fmt.Sprintf("%T", v)
}
