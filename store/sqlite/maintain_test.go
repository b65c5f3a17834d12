package sqlite_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/sqlite"
)

// clocked opens a store whose clock the test turns.
func clocked(t *testing.T, path string, now *time.Time) *engine.Store {
	t.Helper()
	b, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return engine.New(b, engine.Config{Now: func() time.Time { return *now }})
}

// work makes n rollouts with two attempts and three spans each, and ends them.
func work(t *testing.T, s *engine.Store, n int) []string {
	t.Helper()
	ctx := t.Context()
	ids := make([]string, n)
	for i := range ids {
		made := must(s.StartRollout(ctx, store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: []byte(`"x"`)}}))(t)
		ids[i] = made.RolloutID
		second := must(s.StartAttempt(ctx, made.RolloutID, nil))(t)
		var spans []agl.Span
		for k, at := range []string{made.Attempt.AttemptID, second.Attempt.AttemptID, second.Attempt.AttemptID} {
			core := agl.SpanCore{Name: "step", Attributes: agl.Attributes{{Key: "text", Value: strings.Repeat("y", 500)}}}
			spans = append(spans, core.Span(made.RolloutID, at, int64(k), 1))
		}
		must(s.AddSpans(ctx, spans))(t)
		must(s.UpdateAttempt(ctx, made.RolloutID, agl.LatestAttempt, store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)}))(t)
	}
	return ids
}

// must unwraps a result that has to be without error: must(s.Rollout(…))(t).
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// sound checks a database and returns its counts.
func sound(t *testing.T, path string) sqlite.Report {
	t.Helper()
	r := must(sqlite.Check(t.Context(), path))(t)
	for _, p := range r.Problems {
		t.Errorf("Check: %s", p)
	}
	return r
}

// untold is for work of which nobody wants to hear.
func untold(store.Pruned) error { return nil }

func TestPrune(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agl.db")
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ctx := t.Context()
	s := clocked(t, path, &now)
	old := work(t, s, 450) // more than two transactions delete
	logged := func(id string, ends bool) {
		must(s.CreateRun(ctx, agl.Run{RunID: id}))(t)
		lines := []agl.LogLine{{Level: agl.LogInfo, Message: "a"}, {Level: agl.LogInfo, Message: "b"}}
		if err := s.AddLogLines(ctx, id, lines...); err != nil {
			t.Fatal(err)
		}
		if ends {
			must(s.UpdateRun(ctx, id, store.RunUpdate{Status: store.To(agl.RunSucceeded)}))(t)
		}
	}
	logged("run-old", true)
	logged("run-open", false)
	queued := must(s.EnqueueRollouts(ctx, []store.EnqueueRequest{{Input: []byte("1")}, {Input: []byte("2")}}))(t)
	must(s.UpdateRollout(ctx, queued[0].RolloutID, store.RolloutUpdate{Status: store.To(agl.RolloutCancelled)}))(t) // stays in the queue
	now = now.Add(time.Hour)
	kept := work(t, s, 20)
	logged("run-new", true)
	now = now.Add(time.Hour)
	cutoff := agl.Seconds(time.Date(2026, 1, 1, 0, 30, 0, 0, time.UTC))
	size := must(os.Stat(path))(t).Size() + must(os.Stat(path+"-wal"))(t).Size()
	got := must(s.Prune(ctx, cutoff, untold))(t)
	if got.Rollouts != 451 || got.Attempts != 900 || got.Spans != 1350 || got.LogLines != 2 || got.Bytes < 1350*700 || got.Bytes > size {
		t.Errorf("Prune = %+v, want 451 rollouts, 900 attempts, 1350 spans, 2 lines of logs, and less than the %d bytes of the files", got, size)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r := sound(t, path)
	if r.Counts.TotalRollouts != 21 || r.Counts.TotalAttempts != 40 || r.Counts.TotalSpans != 60 || r.Queued != 1 {
		t.Errorf("left are %+v and %d queued, want 21 rollouts, 40 attempts, 60 spans, 1 queued", r.Counts, r.Queued)
	}

	// The store goes on: what is left is there, and what is new is counted.
	s = clocked(t, path, &now)
	if _, err := s.Rollout(ctx, old[0]); err == nil {
		t.Error("a pruned rollout is still there")
	}
	for id, want := range map[string][2]int64{"run-old": {0, 2}, "run-open": {2, 0}, "run-new": {2, 0}} {
		log := must(s.RunLog(ctx, store.LogQuery{RunID: id}))(t)
		if got := [2]int64{int64(len(log.Lines)), log.Dropped}; got != want || log.Last != 2 {
			t.Errorf("log of %s: %d lines, %d dropped, last %d, want %v and 2", id, got[0], got[1], log.Last, want)
		}
	}
	if err := s.AddLogLines(ctx, "run-old", agl.LogLine{Level: agl.LogInfo, Message: "c"}); err != nil {
		t.Error(err)
	}
	if log := must(s.RunLog(ctx, store.LogQuery{RunID: "run-old"}))(t); len(log.Lines) != 1 || log.First != 3 || log.Lines[0].Position != 3 {
		t.Errorf("log that goes on = %+v, want the third line", log)
	}
	page := must(s.QueryRollouts(ctx, store.RolloutQuery{StatusIn: []agl.RolloutStatus{agl.RolloutSucceeded}}))(t)
	var left []string
	for _, ro := range page.Items {
		left = append(left, ro.RolloutID)
	}
	if diff := cmp.Diff(kept, left); diff != "" {
		t.Errorf("rollouts that are left (-want +got):\n%s", diff)
	}
	claimed := must(s.DequeueRollouts(ctx, store.DequeueRequest{Limit: 5}))(t)
	if len(claimed) != 1 || claimed[0].RolloutID != queued[1].RolloutID {
		t.Errorf("claimed %v, want the one that waits", claimed)
	}
	work(t, s, 5)
	if st := must(s.Statistics(ctx))(t); st.TotalRollouts != 26 || st.TotalSpans != 75 {
		t.Errorf("statistics = %+v, want 26 rollouts and 75 spans", st)
	}
	// Everything that has ended, so that the ends of the tables go, too.
	must(s.Prune(ctx, agl.Seconds(now.Add(time.Minute)), untold))(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if r := sound(t, path); r.Counts.TotalRollouts != 1 || r.Counts.TotalAttempts != 1 || r.Counts.TotalSpans != 0 {
		t.Errorf("left are %+v, want the claimed rollout", r.Counts)
	}
	before, after, err := sqlite.Vacuum(ctx, sqlite.Config{Path: path})
	if err != nil || after >= before/2 {
		t.Errorf("Vacuum = %d, %d, %v, want a much smaller file", before, after, err)
	}
	sound(t, path)
}

// TestBackupWhileTheServerWrites copies a database again and again during
// writes; every copy is a state that the store went through.
func TestBackupWhileTheServerWrites(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "agl.db")
	now := time.Now()
	s := clocked(t, path, &now)
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		for ctx.Err() == nil {
			// Pairs, so that half of one would show.
			_, err := s.EnqueueRollouts(context.WithoutCancel(ctx), []store.EnqueueRequest{{Input: []byte("1")}, {Input: []byte("2")}})
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	var sizes []int64
	for i := range 5 {
		to := filepath.Join(dir, "copy-"+strconv.Itoa(i)+".db")
		if err := sqlite.Backup(t.Context(), path, to); err != nil {
			t.Errorf("Backup = %v", err)
			continue
		}
		r := sound(t, to)
		if r.Counts.TotalRollouts%2 != 0 || r.Queued != r.Counts.TotalRollouts {
			t.Errorf("the copy has %d rollouts and %d in the queue, want as many, and an even number", r.Counts.TotalRollouts, r.Queued)
		}
		sizes = append(sizes, r.Counts.TotalRollouts)
	}
	sound(t, path) // while it is written
	stop()
	writing.Wait()
	if !slices.IsSorted(sizes) {
		t.Errorf("copies have %v rollouts, want more each time", sizes)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	last := filepath.Join(dir, "copy-4.db")
	if err := sqlite.Backup(t.Context(), path, last); err == nil || !strings.Contains(err.Error(), "there is a file of that name") {
		t.Errorf("Backup over a file = %v, want a refusal", err)
	}
	// A copy is a database like any other.
	again := clocked(t, last, &now)
	if got := must(again.DequeueRollouts(t.Context(), store.DequeueRequest{Limit: 1}))(t); sizes[4] > 0 && len(got) != 1 {
		t.Errorf("the copy hands out %d rollouts, want 1", len(got))
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*.part*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestMaintenanceRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	running := filepath.Join(dir, "running.db")
	now := time.Now()
	s := clocked(t, running, &now)
	defer func() { _ = s.Close() }()
	other := filepath.Join(dir, "other.db")
	if err := os.WriteFile(other, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	vacuum := func(path string) error {
		_, _, err := sqlite.Vacuum(ctx, sqlite.Config{Path: path})
		return err
	}
	check := func(path string) error {
		_, err := sqlite.Check(ctx, path)
		return err
	}
	backup := func(path string) error { return sqlite.Backup(ctx, path, filepath.Join(dir, "copy.db")) }
	none := filepath.Join(dir, "none.db")
	for _, tt := range []struct {
		name, want string
		err        error
	}{
		{"vacuum of a running one", "has it open", vacuum(running)},
		{"vacuum of none", "there is no database", vacuum(none)},
		{"check of none", "there is no database", check(none)},
		{"backup of none", "there is no database", backup(none)},
		{"check of another file", "not an SQLite database", check(other)},
		{"vacuum of another file", "not an SQLite database", vacuum(other)},
		{"backup of another file", "not an SQLite database", backup(other)},
		{"backup to nowhere", "no such file", sqlite.Backup(ctx, running, filepath.Join(dir, "none", "copy.db"))},
	} {
		if tt.err == nil || !strings.Contains(tt.err.Error(), tt.want) {
			t.Errorf("%s = %v, want an error with %q", tt.name, tt.err, tt.want)
		}
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("a database was made")
	}
}

// TestCheckFindsDamage breaks a page in the middle of a database.
func TestCheckFindsDamage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agl.db")
	now := time.Now()
	s := clocked(t, path, &now)
	work(t, s, 50)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	sound(t, path)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	if _, err := f.WriteAt([]byte(strings.Repeat("damage", 100)), 20*page); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if r := must(sqlite.Check(t.Context(), path))(t); len(r.Problems) == 0 {
		t.Error("Check finds nothing in a damaged database")
	}
}
