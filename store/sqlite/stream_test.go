package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
)

// TestStream compares streams with the queries that have everything in memory.
// While an item is looked at no transaction is open: with one reader, another
// read would wait for ever.
func TestStream(t *testing.T) {
	t.Parallel()
	b := openTest(t, Config{Readers: 1})
	const n = 700
	err := b.Update(t.Context(), func(tx engine.Tx) error {
		if err := insert("ro")(tx); err != nil {
			return err
		}
		for i := range n {
			if err := insert(fmt.Sprint("ro-", i))(tx); err != nil {
				return err
			}
			if i%3 == 0 {
				a := agl.Attempt{RolloutID: fmt.Sprint("ro-", i), AttemptID: "at", SequenceID: 1, Status: agl.AttemptRunning}
				if err := tx.InsertAttempts([]agl.Attempt{a}); err != nil {
					return err
				}
			}
			span := agl.Span{
				RolloutID: "ro", AttemptID: "at", SpanID: fmt.Sprint(i), SequenceID: int64(i * 37 % 101),
				Name: strings.Repeat("x", i%7*2000),
			}
			if _, err := tx.InsertSpans(encode(span)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []store.Paging{
		{SortBy: "rollout_id"},
		{SortBy: "start_time", Desc: true, Limit: 500, Offset: 11},
		{Offset: 650},
	} {
		t.Run(fmt.Sprintf("%+v", p), func(t *testing.T) {
			spans := p
			if p.SortBy == "rollout_id" {
				spans.SortBy = "sequence_id"
			}
			attempt := "at"
			for _, q := range []store.SpanQuery{{RolloutID: "ro", Paging: spans}, {RolloutID: "ro", AttemptID: &attempt, Paging: spans}} {
				compareStream(t, b, func(f func(store.SpanJSON) error) (int, error) { return b.StreamSpans(t.Context(), q, f) },
					func(r engine.Reader) (store.Page[store.SpanJSON], error) { return r.QuerySpans(q) })
			}
			q := store.RolloutQuery{Paging: p}
			compareStream(t, b, func(f func(agl.AttemptedRollout) error) (int, error) {
				return b.StreamRollouts(t.Context(), q, func(r *agl.AttemptedRollout) error { return f(*r) })
			}, func(r engine.Reader) (store.Page[agl.AttemptedRollout], error) { return r.QueryRollouts(q) })
		})
	}
	enough := errors.New("enough")
	if _, err := b.StreamRollouts(t.Context(), store.RolloutQuery{}, func(*agl.AttemptedRollout) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("StreamRollouts() = %v, want the error of the function", err)
	}
}

// sameSpans compares spans as a whole: byte by byte takes seconds.
func sameSpans() cmp.Option {
	return cmp.Comparer(func(a, b store.SpanJSON) bool { return bytes.Equal(a, b) })
}

func compareStream[T any](t *testing.T, b *Backend, stream func(func(T) error) (int, error), read func(engine.Reader) (store.Page[T], error)) {
	t.Helper()
	got := store.Page[T]{Items: []T{}}
	look := func(engine.Reader) error { return nil }
	var err error
	got.Total, err = stream(func(item T) error {
		if got.Items = append(got.Items, item); len(got.Items)%200 != 1 {
			return nil
		}
		return b.View(t.Context(), look)
	})
	if err != nil {
		t.Fatal(err)
	}
	err = b.View(t.Context(), func(r engine.Reader) error {
		want, err := read(r)
		if diff := cmp.Diff(want, got, sameSpans()); diff != "" {
			t.Errorf("stream (-query +stream):\n%.3000s", diff)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestStreamSkips deletes what a stream has not come to yet.
func TestStreamSkips(t *testing.T) {
	t.Parallel()
	b := openTest(t, Config{})
	const n = 2*streamRows + 10
	err := b.Update(t.Context(), func(tx engine.Tx) error {
		for i := range n {
			if err := insert(fmt.Sprint("ro-", i))(tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	total, err := b.StreamRollouts(t.Context(), store.RolloutQuery{}, func(r *agl.AttemptedRollout) error {
		if seen = append(seen, r.RolloutID); len(seen) > 1 {
			return nil
		}
		return b.Update(t.Context(), func(tx engine.Tx) error { return tx.DeleteRollouts([]string{fmt.Sprint("ro-", n-1)}) })
	})
	if err != nil || total != n || len(seen) != n-1 || seen[n-2] != fmt.Sprint("ro-", n-2) {
		t.Errorf("StreamRollouts() = %d, %v with %d rollouts, want %d without the last", total, err, len(seen), n)
	}
	if length := queueLengthOf(t, b); length != n-1 {
		t.Errorf("QueueLength() = %d, want %d", length, n-1)
	}
}

// TestStreamOfReplaced deletes what a stream has not come to yet and puts
// something else in its place, which SQLite gives the same row numbers.
func TestStreamOfReplaced(t *testing.T) {
	t.Parallel()
	b := openTest(t, Config{})
	const n = streamRows + 10
	spans := func(tx engine.Tx, rollout string) error {
		if err := insert(rollout)(tx); err != nil {
			return err
		}
		for i := range n {
			span := agl.Span{RolloutID: rollout, AttemptID: "at", SpanID: fmt.Sprint(i), SequenceID: int64(i)}
			if _, err := tx.InsertSpans(encode(span)); err != nil {
				return err
			}
		}
		return nil
	}
	ids := func(tx engine.Tx, prefix string) error {
		for i := range n {
			if err := insert(fmt.Sprint(prefix, i))(tx); err != nil {
				return err
			}
		}
		return nil
	}
	names := func(prefix string) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprint(prefix, i))
		}
		return out
	}
	if err := b.Update(t.Context(), func(tx engine.Tx) error { return ids(tx, "old-") }); err != nil {
		t.Fatal(err)
	}
	old, seen := "old-", 0
	_, err := b.StreamRollouts(t.Context(), store.RolloutQuery{RolloutIDContains: &old}, func(r *agl.AttemptedRollout) error {
		if !strings.HasPrefix(r.RolloutID, old) {
			t.Errorf("the stream of old rollouts has %s", r.RolloutID)
		}
		if seen++; seen > 1 {
			return nil
		}
		return b.Update(t.Context(), func(tx engine.Tx) error {
			if err := tx.DeleteRollouts(names("old-")); err != nil {
				return err
			}
			return ids(tx, "new-")
		})
	})
	if err != nil || seen != streamRows {
		t.Errorf("StreamRollouts() gave %d rollouts, %v, want those of the first part, %d", seen, err, streamRows)
	}

	if err := b.Update(t.Context(), func(tx engine.Tx) error { return spans(tx, "mine") }); err != nil {
		t.Fatal(err)
	}
	seen = 0
	_, err = b.StreamSpans(t.Context(), store.SpanQuery{RolloutID: "mine"}, func(j store.SpanJSON) error {
		if !bytes.Contains(j, []byte(`"mine"`)) {
			t.Errorf("the stream of one rollout has a span of another: %s", j)
		}
		if seen++; seen > 1 {
			return nil
		}
		return b.Update(t.Context(), func(tx engine.Tx) error {
			if err := tx.DeleteRollouts([]string{"mine"}); err != nil {
				return err
			}
			return spans(tx, "yours")
		})
	})
	if err != nil || seen != streamRows {
		t.Errorf("StreamSpans() gave %d spans, %v, want those of the first part, %d", seen, err, streamRows)
	}
}

func queueLengthOf(t *testing.T, b *Backend) (n int) {
	t.Helper()
	err := b.View(t.Context(), func(r engine.Reader) (err error) {
		n, err = r.QueueLength()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestQueueIsCounted opens a database with a queue, and undoes changes of it.
func TestQueueIsCounted(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/agl.db"
	b, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b", "c"} {
		if err := b.Update(t.Context(), insert(id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = openTest(t, Config{Path: path})
	errs := together(t, b,
		update{t.Context(), insert("d")},
		update{t.Context(), func(tx engine.Tx) error {
			if _, err := tx.Pop(2); err != nil {
				return err
			}
			if n, err := tx.QueueLength(); n != 2 || err != nil {
				t.Errorf("QueueLength() = %d, %v inside the transaction, want 2", n, err)
			}
			return errors.New("undone")
		}},
		update{t.Context(), func(tx engine.Tx) error { return tx.Push([]string{"a", "b"}) }}) // which are queued already
	if errs[0] != nil || errs[1] == nil || errs[2] != nil {
		t.Errorf("answers = %v", errs)
	}
	if n := queueLengthOf(t, b); n != 4 {
		t.Errorf("QueueLength() = %d, want 4", n)
	}
}
