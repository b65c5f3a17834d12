package pg_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	agl "agentlightning"
	"agentlightning/algorithm/pg"
	"agentlightning/learner"
	"agentlightning/store"
)

var errKilled = errors.New("killed")

// mortal is the store as an algorithm sees it that is killed: from the n-th
// write on nothing reaches it any more. The n-th itself is done or not.
type mortal struct {
	store.Store
	mu     sync.Mutex
	writes int
	at     int // 0 never
	done   bool
}

func dying[T any](m *mortal, write func() (T, error)) (out T, err error) {
	m.mu.Lock()
	m.writes++
	alive, last := m.at == 0 || m.writes < m.at, m.writes == m.at
	m.mu.Unlock()
	if alive || last && m.done {
		out, err = write()
	}
	if !alive {
		var none T
		return none, errKilled
	}
	return out, err
}

func (m *mortal) EnqueueRollouts(ctx context.Context, reqs []store.EnqueueRequest) ([]agl.Rollout, error) {
	return dying(m, func() ([]agl.Rollout, error) { return m.Store.EnqueueRollouts(ctx, reqs) })
}

func (m *mortal) AddResources(ctx context.Context, r agl.NamedResources) (agl.ResourcesUpdate, error) {
	return dying(m, func() (agl.ResourcesUpdate, error) { return m.Store.AddResources(ctx, r) })
}

func (m *mortal) UpdateRun(ctx context.Context, id string, u store.RunUpdate) (agl.Run, error) {
	return dying(m, func() (agl.Run, error) { return m.Store.UpdateRun(ctx, id, u) })
}

func (m *mortal) AddStepMetrics(ctx context.Context, id string, s ...agl.StepMetrics) error {
	_, err := dying(m, func() (int, error) { return 0, m.Store.AddStepMetrics(ctx, id, s...) })
	return err
}

func (m *mortal) PutCheckpoint(ctx context.Context, id string, c agl.Checkpoint) error {
	_, err := dying(m, func() (int, error) { return 0, m.Store.PutCheckpoint(ctx, id, c) })
	return err
}

// served is the policy that agents reach: the one that was published last.
type served struct{ policy atomic.Pointer[arms] }

func (s *served) sample(prompt int32, seed int64) (int32, float64) {
	return s.policy.Load().sample(prompt, seed)
}

// lost is a policy whose loss is no number, which JSON cannot write.
type lost struct{ *arms }

func (l *lost) Update(ctx context.Context, b learner.Batch) (learner.Metrics, error) {
	m, err := l.arms.Update(ctx, b)
	if err == nil {
		m["loss"], m["grad_norm"] = math.NaN(), math.Inf(1)
	}
	return m, err
}

// life is one run, with its metrics, over one store.
type life struct {
	*bundle
	served *served
	dir    string
	async  pg.Async
	final  *arms
	writes int
}

func begin(t *testing.T) *life {
	t.Helper()
	l := &life{bundle: setup(t), served: &served{}, dir: t.TempDir()}
	l.work.policy = l.served
	l.work.start(t)
	return l
}

// live goes on with the run until a write, with a policy that is untrained until
// its weights are loaded.
func (l *life) live(t *testing.T, method pg.Method, at int, done bool) error {
	t.Helper()
	l.final = &arms{}
	c := config(l.bundle, l.dir)
	c.Learner, c.Method, c.Steps, c.ValidateEvery, c.Async = &lost{l.final}, method, 5, 2, l.async
	c.Publish = func(context.Context, int) (agl.NamedResources, error) {
		l.served.policy.Store(l.final)
		return agl.NamedResources{{Name: "main_llm", Resource: agl.ProxyLLM{Endpoint: "http://x", Model: "m"}}}, nil
	}
	a, err := pg.New(c)
	if err != nil {
		t.Fatal(err)
	}
	runs, err := l.store.Runs(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(runs) > 0 {
		l.env.RunID = runs[0].RunID
	}
	m := &mortal{Store: l.store, at: at, done: done}
	env := l.env
	env.Store = m
	err = a.Run(t.Context(), env)
	l.writes = m.writes
	return err
}

// end is what is left of a run that must not depend on interruptions.
func (l *life) end(t *testing.T) any {
	t.Helper()
	runs, err := l.store.Runs(t.Context(), 10)
	if err != nil || len(runs) != 1 {
		t.Fatalf("Runs = %+v, %v, want one", runs, err)
	}
	steps, err := l.store.StepMetrics(t.Context(), runs[0].RunID, -1)
	if err != nil {
		t.Fatal(err)
	}
	metrics := map[int]map[string]float64{}
	for _, s := range steps {
		maps.DeleteFunc(s.Values, func(name string, _ float64) bool {
			return strings.HasPrefix(name, "timing") || strings.HasPrefix(name, "perf/") && name != "perf/total_num_tokens"
		})
		metrics[s.Step] = s.Values
	}
	all, err := l.store.Statistics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{
		"weights": l.final.logits, "metrics": metrics, "rollouts": all.TotalRollouts, "calls": l.work.calls.Load(), "status": runs[0].Status,
	}
}

// TestKilledAtEveryWrite kills a run at each of its writes, before or after it
// is done. Resumed, it comes to the same weights and metrics without asking for
// another rollout.
func TestKilledAtEveryWrite(t *testing.T) {
	t.Parallel()
	remax, err := pg.Preset(pg.ReMax)
	if err != nil {
		t.Fatal(err)
	}
	for name, method := range map[string]pg.Method{"grpo": {}, "refill and resample": {Refill: 1, Resample: 2}, "remax": remax} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			whole := begin(t)
			if err := whole.live(t, method, 0, true); err != nil {
				t.Fatal(err)
			}
			want := whole.end(t)
			for at := 1; at <= whole.writes; at++ {
				for _, done := range []bool{false, true} {
					if name != "grpo" && done != (at%2 == 0) {
						continue // one of both is enough for what the others have in common
					}
					l := begin(t)
					if err := l.live(t, method, at, done); !errors.Is(err, errKilled) {
						t.Fatalf("killed at write %d: %v", at, err)
					}
					if err := l.live(t, method, 0, true); err != nil {
						t.Fatalf("resumed after write %d (done: %v): %v", at, done, err)
					}
					if diff := cmp.Diff(want, l.end(t), cmpopts.EquateNaNs()); diff != "" {
						t.Errorf("killed at write %d (done: %v) of %d (-without +with):\n%s", at, done, whole.writes, diff)
					}
				}
			}
		})
	}
}

// Which groups a step takes depends on who is first when they are collected
// asynchronously; what is asked for does not.
func TestKilledWithGroupsCarriedOver(t *testing.T) {
	t.Parallel()
	start := func() *life {
		l := begin(t)
		l.async = pg.Async{Groups: 6}
		return l
	}
	whole := start()
	if err := whole.live(t, pg.Method{}, 0, true); err != nil {
		t.Fatal(err)
	}
	want := int64(5*4*8 + 4*2)
	if got := whole.work.calls.Load(); got != want {
		t.Fatalf("%d rollouts without a kill, want %d", got, want)
	}
	for at := 1; at <= whole.writes; at++ {
		l, done := start(), at%2 == 0
		if err := l.live(t, pg.Method{}, at, done); !errors.Is(err, errKilled) {
			t.Fatalf("killed at write %d: %v", at, err)
		}
		if err := l.live(t, pg.Method{}, 0, true); err != nil {
			t.Fatalf("resumed after write %d (done: %v): %v", at, done, err)
		}
		if got := l.work.calls.Load(); got != want {
			t.Errorf("killed at write %d (done: %v): %d rollouts, want %d", at, done, got, want)
		}
	}
}

// TestKilledAgainAndAgain lets every execution live for a few writes only.
func TestKilledAgainAndAgain(t *testing.T) {
	t.Parallel()
	whole := begin(t)
	if err := whole.live(t, pg.Method{}, 0, true); err != nil {
		t.Fatal(err)
	}
	for _, writes := range []int{4, 5, 7} {
		t.Run(fmt.Sprint(writes), func(t *testing.T) {
			t.Parallel()
			l := begin(t)
			for n := 0; ; n++ {
				err := l.live(t, pg.Method{}, writes, n%2 == 0)
				if err == nil {
					break
				}
				if !errors.Is(err, errKilled) || n > 100 {
					t.Fatalf("execution %d: %v", n, err)
				}
			}
			if diff := cmp.Diff(whole.end(t), l.end(t), cmpopts.EquateNaNs()); diff != "" {
				t.Errorf("weights and metrics (-without +with interruptions):\n%s", diff)
			}
		})
	}
}
