package sqlite

import (
	"bufio"
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
)

// A copy of this test binary works on a database until it is killed: by its
// parent at a random moment, or by itself at a commit.
const (
	crashChild = "AGL_TEST_SQLITE_CRASH_CHILD" // the database
	crashPoint = "AGL_TEST_SQLITE_CRASH_POINT" // one of the points below
)

type killPoint string

const (
	killAnywhere     killPoint = "anywhere"
	killBeforeCommit killPoint = "before a commit"
	killAfterCommit  killPoint = "after a commit" // and before anybody is told
	writeInTurn      killPoint = "one at a time, with the length of the log"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(crashChild); path != "" {
		if err := workUntilKilled(path, killPoint(os.Getenv(crashPoint))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// workUntilKilled runs whole rollouts on several goroutines and prints a line for
// everything that was acknowledged, after it was.
func workUntilKilled(path string, point killPoint) error {
	ctx := context.Background()
	b, err := Open(ctx, Config{Path: path})
	if err != nil {
		return err
	}
	if point == writeInTurn {
		return writeOneByOne(ctx, b, path)
	}
	if point != killAnywhere {
		err := b.Update(ctx, func(engine.Tx) error {
			s, err := b.writer.c.prepare(commit)
			if err == nil {
				s.exec = &lastCommit{StmtExecContext: s.exec, c: b.writer.c, point: point, n: 10 + rand.IntN(200)}
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	s := engine.New(b, engine.Config{})
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(os.Stdout, format+"\n", args...)
	}
	const workers = 8
	failed := make(chan error, workers)
	for w := range workers {
		go func() {
			worker := fmt.Sprintf("worker-%d", w)
			for {
				if err := oneRollout(ctx, s, worker, say); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	return <-failed
}

// lastCommit is a COMMIT that ends the process the n-th time, or, where it is to
// do so afterwards, the first time from then on that an enqueue was committed.
type lastCommit struct {
	driver.StmtExecContext
	c       *conn
	point   killPoint
	n       int
	answers int64 // that are remembered, one for each enqueue
}

func (c *lastCommit) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	c.n--
	if c.n > 0 || c.point == killAfterCommit {
		res, err := c.StmtExecContext.ExecContext(ctx, args)
		if err != nil || c.point != killAfterCommit {
			return res, err
		}
		before := c.answers
		if c.answers, err = c.c.number("SELECT count(*) FROM answers"); err != nil || c.n > 0 || c.answers == before {
			return res, err
		}
	}
	// Whoever was told too early gets the time to say so.
	<-time.After(5 * time.Millisecond)
	p, err := os.FindProcess(os.Getpid())
	if err != nil {
		return nil, err
	}
	return nil, errors.Join(p.Kill(), errors.New("the process survived"))
}

func oneRollout(ctx context.Context, s *engine.Store, worker string, say func(string, ...any)) error {
	reqs := make([]store.EnqueueRequest, 1+rand.IntN(3))
	for i := range reqs {
		reqs[i].Input = json.RawMessage(`{"question":"6*7"}`)
	}
	for i := range reqs {
		key := agl.NewTraceID()
		say("asking %s", key)
		added, err := s.EnqueueRollouts(store.WithKey(ctx, key), reqs[i:i+1])
		if err != nil {
			return err
		}
		say("enqueued %s %s", added[0].RolloutID, key)
	}
	claimed, err := s.DequeueRollouts(ctx, store.DequeueRequest{WorkerID: &worker, Limit: 1})
	if err != nil {
		return err
	}
	for _, ro := range claimed {
		at := store.Attempted{RolloutID: ro.RolloutID, AttemptID: ro.Attempt.AttemptID}
		say("claimed %s %s", at.RolloutID, at.AttemptID)
		for range 3 {
			n, err := s.NextSequenceIDs(ctx, []store.Attempted{at})
			if err != nil {
				return err
			}
			say("sequence %s %d", at.RolloutID, n[0])
			span := agl.SpanCore{Name: "step"}.Span(at.RolloutID, at.AttemptID, n[0], 1)
			if _, err := s.AddSpans(ctx, []agl.Span{span}); err != nil {
				return err
			}
			say("span %s %s %s", at.RolloutID, at.AttemptID, span.SpanID)
		}
		if rand.IntN(4) == 0 {
			continue // an attempt that never ends
		}
		done := store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)}
		if _, err := s.UpdateAttempt(ctx, at.RolloutID, at.AttemptID, done); err != nil {
			return err
		}
		say("done %s %s", at.RolloutID, at.AttemptID)
	}
	return nil
}

// acknowledged is what the killed processes said they had stored.
type acknowledged struct {
	enqueued  map[string]bool
	unheard   map[string]bool   // keys of rollouts whose enqueue was asked for and not answered
	claimed   map[string]string // rollout to attempt
	done      map[string]string
	spans     map[store.Attempted][]string
	sequences map[string]bool // "rollout number"
	repeated  int             // unheard enqueues that had been stored
}

func (a *acknowledged) read(t *testing.T, line string) {
	t.Helper()
	f := strings.Fields(line)
	switch f[0] {
	case "asking":
		a.unheard[f[1]] = true
	case "enqueued":
		a.enqueued[f[1]] = true
		delete(a.unheard, f[2])
	case "claimed":
		if first, twice := a.claimed[f[1]]; twice {
			t.Errorf("rollout %s was claimed twice, as attempts %s and %s", f[1], first, f[2])
		}
		a.claimed[f[1]] = f[2]
	case "sequence":
		if key := f[1] + " " + f[2]; a.sequences[key] {
			t.Errorf("sequence id %s of rollout %s was given twice", f[2], f[1])
		} else {
			a.sequences[key] = true
		}
	case "span":
		at := store.Attempted{RolloutID: f[1], AttemptID: f[2]}
		a.spans[at] = append(a.spans[at], f[3])
	case "done":
		a.done[f[1]] = f[2]
	default:
		t.Fatalf("the child said %q", line)
	}
}

// TestCrash kills a process that writes, again and again on one database.
func TestCrash(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("windows: a process cannot be stopped between two instructions by SIGKILL")
	}
	// Not parallel: a test that starts a process hands it the lock of this one's
	// database for a moment.
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	points := []killPoint{killAnywhere, killBeforeCommit, killAfterCommit}
	path := filepath.Join(t.TempDir(), "agl.db")
	acked := &acknowledged{map[string]bool{}, map[string]bool{}, map[string]string{}, map[string]string{}, map[store.Attempted][]string{}, map[string]bool{}, 0}
	for round := range rounds {
		point := points[round%len(points)]
		killWhileWriting(t, path, point, acked)
		checkAfterCrash(t, path, acked)
		askAgain(t, path, acked)
		if t.Failed() {
			t.Fatalf("after kill %d, %s", round+1, point)
		}
	}
	if rounds >= len(points) && acked.repeated == 0 {
		t.Error("no enqueue was stored and not answered: the kills after a commit miss their mark")
	}
	t.Logf("%d kills: %d rollouts, %d claims, %d spans acknowledged; %d enqueues stored and not answered",
		rounds, len(acked.enqueued), len(acked.claimed), len(acked.sequences), acked.repeated)
}

func killWhileWriting(t *testing.T, path string, point killPoint, acked *acknowledged) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), crashChild+"="+path, crashPoint+"="+string(point))
	var complaints strings.Builder
	child.Stderr = &complaints
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	// From some line on, a random moment later.
	from, delay := 20+rand.IntN(600), time.Duration(rand.IntN(3000))*time.Microsecond
	lines := bufio.NewReader(out)
	for n := 0; ; n++ {
		line, err := lines.ReadString('\n')
		if err != nil {
			break // what was cut in the middle was not acknowledged
		}
		acked.read(t, line)
		if n == from && point == killAnywhere {
			kill := time.AfterFunc(delay, func() { _ = child.Process.Kill() })
			defer kill.Stop()
		}
	}
	if err := child.Wait(); complaints.Len() > 0 || child.ProcessState.Exited() {
		t.Fatalf("the child ended by itself: %v\n%s", err, complaints.String())
	}
}

// checkAfterCrash opens the database and compares it with what was acknowledged.
func checkAfterCrash(t *testing.T, path string, acked *acknowledged) {
	t.Helper()
	ctx := t.Context()
	b, err := Open(ctx, Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	err = b.View(ctx, func(r engine.Reader) error {
		checkIntegrity(t, r)
		page, err := r.QueryRollouts(store.RolloutQuery{})
		if err != nil {
			return err
		}
		byID := make(map[string]agl.AttemptedRollout, len(page.Items))
		queuing, attempts, spans := 0, 0, 0
		for _, ro := range page.Items {
			byID[ro.RolloutID] = ro
			if ro.Status == agl.RolloutQueuing {
				queuing++
			}
			if (ro.Attempt == nil) != (ro.Status == agl.RolloutQueuing) {
				t.Errorf("rollout %s is %s with attempt %v", ro.RolloutID, ro.Status, ro.Attempt)
			}
			if ro.Attempt == nil {
				continue
			}
			attempts++
			stored, err := r.QuerySpans(store.SpanQuery{RolloutID: ro.RolloutID})
			if err != nil {
				return err
			}
			spans += stored.Total
			have := map[string]bool{}
			for _, encoded := range stored.Items {
				s, err := encoded.Span()
				if err != nil {
					return err
				}
				have[s.SpanID] = true
			}
			for _, id := range acked.spans[store.Attempted{RolloutID: ro.RolloutID, AttemptID: ro.Attempt.AttemptID}] {
				if !have[id] {
					t.Errorf("span %s of rollout %s is lost", id, ro.RolloutID)
				}
			}
		}
		for id := range acked.enqueued {
			if _, ok := byID[id]; !ok {
				t.Errorf("rollout %s is lost", id)
			}
		}
		for id, attempt := range acked.claimed {
			if a := byID[id].Attempt; a == nil || a.AttemptID != attempt || a.SequenceID != 1 {
				t.Errorf("the claim of rollout %s is lost: attempt %v, want %s", id, a, attempt)
			}
		}
		for id, attempt := range acked.done {
			if ro := byID[id]; ro.Status != agl.RolloutSucceeded || ro.Attempt.AttemptID != attempt || ro.Attempt.Status != agl.AttemptSucceeded {
				t.Errorf("the success of rollout %s is lost: it is %s", id, ro.Status)
			}
		}
		if n, err := r.QueueLength(); err != nil || n != queuing {
			t.Errorf("QueueLength() = %d, %v, want %d, as many as are queuing", n, err, queuing)
		}
		counts, err := r.Counts()
		if got, want := [3]int64{counts.TotalRollouts, counts.TotalAttempts, counts.TotalSpans},
			[3]int64{int64(len(page.Items)), int64(attempts), int64(spans)}; got != want {
			t.Errorf("Counts() = %v rollouts, attempts, spans, want %v", got, want)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// askAgain repeats the calls that the killed process did not answer, twice, and
// finds one rollout for each key, whether its transaction was committed or not.
func askAgain(t *testing.T, path string, acked *acknowledged) {
	t.Helper()
	ctx := t.Context()
	b, err := Open(ctx, Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	s := engine.New(b, engine.Config{})
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	total := func() int64 {
		st, err := s.Statistics(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return st.TotalRollouts
	}
	before, missing := total(), int64(0)
	for key := range acked.unheard {
		committed := false
		err := b.View(ctx, func(r engine.Reader) (err error) {
			committed, err = r.(reader).c.one(func(row) error { return nil }, selectAnswer, "enqueue/"+key, 0.0)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if committed {
			acked.repeated++
		} else {
			missing++
		}
		var ids [2]string
		for i := range ids {
			added, err := s.EnqueueRollouts(store.WithKey(ctx, key), []store.EnqueueRequest{{Input: json.RawMessage(`{"question":"6*7"}`)}})
			if err != nil || len(added) != 1 {
				t.Fatalf("enqueue with the key of an unheard one = %v, %v, want one rollout", added, err)
			}
			ids[i] = added[0].RolloutID
		}
		if ids[0] != ids[1] {
			t.Errorf("key %s enqueued %s and %s", key, ids[0], ids[1])
		}
		acked.enqueued[ids[0]] = true
		delete(acked.unheard, key)
	}
	if got := total(); got != before+missing {
		t.Errorf("%d rollouts after asking again, want %d: %d were there and %d had not been stored", got, before+missing, before, missing)
	}
}

func checkIntegrity(t *testing.T, r engine.Reader) {
	t.Helper()
	err := r.(reader).c.query(func(r row) error {
		if r.text(0) != "ok" {
			t.Errorf("integrity_check: %s", r.text(0))
		}
		return nil
	}, "PRAGMA integrity_check")
	if err != nil {
		t.Error(err)
	}
}
