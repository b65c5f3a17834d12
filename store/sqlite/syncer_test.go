package sqlite

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
)

// held replaces the flush of a database by one that tells when it is called and
// waits for its outcome.
func held(b *Backend) (called chan struct{}, outcome chan error) {
	called, outcome = make(chan struct{}), make(chan error)
	b.writer.sync.flush = func() error {
		called <- struct{}{}
		return <-outcome
	}
	return called, outcome
}

// TestDurableFirst holds a group back before it is on the disk: nobody is told of
// it, not even by a read, and meanwhile the functions of the next group run.
func TestDurableFirst(t *testing.T) {
	t.Parallel()
	b := openTest(t, Config{})
	called, outcome := held(b)
	answers, reads, ran := make(chan error, 2), make(chan []string, 1), make(chan struct{})
	go func() { answers <- b.Update(t.Context(), insert("a")) }()
	<-called
	go func() {
		answers <- b.Update(t.Context(), func(tx engine.Tx) error {
			close(ran)
			return insert("b")(tx)
		})
	}()
	<-ran
	viewed := make(chan struct{})
	go func() {
		var ids []string
		err := b.View(t.Context(), func(r engine.Reader) error {
			defer close(viewed)
			page, err := r.QueryRollouts(store.RolloutQuery{})
			for _, ro := range page.Items {
				ids = append(ids, ro.RolloutID)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		reads <- ids
	}()
	<-viewed
	if _, ok := b.RecentRollout("a"); ok {
		t.Error("a rollout is at hand that is not on the disk")
	}
	select {
	case err := <-answers:
		t.Fatalf("Update() = %v before it was on the disk", err)
	case ids := <-reads:
		t.Fatalf("a read saw %q before it was on the disk", ids)
	default:
	}
	outcome <- nil
	if err := <-answers; err != nil {
		t.Errorf("Update() = %v", err)
	}
	if diff := cmp.Diff([]string{"a"}, <-reads); diff != "" {
		t.Errorf("what a read saw (-want +got):\n%s", diff)
	}
	<-called
	outcome <- nil
	if err := <-answers; err != nil {
		t.Errorf("Update() of the next group = %v", err)
	}
	b.writer.sync.flush = func() error { return nil } // for Close
}

// TestFlushFails has the disk fail: whoever waits is told, nothing more is
// written, and readers see one state wherever they look.
func TestFlushFails(t *testing.T) {
	t.Parallel()
	b := openTest(t, Config{})
	if err := b.Update(t.Context(), insert("before")); err != nil {
		t.Fatal(err)
	}
	called, outcome := held(b)
	answers := make(chan error, 2)
	go func() {
		answers <- b.Update(t.Context(), func(tx engine.Tx) error {
			if err := tx.UpdateRollouts([]agl.Rollout{{RolloutID: "before", Status: agl.RolloutFailed}}); err != nil {
				return err
			}
			return insert("a")(tx)
		})
	}()
	<-called
	go func() { answers <- b.Update(t.Context(), insert("b")) }()
	outcome <- errors.New("broken disk")
	for range 2 {
		if err := <-answers; err == nil || !strings.Contains(err.Error(), "broken disk") {
			t.Errorf("Update() = %v, want the error of the disk", err)
		}
	}
	if err := b.Update(t.Context(), insert("c")); err == nil || !strings.Contains(err.Error(), "start the server again") {
		t.Errorf("Update() later = %v, want what to do", err)
	}
	var read agl.AttemptedRollout
	err := b.View(t.Context(), func(r engine.Reader) (err error) { read, _, err = r.Rollout("before"); return err })
	if err != nil {
		t.Errorf("View() = %v, want reading to go on", err)
	}
	if at, ok := b.RecentRollout("before"); ok && at.Status != read.Status {
		t.Errorf("at hand the rollout is %s, in the database %s", at.Status, read.Status)
	}
}

// TestRecentIsBounded adds more than is held: the oldest goes, the newest is
// there, and what is asked for is the same as from the database.
func TestRecentIsBounded(t *testing.T) {
	t.Parallel()
	b := openTest(t, Config{Sync: SyncNormal})
	const rollouts, spans = 40, 20
	text := strings.Repeat("x", 45_000) // 36 MB in all, 900 kB an attempt
	for i := range rollouts {
		id := fmt.Sprint("ro-", i)
		err := b.Update(t.Context(), func(tx engine.Tx) error {
			if err := insert(id)(tx); err != nil {
				return err
			}
			if err := tx.InsertAttempts([]agl.Attempt{{RolloutID: id, AttemptID: "at", SequenceID: 1}}); err != nil {
				return err
			}
			for n := range spans {
				span := agl.Span{RolloutID: id, AttemptID: "at", SpanID: fmt.Sprint(n), SequenceID: int64(spans - n), Name: text}
				if _, err := tx.InsertSpans(encode(span)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	r := b.writer.recent
	if r.bytes > maxRecentBytes || r.bytes < maxRecentBytes/2 {
		t.Errorf("%d bytes are held, want close to %d", r.bytes, maxRecentBytes)
	}
	latest := agl.LatestAttempt
	q := store.SpanQuery{RolloutID: "ro-0", AttemptID: &latest, Paging: store.Paging{SortBy: "sequence_id", Limit: 3, Offset: 2}}
	if _, ok := b.RecentSpans(q); ok {
		t.Error("the spans of the oldest rollout are still held")
	}
	q.RolloutID = fmt.Sprint("ro-", rollouts-1)
	got, ok := b.RecentSpans(q)
	if !ok {
		t.Fatal("the spans of the newest rollout are not held")
	}
	err := b.View(t.Context(), func(r engine.Reader) error {
		want, err := r.QuerySpans(q)
		if diff := cmp.Diff(want, got, sameSpans()); diff != "" {
			t.Errorf("spans (-database +at hand):\n%.2000s", diff)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = b.Update(t.Context(), func(tx engine.Tx) error {
		return tx.DeleteAttempts([]store.Attempted{{RolloutID: q.RolloutID, AttemptID: "at"}})
	})
	if err != nil {
		t.Fatal(err)
	}
	if page, ok := b.RecentSpans(q); ok {
		t.Errorf("%d spans are held of an attempt that is gone", page.Total)
	}
}

// TestHandedInIsNotKept changes the spans that were handed in: what is at hand
// stays as it was stored.
func TestHandedInIsNotKept(t *testing.T) {
	t.Parallel()
	b := openTest(t, Config{})
	spans := encode(agl.Span{RolloutID: "ro", AttemptID: "at", SpanID: "one", Name: "as stored"})
	err := b.Update(t.Context(), func(tx engine.Tx) error {
		if err := insert("ro")(tx); err != nil {
			return err
		}
		if err := tx.InsertAttempts([]agl.Attempt{{RolloutID: "ro", AttemptID: "at", SequenceID: 1}}); err != nil {
			return err
		}
		_, err := tx.InsertSpans(spans)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	spans[0] = encode(agl.Span{RolloutID: "ro", AttemptID: "at", SpanID: "two", Name: "another"})[0]
	attempt, name := "at", "as stored"
	page, ok := b.RecentSpans(store.SpanQuery{RolloutID: "ro", AttemptID: &attempt, Name: &name})
	if !ok || page.Total != 1 || !strings.Contains(string(page.Items[0]), name) {
		t.Errorf("at hand are %q, %t, want the span as it was stored", page.Items, ok)
	}
}

// TestReadsAreMonotonic reads a rollout in transactions and at hand in turn
// while it changes: nobody sees an older state after a newer one.
func TestReadsAreMonotonic(t *testing.T) {
	t.Parallel()
	for _, level := range []Sync{SyncFull, SyncNormal} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			b := openTest(t, Config{Sync: level})
			if err := b.Update(t.Context(), insert("a")); err != nil {
				t.Fatal(err)
			}
			const changes = 1000
			var done atomic.Bool
			var readers sync.WaitGroup
			for range 2 {
				readers.Go(func() {
					for !done.Load() {
						var seen float64
						err := b.View(t.Context(), func(r engine.Reader) error {
							ro, _, err := r.Rollout("a")
							seen = ro.StartTime
							return err
						})
						at, ok := b.RecentRollout("a")
						if err != nil || !ok || at.StartTime < seen {
							t.Errorf("at hand is state %v, %t after state %v was read, %v", at.StartTime, ok, seen, err)
							return
						}
					}
				})
			}
			for i := range changes {
				ro := agl.Rollout{RolloutID: "a", Status: agl.RolloutQueuing, StartTime: float64(i + 1)}
				if err := b.Update(t.Context(), func(tx engine.Tx) error { return tx.UpdateRollouts([]agl.Rollout{ro}) }); err != nil {
					t.Fatal(err)
				}
			}
			done.Store(true)
			readers.Wait()
		})
	}
}

// TestKnownAfterFailedRead has a lookup of attempts fail: the writer does not
// take that for an answer.
func TestKnownAfterFailedRead(t *testing.T) {
	t.Parallel()
	b := openTest(t, Config{})
	err := b.Update(t.Context(), func(tx engine.Tx) error {
		if err := insert("ro")(tx); err != nil {
			return err
		}
		return tx.InsertAttempts([]agl.Attempt{{RolloutID: "ro", AttemptID: "at", SequenceID: 1}})
	})
	if err != nil {
		t.Fatal(err)
	}
	latest := func(tx engine.Tx) (agl.Attempt, error) {
		found, err := tx.LatestAttempts([]string{"ro"})
		return found["ro"], err
	}
	err = b.Update(t.Context(), func(inner engine.Tx) error {
		x := inner.(*tx)
		x.known.forgetLatest("ro")
		if err := x.c.run("ALTER TABLE attempts RENAME TO elsewhere"); err != nil {
			return err
		}
		if _, err := latest(inner); err == nil {
			t.Error("LatestAttempts() without a table = nil")
		}
		return x.c.run("ALTER TABLE elsewhere RENAME TO attempts")
	})
	if err != nil {
		t.Fatal(err)
	}
	err = b.Update(t.Context(), func(tx engine.Tx) error {
		a, err := latest(tx)
		if a.AttemptID != "at" {
			t.Errorf("the latest attempt is %q after a failed read, want at", a.AttemptID)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAtHandBeforeRead has a group become durable: what is at hand knows of it
// before a reader that waits for it goes on, and a group after it that failed to
// commit and was noted first does not make readers wait for ever.
func TestAtHandBeforeRead(t *testing.T) {
	t.Parallel()
	var s *syncer
	s = newSyncer(func() error { return nil }, func(g *group, _ error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.durable >= g.number {
			t.Error("readers went on before the group was at hand")
		}
	})
	g := &group{}
	<-s.free
	if err := s.begin(g); err != nil {
		t.Fatal(err)
	}
	go s.run()
	s.work <- g
	s.await()
	s.stop()

	s.committed = 3
	s.reach(3)
	s.reach(2)
	s.await()
}
