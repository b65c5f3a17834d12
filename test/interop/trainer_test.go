package interop

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/semconv"
	"agentlightning/store"
)

// triplet is what the Python adapters make of a model call.
type triplet struct {
	Prompt, Response struct {
		TokenIDs []int64 `json:"token_ids"`
	}
	Reward *float64
}

// calculator answers "model: n+n?" and knows nothing else.
func calculator(c conversation) reply {
	var n, m int
	if _, err := fmt.Sscanf(c.said(), "agent: %d+%d?", &n, &m); err != nil {
		return reply{text: "what?"}
	}
	return reply{text: fmt.Sprint(n + m)}
}

// TestTrainerBaseline runs Trainer.dev with the algorithm and two runner
// processes beside it, all on a store that somebody else started.
func TestTrainerBaseline(t *testing.T) {
	t.Parallel()
	needPython(t)
	m := newVLLM(t, calculator)
	eachBackend(t, func(t *testing.T, s *server) {
		var triplets map[string][]triplet
		call(t, "training", map[string]any{
			"algorithm": "baseline", "url": s.url, "strategy": "cs", "options": map[string]any{"n_runners": 2, "managed_store": false},
		}, &triplets)
		checkBaseline(t, s, m, triplets, message, semconv.SpanModelCall, annotation)
		if n := s.statistics(t).TotalWorkers; n != 2 {
			t.Errorf("the store knows %d workers, want 2", n)
		}
	}, "--model", "agent="+m.url)
}

// TestTrainerSharedMemory runs algorithm and runner as threads of one process.
// The store is not managed: the wrapper that this strategy puts around one
// holds its lock while a client waits for the network, and the threads deadlock.
func TestTrainerSharedMemory(t *testing.T) {
	t.Parallel()
	needPython(t)
	m := newVLLM(t, calculator)
	eachBackend(t, func(t *testing.T, s *server) {
		var triplets map[string][]triplet
		call(t, "training", map[string]any{
			"algorithm": "baseline", "url": s.url, "strategy": "shm", "options": map[string]any{"main_thread": "algorithm", "managed_store": false},
		}, &triplets)
		if done := checkBaseline(t, s, m, triplets, message, semconv.SpanModelCall, annotation); done["Worker-0"] != 8 {
			t.Errorf("rollouts by worker: %v, want 8 of the only one", done)
		}
	}, "--model", "agent="+m.url)
}

// TestTrainerRoles runs algorithm and runners as on different machines: apart,
// told by the environment where the store is.
func TestTrainerRoles(t *testing.T) {
	t.Parallel()
	needPython(t)
	m := newVLLM(t, calculator)
	eachBackend(t, func(t *testing.T, s *server) {
		address, err := url.Parse(s.url)
		if err != nil {
			t.Fatal(err)
		}
		var triplets map[string][]triplet
		var errs [2]error
		var wg sync.WaitGroup
		wg.Go(func() {
			var nothing map[string][]triplet
			errs[0] = python.driver.call(t, "training", map[string]any{
				// Nobody tells runners elsewhere to stop, so they count.
				"algorithm": "baseline", "url": "http://127.0.0.1:9", "max_rollouts": 4, "strategy": "cs", "options": map[string]any{"n_runners": 2},
				"environment": map[string]string{"AGL_CURRENT_ROLE": "runner", "AGL_SERVER_HOST": address.Hostname(), "AGL_SERVER_PORT": address.Port()},
			}, &nothing)
		})
		wg.Go(func() {
			errs[1] = python.driver.call(t, "training", map[string]any{
				"algorithm": "baseline", "url": s.url, "strategy": "cs", "options": map[string]any{"n_runners": 2},
				"environment": map[string]string{"AGL_CURRENT_ROLE": "algorithm", "AGL_MANAGED_STORE": "no"},
			}, &triplets)
		})
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
		done := checkBaseline(t, s, m, triplets, message, semconv.SpanModelCall, annotation)
		if done["Worker-0"] != 4 || done["Worker-1"] != 4 {
			t.Errorf("rollouts by worker: %v, want 4 each", done)
		}
	}, "--model", "agent="+m.url)
}

// checkBaseline looks at what Python's Baseline left, with these spans in each
// rollout, and returns how many rollouts each worker ran.
func checkBaseline(t *testing.T, s *server, m *vllm, triplets map[string][]triplet, spansOfEach ...string) map[string]int {
	t.Helper()
	rollouts := s.rollouts(t)
	if len(rollouts) != 8 || len(triplets) != 8 {
		t.Fatalf("%d rollouts and triplets of %d, want 8", len(rollouts), len(triplets))
	}
	done, modes, attempts := map[string]int{}, map[agl.Mode]int{}, map[string]bool{}
	for _, r := range rollouts {
		if r.Status != agl.RolloutSucceeded || r.Attempt == nil || r.Attempt.SequenceID != 1 || r.ResourcesID == nil || *r.ResourcesID != "default" {
			t.Errorf("rollout is %+v with attempt %+v, want it to have succeeded at once with the resources of the trainer", r.Rollout, r.Attempt)
			continue
		}
		done[*r.Attempt.WorkerID]++
		modes[r.Mode]++
		attempts[r.Attempt.AttemptID] = true
		spans := s.spans(t, r.RolloutID)
		var names []string
		for i := range spans {
			names = append(names, spans[i].Name)
		}
		if diff := cmp.Diff(spansOfEach, names); diff != "" {
			t.Errorf("spans of %s (-want +got):\n%s", r.RolloutID, diff)
			continue
		}
		if reward, err := adapter.Final(spans); err != nil || reward == nil || *reward != 1 {
			t.Errorf("reward of %s is %v (%v), want 1", r.RolloutID, reward, err)
		}
		calls, err := adapter.Calls(spans)
		if err != nil || len(calls) != 1 || !calls[0].Usable() {
			t.Errorf("calls of %s are %+v (%v), want one to train on", r.RolloutID, calls, err)
		}
		want := m.triplets(t, spans)
		want[0].Reward = new(1.0)
		if diff := cmp.Diff(want, triplets[r.RolloutID]); diff != "" {
			t.Errorf("triplets of %s as Python reads them (-want +got):\n%s", r.RolloutID, diff)
		}
	}
	if modes[agl.ModeTrain] != 6 || modes[agl.ModeVal] != 2 || len(attempts) != 8 {
		t.Errorf("modes are %v of %d attempts, want 6 to train and 2 to validate", modes, len(attempts))
	}
	if got := s.statistics(t); got.TotalAttempts != 8 || got.TotalSpans != 24 {
		t.Errorf("the store has %d attempts and %d spans, want 8 and 24", got.TotalAttempts, got.TotalSpans)
	}
	return done
}

// TestTrainerAPO runs Trainer.fit with APO, whose critic and editor are scripted.
func TestTrainerAPO(t *testing.T) {
	t.Parallel()
	needPython(t)
	m := newVLLM(t, func(c conversation) reply {
		switch c.Model {
		case "critic":
			return reply{text: "It does not say who answers."}
		case "editor":
			return reply{text: "agent: {question}"}
		}
		return calculator(c)
	})
	eachBackend(t, func(t *testing.T, s *server) {
		var best struct{ Template, Engine string }
		call(t, "training", map[string]any{"algorithm": "apo", "url": s.url, "model": m.url}, &best)
		if best.Template != "agent: {question}" || best.Engine != "f-string" {
			t.Errorf("best prompt is %+v, want the editor's", best)
		}

		// The seed is tried on the validation set, on the training set and as a
		// candidate, its successor as a candidate and as the best.
		versions := map[string]int64{}
		prompts := map[string]string{}
		page, err := s.client.QueryResources(t.Context(), store.ResourcesQuery{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Items {
			versions[r.ResourcesID] = int64(r.Version)
			if p, ok := r.Resources.Get("prompt").(agl.PromptTemplate); ok {
				prompts[r.ResourcesID] = p.Template
			}
		}
		if diff := cmp.Diff(map[string]int64{"v0": 3, "v1": 2}, versions); diff != "" {
			t.Errorf("versions of resources (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]string{"v0": "Answer: {question}", "v1": "agent: {question}"}, prompts); diff != "" {
			t.Errorf("prompts (-want +got):\n%s", diff)
		}
		type key struct {
			resources string
			mode      agl.Mode
			reward    float64
		}
		got := map[key]int{}
		for _, r := range s.rollouts(t) {
			spans := s.spans(t, r.RolloutID)
			reward, err := adapter.Final(spans)
			if r.Status != agl.RolloutSucceeded || len(spans) != 2 || err != nil || reward == nil {
				t.Errorf("rollout %s is %s with %d spans and reward %v (%v), want a success, a model call and a reward", r.RolloutID, r.Status, len(spans), reward, err)
				continue
			}
			got[key{*r.ResourcesID, r.Mode, *reward}]++
		}
		if diff := cmp.Diff(map[key]int{
			{"v0", agl.ModeVal, 0}: 4, {"v0", agl.ModeTrain, 0}: 2, {"v1", agl.ModeVal, 1}: 4,
		}, got); diff != "" {
			t.Errorf("rollouts by resources, mode and reward (-want +got):\n%s", diff)
		}
		// What the agent said reaches the critic through the proxy's spans.
		for _, c := range m.asked("critic") {
			if !strings.Contains(c.body, "what?") || !strings.Contains(c.body, "Answer: {question}") {
				t.Errorf("the critic was asked %s, want the prompt and what the agent said", c.body)
			}
		}
		edits := m.asked("editor")
		if len(edits) == 0 || !strings.Contains(edits[len(edits)-1].body, "It does not say who answers.") {
			t.Errorf("the editor was asked %d times, want what the critic said", len(edits))
		}
	}, "--model", "agent="+m.url)
}
