package pg

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/algorithm"
)

// TestVectorTiming covers lifecycle_metrics.json, to 1e-12.
func TestVectorTiming(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "vectors", "rl", "lifecycle_metrics.json"))
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Values   []float64          `json:"values"`
		Expected map[string]float64 `json:"expected"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-12 })
	if diff := cmp.Diff(v.Expected, spread(v.Values), near); diff != "" {
		t.Errorf("spread(%v) (-want +got):\n%s", v.Values, diff)
	}
	outcomes := make([]algorithm.Outcome, 3)
	for i := range outcomes[:2] {
		r := &outcomes[i].Rollout
		r.StartTime, r.Attempt, r.EndTime = 100, &agl.Attempt{StartTime: 101 + float64(i)}, new(105.0)
	}
	got := map[string]float64{}
	lifecycle(outcomes, got)
	for name, want := range map[string]float64{
		"timing/rollout_queue_wait_s/max": 2, "timing/rollout_run_duration_s/mean": 3.5, "timing/rollout_total_s/p50": 5,
		"timing/rollout_n_missing_running_ts": 1,
	} {
		if got[name] != want {
			t.Errorf("%s = %v, want %v", name, got[name], want)
		}
	}
}

// TestVectorOrder covers sort_by_step_and_sample of trajectory_aggregation.json.
func TestVectorOrder(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "vectors", "rl", "trajectory_aggregation.json"))
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Cases []struct {
			Name     string `json:"name"`
			Rollouts []struct {
				ID     string `json:"rollout_id"`
				Step   int    `json:"step"`
				Sample int    `json:"sample_idx_in_step"`
			} `json:"rollouts"`
			Expected struct {
				Rollouts []string `json:"rollout_id_list"`
			} `json:"expected"`
		} `json:"cases"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	ran := false
	for _, c := range v.Cases {
		if c.Name != "sort_by_step_and_sample" {
			continue
		}
		ran = true
		var rollouts []asked
		for _, r := range c.Rollouts {
			rollouts = append(rollouts, asked{ID: r.ID, Step: r.Step, Group: r.Sample})
		}
		inOrder(rollouts)
		if diff := cmp.Diff(c.Expected.Rollouts, ids(rollouts)); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	}
	if !ran {
		t.Error("there is no such case")
	}
}

// TestVectorAsyncGroups covers every case of async_group_collection.json: which
// groups a step takes, in which order, and what is carried over.
func TestVectorAsyncGroups(t *testing.T) {
	t.Parallel()
	type rollout struct {
		Group string `json:"data_id"`
		ID    string `json:"rollout_id"`
		Step  int    `json:"step"`
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "testdata", "vectors", "rl", "async_group_collection.json"))
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Cases []struct {
			Name   string    `json:"name"`
			Want   int       `json:"target_finished_groups"`
			Step   int       `json:"step"`
			Carry  []rollout `json:"carry_over"`
			New    []rollout `json:"new"`
			Script struct {
				Rollouts map[string][][2]any `json:"rollouts"`
			} `json:"state_script"`
			Expected struct {
				Completed []rollout      `json:"completed"`
				Carry     []rollout      `json:"carry_over"`
				Rounds    int            `json:"rounds"`
				Metrics   map[string]int `json:"metrics"`
			} `json:"expected"`
		} `json:"cases"`
		New []struct {
			Groups int `json:"async_train_batch_size"`
			Carry  int `json:"carry_over_groups"`
			Want   int `json:"expected_new_groups"`
		} `json:"new_groups_per_step"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Cases) != 4 || len(v.New) != 3 {
		t.Fatalf("%d cases and %d counts, want 4 and 3", len(v.Cases), len(v.New))
	}
	for _, c := range v.Cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			draws := map[string]int{}
			var pending []asked
			for _, r := range slices.Concat(c.Carry, c.New) {
				if _, known := draws[r.Group]; !known {
					draws[r.Group] = len(draws)
				}
				pending = append(pending, asked{ID: r.ID, Step: r.Step, Draw: draws[r.Group]})
			}
			groups := active(pending)
			finished := map[string]bool{}
			var chosen []int
			rounds := 0
			for ; len(chosen) < c.Want; rounds++ {
				for id, states := range c.Script.Rollouts {
					for _, s := range states {
						if s[0] == float64(rounds) && (s[1] == "succeeded" || s[1] == "failed") {
							finished[id] = true
						}
					}
				}
				chosen = firstFinished(groups, finished, chosen, c.Want)
			}
			var completed, carried []string
			oldest := 0
			for _, i := range chosen {
				completed = append(completed, ids(groups[i].rollouts)...)
			}
			for i, g := range groups {
				if !slices.Contains(chosen, i) {
					carried = append(carried, ids(g.rollouts)...)
					oldest = max(oldest, c.Step-g.step)
				}
			}
			names := func(rollouts []rollout) []string {
				var out []string
				for _, r := range rollouts {
					out = append(out, r.ID)
				}
				return out
			}
			if diff := cmp.Diff(names(c.Expected.Completed), completed); diff != "" {
				t.Errorf("completed (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(names(c.Expected.Carry), carried); diff != "" {
				t.Errorf("carried over (-want +got):\n%s", diff)
			}
			got := map[string]int{
				"training/async/n_prev_carry_over_rollouts":   len(c.Carry),
				"training/async/n_completed_rollouts":         len(completed),
				"training/async/n_new_carry_over_rollouts":    len(carried),
				"training/async/new_carry_over_age_max_steps": oldest,
			}
			if diff := cmp.Diff(c.Expected.Metrics, got); diff != "" || rounds != c.Expected.Rounds {
				t.Errorf("%d rounds, want %d; metrics (-want +got):\n%s", rounds, c.Expected.Rounds, diff)
			}
		})
	}
	for _, n := range v.New {
		if got := (&Config{Async: Async{Groups: n.Groups}, Steps: 100, Tasks: n.Groups / 2}).newAt(1, n.Carry); got != n.Want {
			t.Errorf("%d of %d groups carried over: %d new ones, want %d", n.Carry, n.Groups, got, n.Want)
		}
	}
}
