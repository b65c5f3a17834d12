package storetest

import (
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/store"
)

// Options are what a test asks of the store that is opened for it.
type Options struct {
	// Now is the clock of the store; nil asks for the real one.
	Now func() time.Time
	// HealthScanInterval is as in the configuration of the engine: 0 looks at
	// time limits before every call that depends on them.
	HealthScanInterval time.Duration
}

// Opener opens an empty store for one test. The suite closes it.
type Opener func(t *testing.T, o Options) store.Store

// Power is something that not everything behind the contract can do.
type Power string

// The powers.
const (
	// Clock: Options.Now is obeyed. Without it the suite waits for real.
	Clock Power = "clock"
	// Scan: Options.HealthScanInterval is obeyed.
	Scan Power = "scan interval"
	// Keys: what a key names is done once, and answered again.
	Keys Power = "keys"
	// Release: ReleaseRollouts works.
	Release Power = "release"
	// Runs: the methods of store.RunStore work.
	Runs Power = "runs"
	// Models: the methods of store.ModelStore work.
	Models Power = "models"
	// Control: the store is a store.ControlStore.
	Control Power = "control"
	// Browse: the store is a store.Browser, a store.Feed and a store.Pruner.
	Browse Power = "browse"
)

// Lack excuses a store from the tests that need a power.
type Lack struct {
	Power  Power
	Reason string
}

type test struct {
	name  string
	needs Power // empty for nothing in particular
	run   func(*fixture)
}

// Run tries the whole contract, each test on a store of its own.
func Run(t *testing.T, open Opener, lacks ...Lack) {
	t.Helper()
	for _, noun := range []struct {
		name  string
		tests []test
	}{
		{"enqueue", enqueueTests()},
		{"queue", queueTests()},
		{"longpoll", longPollTests()},
		{"release", releaseTests()},
		{"rollouts", rolloutTests()},
		{"updates", updateTests()},
		{"attempts", attemptTests()},
		{"lifecycle", lifecycleTests()},
		{"spans", spanTests()},
		{"latespans", lateSpanTests()},
		{"sequence", sequenceTests()},
		{"keys", keyTests()},
		{"health", healthTests()},
		{"waits", waitTests()},
		{"workers", workerTests()},
		{"resources", resourceTests()},
		{"runs", runTests()},
		{"logs of runs", runLogTests()},
		{"models", modelTests()},
		{"control", controlTests()},
		{"browse", browseTests()},
		{"prune", pruneTests()},
		{"samples", sampleTests()},
		{"whole", wholeTests()},
	} {
		t.Run(noun.name, func(t *testing.T) {
			t.Parallel()
			for _, tt := range noun.tests {
				t.Run(tt.name, func(t *testing.T) {
					t.Parallel()
					if i := slices.IndexFunc(lacks, func(l Lack) bool { return l.Power == tt.needs }); i >= 0 {
						t.Skipf("no %s: %s", tt.needs, lacks[i].Reason)
					}
					tt.run(setup(t, open, lacks))
				})
			}
		})
	}
}

// fixture is a fresh store with the words that tests are told in. Its helpers
// end the test on an error that was not expected.
type fixture struct {
	*testing.T
	store.Store

	open  Opener
	clock *manualClock  // nil when the store runs on the real clock
	tick  time.Duration // the unit of time limits
}

func setup(t *testing.T, open Opener, lacks []Lack) *fixture {
	t.Helper()
	f := &fixture{T: t, open: open, tick: 200 * time.Millisecond}
	if !slices.ContainsFunc(lacks, func(l Lack) bool { return l.Power == Clock }) {
		f.clock = &manualClock{now: time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)}
		f.tick = time.Second
	}
	f.Store = f.reopen(0)
	return f
}

// reopen opens another store, with this interval between health scans.
func (f *fixture) reopen(interval time.Duration) store.Store {
	f.Helper()
	o := Options{HealthScanInterval: interval}
	if f.clock != nil {
		o.Now = f.clock.Now
	}
	s := f.open(f.T, o)
	f.Cleanup(func() {
		if err := s.Close(); err != nil {
			f.Errorf("Close() = %v", err)
		}
	})
	return s
}

// manualClock moves only when it is told to.
type manualClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *manualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *manualClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// pass lets a number of ticks go by.
func (f *fixture) pass(ticks float64) {
	d := time.Duration(ticks * float64(f.tick))
	if f.clock != nil {
		f.clock.advance(d)
		return
	}
	select {
	case <-time.After(d):
	case <-f.Context().Done():
	}
}

// ticks is a limit of so many ticks, in seconds.
func (f *fixture) ticks(n float64) *float64 { return new(n * f.tick.Seconds()) }

// isNow checks a time that was stamped just now.
func (f *fixture) isNow(what string, got *float64) {
	f.Helper()
	if got == nil {
		f.Fatalf("%s = nil, want the present time", what)
	}
	if f.clock != nil {
		if want := agl.Seconds(f.clock.Now()); *got != want {
			f.Errorf("%s = %f, want %f", what, *got, want)
		}
		return
	}
	if age := agl.Seconds(time.Now()) - *got; age < -0.1 || age > 10 {
		f.Errorf("%s = %f, want the present time (it is %.3f s old)", what, *got, age)
	}
}

func (f *fixture) ok(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// must unwraps a result that has to be without error: must(f.Rollout(…))(f).
func must[T any](v T, err error) func(f *fixture) T {
	return func(f *fixture) T {
		f.Helper()
		f.ok(err)
		return v
	}
}

// refused checks an error: what kind it is, and its text unless that is empty.
func (f *fixture) refused(err, kind error, text string) {
	f.Helper()
	if !errors.Is(err, kind) {
		f.Fatalf("error = %v, want one that is %q", err, kind)
	}
	if text != "" && err.Error() != text {
		f.Errorf("error = %q, want %q", err, text)
	}
}

// same compares two values by their JSON, which is what callers see.
func (f *fixture) same(what string, got, want any) {
	f.Helper()
	if diff := cmp.Diff(jsonOf(f.T, want), jsonOf(f.T, got)); diff != "" {
		f.Errorf("%s differs (-want +got):\n%s", what, diff)
	}
}

func jsonOf(t testing.TB, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// equal compares two comparable values.
func equal[T comparable](f *fixture, what string, got, want T) {
	f.Helper()
	if got != want {
		f.Errorf("%s = %v, want %v", what, got, want)
	}
}

// enqueue adds a rollout for each input.
func (f *fixture) enqueue(inputs ...string) []agl.Rollout {
	f.Helper()
	reqs := make([]store.EnqueueRequest, len(inputs))
	for i, in := range inputs {
		reqs[i].Input = json.RawMessage(in)
	}
	return must(f.EnqueueRollouts(f.Context(), reqs))(f)
}

// enqueueWith adds one rollout with a configuration.
func (f *fixture) enqueueWith(c agl.RolloutConfig) agl.Rollout {
	f.Helper()
	reqs := []store.EnqueueRequest{{Input: json.RawMessage("1"), Config: &c}}
	return must(f.EnqueueRollouts(f.Context(), reqs))(f)[0]
}

// dequeue claims up to n rollouts.
func (f *fixture) dequeue(n int) []agl.AttemptedRollout {
	f.Helper()
	return must(f.DequeueRollouts(f.Context(), store.DequeueRequest{Limit: n}))(f)
}

// claim claims the rollout that must be next.
func (f *fixture) claim() agl.AttemptedRollout {
	f.Helper()
	got := f.dequeue(1)
	if len(got) != 1 || got[0].Attempt == nil {
		f.Fatalf("dequeue = %s, want one rollout with its attempt", jsonOf(f.T, got))
	}
	return got[0]
}

// claimed enqueues a rollout and claims it.
func (f *fixture) claimed(c agl.RolloutConfig) agl.AttemptedRollout {
	f.Helper()
	ro := f.enqueueWith(c)
	got := f.claim()
	equal(f, "claimed rollout", got.RolloutID, ro.RolloutID)
	return got
}

func (f *fixture) start() agl.AttemptedRollout {
	f.Helper()
	return must(f.StartRollout(f.Context(), store.StartRequest{
		EnqueueRequest: store.EnqueueRequest{Input: json.RawMessage("1")},
	}))(f)
}

func (f *fixture) startAttempt(rolloutID string) agl.AttemptedRollout {
	f.Helper()
	return must(f.StartAttempt(f.Context(), rolloutID, nil))(f)
}

func (f *fixture) rollout(id string) agl.AttemptedRollout {
	f.Helper()
	return must(f.Rollout(f.Context(), id))(f)
}

func (f *fixture) attempts(rolloutID string) []agl.Attempt {
	f.Helper()
	return must(f.QueryAttempts(f.Context(), store.AttemptQuery{RolloutID: rolloutID}))(f).Items
}

func (f *fixture) attempt(rolloutID, attemptID string) agl.Attempt {
	f.Helper()
	for _, a := range f.attempts(rolloutID) {
		if a.AttemptID == attemptID {
			return a
		}
	}
	f.Fatalf("rollout %s has no attempt %s", rolloutID, attemptID)
	return agl.Attempt{}
}

func (f *fixture) setRollout(id string, st agl.RolloutStatus) agl.Rollout {
	f.Helper()
	return must(f.UpdateRollout(f.Context(), id, store.RolloutUpdate{Status: store.To(st)}))(f)
}

func (f *fixture) setAttempt(a *agl.Attempt, st agl.AttemptStatus) agl.Attempt {
	f.Helper()
	return must(f.UpdateAttempt(f.Context(), a.RolloutID, a.AttemptID, store.AttemptUpdate{Status: store.To(st)}))(f)
}

// addSpan stores a span that must be new.
func (f *fixture) addSpan(a *agl.Attempt) agl.Span {
	f.Helper()
	s := newSpan(a, 1)
	got := must(f.AddSpans(f.Context(), []agl.Span{s}))(f)
	if len(got) != 1 || got[0].Err != nil || !got[0].Stored {
		f.Fatalf("AddSpans = %+v, want one stored span", got)
	}
	return got[0].Span
}

// newSpan makes a span with everything that a span may have.
func newSpan(a *agl.Attempt, sequenceID int64) agl.Span {
	s := agl.SpanCore{
		Name: "step", Status: agl.TraceStatus{StatusCode: agl.StatusOK},
		Attributes: agl.Attributes{{Key: "int", Value: int64(1)}, {Key: "float", Value: 1.0}, {Key: "text", Value: "a"}},
	}.Span(a.RolloutID, a.AttemptID, sequenceID, 12.5)
	return s
}

// statuses checks the status of a rollout and of its latest attempt.
func (f *fixture) statuses(rolloutID string, ro agl.RolloutStatus, a agl.AttemptStatus) {
	f.Helper()
	got := f.rollout(rolloutID)
	equal(f, "rollout status", got.Status, ro)
	if got.Attempt == nil {
		f.Fatalf("rollout %s has no attempt", rolloutID)
	}
	equal(f, "attempt status", got.Attempt.Status, a)
}

func ids(rollouts []agl.Rollout) []string {
	out := make([]string, len(rollouts))
	for i := range rollouts {
		out[i] = rollouts[i].RolloutID
	}
	return out
}

func attemptedIDs(rollouts []agl.AttemptedRollout) []string {
	out := make([]string, len(rollouts))
	for i := range rollouts {
		out[i] = rollouts[i].RolloutID
	}
	return out
}

func sameIDs(f *fixture, what string, got, want []string) {
	f.Helper()
	if !slices.Equal(got, want) {
		f.Errorf("%s = %q, want %q", what, got, want)
	}
}

// together runs f n times at once and waits for all.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
