package llmproxy_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/llmproxy"
	"agentlightning/semconv"
)

func backendOf(s agl.Span) string {
	endpoint, _ := s.Attributes.String(semconv.CallBackend)
	return endpoint
}

func TestRolloutsAreSpreadEvenlyAndStay(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{}, answers(wholeAnswer), answers(wholeAnswer), answers(wholeAnswer))
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			for range 3 {
				f.post(t, fmt.Sprintf("/rollout/ro-%d/attempt/a1/v1/chat/completions", i), ask)
			}
		})
	}
	wg.Wait()
	rollouts := map[string]map[string]bool{} // by backend
	where := map[string]string{}
	for _, s := range f.store.stored() {
		b := backendOf(s)
		if before := where[s.RolloutID]; before != "" && before != b {
			t.Errorf("rollout %s went to %s and %s", s.RolloutID, before, b)
		}
		where[s.RolloutID] = b
		if rollouts[b] == nil {
			rollouts[b] = map[string]bool{}
		}
		rollouts[b][s.RolloutID] = true
	}
	for b, ids := range rollouts {
		if len(ids) < 10 || len(ids) > 30 {
			t.Errorf("backend %s has %d of 60 rollouts", b, len(ids))
		}
	}
	if len(rollouts) != 3 {
		t.Errorf("%d backends were used, want 3", len(rollouts))
	}
}

func TestTiesGoInTurn(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{}, answers(wholeAnswer), answers(wholeAnswer), answers(wholeAnswer))
	for i := range 9 {
		f.post(t, fmt.Sprintf("/rollout/ro-%d/attempt/a1/v1/chat/completions", i), ask)
	}
	counts := map[string]int{}
	for _, s := range f.store.stored() {
		counts[backendOf(s)]++
	}
	for b, n := range counts {
		if n != 3 {
			t.Errorf("backend %s took %d of 9 rollouts, want 3", b, n)
		}
	}
}

func TestNewRolloutGoesToTheLeastLoaded(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var busy, calls atomic.Int64
	entered := make(chan struct{}, 10)
	slow := func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		place := busy.Add(1) // before the test goes on, so that later calls never wait
		entered <- struct{}{}
		if place <= 4 {
			<-release
		}
		answers(wholeAnswer)(w, r)
	}
	var first, second atomic.Int64
	count := func(n *atomic.Int64) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { n.Add(1); slow(w, r) }
	}
	f := setup(t, llmproxy.Config{}, count(&first), count(&second))
	var wg sync.WaitGroup
	// Four calls of one rollout hold one backend.
	for range 4 {
		wg.Go(func() { f.chat(t, ask) })
	}
	for range 4 {
		<-entered
	}
	held, free := &first, &second
	if first.Load() == 0 {
		held, free = free, held
	}
	if held.Load() != 4 || free.Load() != 0 {
		t.Fatalf("the calls of one rollout went to both: %d, %d", held.Load(), free.Load())
	}
	for i := range 4 {
		f.post(t, fmt.Sprintf("/rollout/ro-%d/attempt/a1/v1/chat/completions", i), ask)
	}
	if free.Load() != 4 {
		t.Errorf("the free backend took %d of 4 new rollouts", free.Load())
	}
	close(release)
	wg.Wait()
}

func TestFailover(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{}, answers(wholeAnswer))
	up := f.store.models[0]
	down := agl.Model{Name: "m", Endpoint: "http://" + freeAddress(t) + "/v1"}
	f.store.models = []agl.Model{down, up}
	for i := range 4 {
		if status, _, body := f.post(t, fmt.Sprintf("/rollout/ro-%d/attempt/a1/v1/chat/completions", i), ask); status != http.StatusOK {
			t.Fatalf("answer is %d %s", status, body)
		}
	}
	spans := f.store.stored()
	slices.SortFunc(spans, func(a, b agl.Span) int { return int(a.SequenceID - b.SequenceID) })
	failed := 0
	for _, s := range spans {
		if backendOf(s) != up.Endpoint || problem(s) != "" {
			t.Errorf("call went to %s, problem %q", backendOf(s), problem(s))
		}
		if from, ok := s.Attributes.String(semconv.CallFailover); ok {
			failed++
			if from != down.Endpoint {
				t.Errorf("failover from %s, want %s", from, down.Endpoint)
			}
		}
	}
	// The first rollout finds out, the others are spared.
	if failed != 1 {
		t.Errorf("%d calls tried the backend that is down, want 1", failed)
	}
	// The rollout stays where it went.
	f.post(t, "/rollout/ro-0/attempt/a1/v1/chat/completions", ask)
	spans = f.store.stored()
	if _, again := spans[len(spans)-1].Attributes.Get(semconv.CallFailover); again {
		t.Error("the rollout went back to the backend that is down")
	}
}

func TestExistenceIsLookedUpOnce(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{ModelsMaxAge: time.Hour}, answers(wholeAnswer))
	for range 5 {
		f.chat(t, ask)
	}
	f.post(t, "/rollout/ro/attempt/a2/chat/completions", ask)
	if f.store.queries != 1 || f.store.listed != 1 {
		t.Errorf("the store was asked %d times for attempts and %d times for models", f.store.queries, f.store.listed)
	}
}

func TestModelsChangeWhileRunning(t *testing.T) {
	t.Parallel()
	var got atomic.Value
	f := setup(t, llmproxy.Config{}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got.Store(string(body))
		_, _ = io.WriteString(w, wholeAnswer)
	})
	f.chat(t, ask)
	f.store.mu.Lock()
	f.store.models[0].Version, f.store.models[0].Target = 8, "t8"
	f.store.models = append(f.store.models, agl.Model{Name: "new", Endpoint: f.store.models[0].Endpoint, Version: 1})
	f.store.mu.Unlock()
	// A new name is found at once, a new version on Refresh.
	if status, _, body := f.chat(t, `{"model":"new"}`); status != http.StatusOK {
		t.Errorf("answer is %d %s", status, body)
	}
	if err := f.proxy.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.chat(t, ask)
	if !strings.Contains(got.Load().(string), `"t8"`) {
		t.Errorf("backend received %s", got.Load())
	}
	spans := f.store.stored()
	if v, _ := spans[2].Attributes.Get(semconv.CallVersion); v != int64(8) {
		t.Errorf("recorded version is %v, want 8", v)
	}
}
