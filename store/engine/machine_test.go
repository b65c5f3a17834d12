package engine_test

import (
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// world is a store whose clock and changes are in the hands of a test.
type world struct {
	*testing.T
	*engine.Store

	backend engine.Backend

	mu    sync.Mutex
	now   time.Time
	moves []engine.Change
}

func newWorld(t *testing.T, b engine.Backend, cfg engine.Config) *world {
	w := &world{T: t, backend: b, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	cfg.Now = func() time.Time {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.now
	}
	cfg.OnChange = func(c []engine.Change) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.moves = append(w.moves, c...)
	}
	w.Store = engine.New(b, cfg)
	t.Cleanup(func() { w.ok(w.Close()) })
	return w
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Error(err)
	}
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func (w *world) took() []engine.Change {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.moves)
}

func (w *world) enqueue(c agl.RolloutConfig) string {
	w.Helper()
	ros, err := w.EnqueueRollouts(w.Context(), []store.EnqueueRequest{{Input: json.RawMessage("1"), Config: &c}})
	if err != nil {
		w.Fatal(err)
	}
	return ros[0].RolloutID
}

func (w *world) claim() *agl.Attempt {
	w.Helper()
	got, err := w.DequeueRollouts(w.Context(), store.DequeueRequest{Limit: 1})
	if err != nil || len(got) != 1 {
		w.Fatalf("dequeue = %v, %v, want one rollout", got, err)
	}
	return got[0].Attempt
}

func (w *world) span(a *agl.Attempt) {
	w.Helper()
	got, err := w.AddSpans(w.Context(), []agl.Span{{RolloutID: a.RolloutID, AttemptID: a.AttemptID, SpanID: agl.NewSpanID()}})
	if err != nil || !got[0].Stored {
		w.Fatalf("add span = %+v, %v", got, err)
	}
}

func (w *world) report(a *agl.Attempt, st agl.AttemptStatus) {
	w.Helper()
	_, err := w.UpdateAttempt(w.Context(), a.RolloutID, a.AttemptID, store.AttemptUpdate{Status: store.To(st)})
	w.ok(err)
}

// look makes the store look at time limits.
func (w *world) look() {
	_, err := w.QueryRollouts(w.Context(), store.RolloutQuery{StatusIn: []agl.RolloutStatus{}})
	w.ok(err)
}

type edge struct{ from, to agl.RolloutStatus }

// The drawing in the package comment, edge by edge: what happens, and the moves
// of the rollout that this causes.
func TestRolloutStateMachine(t *testing.T) {
	t.Parallel()
	const (
		queuing, preparing, running = agl.RolloutQueuing, agl.RolloutPreparing, agl.RolloutRunning
		failed, succeeded           = agl.RolloutFailed, agl.RolloutSucceeded
		requeuing                   = agl.RolloutRequeuing
	)
	once := agl.RolloutConfig{TimeoutSeconds: new(60.0), UnresponsiveSeconds: new(20.0)}
	retried := once
	retried.MaxAttempts = 2
	retried.RetryCondition = []agl.AttemptStatus{agl.AttemptFailed, agl.AttemptTimeout, agl.AttemptUnresponsive}
	// Each step of a life and what it does to the rollout.
	type step struct {
		do   func(w *world, a *agl.Attempt) *agl.Attempt
		want []edge
	}
	claim := step{func(w *world, _ *agl.Attempt) *agl.Attempt { return w.claim() }, nil}
	span := step{func(w *world, a *agl.Attempt) *agl.Attempt { w.span(a); return a }, nil}
	report := func(st agl.AttemptStatus) step {
		return step{func(w *world, a *agl.Attempt) *agl.Attempt { w.report(a, st); return a }, nil}
	}
	silence := step{func(w *world, a *agl.Attempt) *agl.Attempt { w.pass(30 * time.Second); w.look(); return a }, nil}
	age := step{func(w *world, a *agl.Attempt) *agl.Attempt { w.pass(61 * time.Second); w.look(); return a }, nil}
	on := func(s step, want ...edge) step { s.want = want; return s }

	walked := map[edge]bool{}
	for name, life := range map[string]struct {
		config agl.RolloutConfig
		steps  []step
	}{
		"succeeds": {once, []step{
			on(claim, edge{queuing, preparing}), on(span, edge{preparing, running}), on(span),
			on(report(agl.AttemptSucceeded), edge{running, succeeded}), on(span),
		}},
		"succeeds unheard":   {once, []step{on(claim, edge{queuing, preparing}), on(report(agl.AttemptSucceeded), edge{preparing, succeeded})}},
		"fails unheard":      {once, []step{on(claim, edge{queuing, preparing}), on(report(agl.AttemptFailed), edge{preparing, failed})}},
		"fails":              {once, []step{on(claim, edge{queuing, preparing}), on(span, edge{preparing, running}), on(report(agl.AttemptFailed), edge{running, failed})}},
		"gets too old":       {once, []step{on(claim, edge{queuing, preparing}), on(age, edge{preparing, failed}), on(span)}},
		"never speaks":       {once, []step{on(claim, edge{queuing, preparing}), on(silence, edge{preparing, failed})}},
		"falls silent":       {once, []step{on(claim, edge{queuing, preparing}), on(span, edge{preparing, running}), on(silence, edge{running, failed})}},
		"speaks up too late": {once, []step{on(claim, edge{queuing, preparing}), on(silence, edge{preparing, failed}), on(span)}},
		"is retried once": {retried, []step{
			on(claim, edge{queuing, preparing}), on(report(agl.AttemptFailed), edge{preparing, requeuing}),
			on(claim, edge{requeuing, preparing}), on(report(agl.AttemptFailed), edge{preparing, failed}),
		}},
		"is retried when silent": {retried, []step{
			on(claim, edge{queuing, preparing}), on(span, edge{preparing, running}), on(silence, edge{running, requeuing}),
			on(claim, edge{requeuing, preparing}), on(span, edge{preparing, running}), on(report(agl.AttemptSucceeded), edge{running, succeeded}),
		}},
		"revives before its retry": {retried, []step{
			on(claim, edge{queuing, preparing}), on(silence, edge{preparing, requeuing}), on(span, edge{requeuing, running}),
			on(report(agl.AttemptSucceeded), edge{running, succeeded}),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, memory.New(), engine.Config{})
			id := w.enqueue(life.config)
			want := []edge{{"", queuing}}
			var a *agl.Attempt
			for _, s := range life.steps {
				a = s.do(w, a)
				want = append(want, s.want...)
			}
			var got []edge
			for _, c := range w.took() {
				if c.RolloutID != id || c.Time == 0 {
					t.Errorf("change %+v, want one of rollout %s", c, id)
				}
				got = append(got, edge{c.From, c.To})
				walked[edge{c.From, c.To}] = true
			}
			if !slices.Equal(got, want) {
				t.Errorf("moves = %v, want %v", got, want)
			}
		})
	}
	for _, e := range []edge{
		{"", queuing},
		{queuing, preparing},
		{requeuing, preparing},
		{preparing, running},
		{requeuing, running},
		{preparing, succeeded},
		{running, succeeded},
		{preparing, failed},
		{running, failed},
		{preparing, requeuing},
		{running, requeuing},
	} {
		if !walked[e] {
			t.Errorf("nothing went from %q to %q", e.from, e.to)
		}
		delete(walked, e)
	}
	if len(walked) > 0 {
		t.Errorf("edges that are not drawn: %v", walked)
	}
}
