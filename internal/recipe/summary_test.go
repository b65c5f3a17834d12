package recipe_test

import (
	"encoding/json"
	"strings"
	"testing"

	agl "agentlightning"
	"agentlightning/internal/recipe"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// told is what is said of a run with these metrics by step.
func told(t *testing.T, metrics []map[string]float64, failures ...string) string {
	t.Helper()
	s := engine.New(memory.New(), engine.Config{})
	defer s.Close()
	run, err := s.CreateRun(t.Context(), agl.Run{Algorithm: "pg", Config: json.RawMessage("{}"), Status: agl.RunRunning})
	if err != nil {
		t.Fatal(err)
	}
	for i, values := range metrics {
		if err := s.AddStepMetrics(t.Context(), run.RunID, agl.StepMetrics{Step: i, Values: values}); err != nil {
			t.Fatal(err)
		}
	}
	metadata := json.RawMessage(`{"agl.run_id":"` + run.RunID + `"}`)
	for _, why := range failures {
		if _, err := s.EnqueueRollouts(t.Context(), []store.EnqueueRequest{{Input: json.RawMessage("{}"), Metadata: metadata}}); err != nil {
			t.Fatal(err)
		}
		claimed, err := s.DequeueRollouts(t.Context(), store.DequeueRequest{Limit: 1})
		if err != nil || len(claimed) != 1 {
			t.Fatalf("claimed %d, %v", len(claimed), err)
		}
		noted, err := json.Marshal(map[string]string{"error": strings.ReplaceAll(why, "ROLLOUT", claimed[0].RolloutID)})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.UpdateAttempt(t.Context(), claimed[0].RolloutID, claimed[0].Attempt.AttemptID, store.AttemptUpdate{
			Status: store.To(agl.AttemptFailed), Metadata: store.To(json.RawMessage(noted)),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	summary, err := recipe.Summarize(t.Context(), s, recipe.Outcome{Name: "weights", RunID: run.RunID})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(summary.Lines(), "\n")
}

func TestSummary(t *testing.T) {
	t.Parallel()
	const turns, groups, constant, val, reward = "training/n_turns", "training/n_groups", "training/n_zero_adv_groups", "val/reward", "training/reward"
	for name, tt := range map[string]struct {
		metrics  []map[string]float64
		failures []string
		want     []string
	}{
		"learned": {
			metrics: []map[string]float64{{val: 0.25}, {reward: 0.9}, {val: 0.75}, {val: 0.5}},
			want:    []string{"did it learn: yes, validation reward 0.25 at step 0, 0.75 at step 2"},
		},
		"without validation": {
			metrics: []map[string]float64{{reward: 0.1}, {reward: 0.3}},
			want:    []string{"did it learn: yes, training reward 0.1 at step 0, 0.3 at step 1"},
		},
		"a loss": {
			metrics: []map[string]float64{{"training/loss": 2}, {"training/loss": 0.5}},
			want:    []string{"did it learn: yes, loss 2 at step 0, 0.5 at step 1"},
		},
		"worse": {
			metrics: []map[string]float64{{val: 0.5}, {val: 0.25, groups: 8, constant: 1, turns: 30}},
			want:    []string{"did it learn: no, the best validation reward is that of step 0, 0.5", "see 'agl rollouts explain --run run-"},
		},
		"constant": {
			metrics: []map[string]float64{{val: 0}, {val: 0, groups: 8, constant: 6, turns: 30}},
			want:    []string{"in 6 of 8 groups all rewards were equal"},
		},
		"no calls": {
			metrics: []map[string]float64{{val: 0}, {val: 0, groups: 8, constant: 1}},
			want:    []string{"no model call of the agent was recorded"},
		},
		"failures": {
			metrics:  []map[string]float64{{val: 0}},
			failures: []string{"no tool in ROLLOUT", "timed out\nmore", "no tool in ROLLOUT"},
			want:     []string{"most rollouts failed: 3 of 3", "failures: 3 of 3 rollouts\n    2 × no tool in ro-…\n    1 × timed out"},
		},
		"nothing": {want: []string{"did it learn: unknown, nothing was measured"}},
	} {
		got := told(t, tt.metrics, tt.failures...)
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: told\n%s\nwant %q", name, got, want)
			}
		}
	}
}
