package rl_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentlightning/adapter"
	"agentlightning/rl"
)

// load reads the cases of one recorded file. All numbers in it were produced by
// the Python implementation.
func load[T any](t *testing.T, file string) []T {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "testdata", "vectors", "rl", file))
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Cases []T `json:"cases"`
	}
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if len(f.Cases) == 0 {
		t.Fatalf("%s: no cases", file)
	}
	return f.Cases
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6 }

func rowsNear(t *testing.T, what string, got, want [][]float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d rows, want %d", what, len(got), len(want))
	}
	for i := range want {
		if len(got[i]) != len(want[i]) {
			t.Fatalf("%s: row %d has %d entries, want %d", what, i, len(got[i]), len(want[i]))
		}
		for j := range want[i] {
			if !near(float64(got[i][j]), float64(want[i][j])) {
				t.Errorf("%s: [%d][%d] = %v, want %v", what, i, j, got[i][j], want[i][j])
			}
		}
	}
}

// TestVectorAdvantages covers the cases of advantage_estimators.json whose
// estimator is grpo and whose dtype is float32; the other estimators and the
// rounding to bfloat16 are not offered.
func TestVectorAdvantages(t *testing.T) {
	t.Parallel()
	type vector struct {
		Name      string      `json:"name"`
		Estimator string      `json:"estimator"`
		Std       bool        `json:"norm_adv_by_std_in_grpo"`
		Dtype     string      `json:"dtype"`
		Rewards   []float64   `json:"rewards"`
		UIDs      []string    `json:"uids"`
		Mask      [][]float32 `json:"response_mask"`
		Expected  struct {
			Advantages [][]float32 `json:"advantages"`
		} `json:"expected"`
	}
	ran := 0
	for _, v := range load[vector](t, "advantage_estimators.json") {
		if v.Estimator != "grpo" || v.Dtype != "float32" {
			continue
		}
		ran++
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			members := make([]rl.Member, len(v.Rewards))
			for i := range members {
				members[i] = rl.Member{Group: v.UIDs[i], Reward: &v.Rewards[i]}
			}
			got, _ := rl.GroupAdvantages(members, rl.AdvantageConfig{WithoutStd: !v.Std, KeepConstant: true, MinMembers: 1})
			rows := make([][]float32, len(got))
			for i, a := range got {
				rows[i] = broadcast(a.Value, v.Mask[i])
			}
			rowsNear(t, "advantages", rows, v.Expected.Advantages)
		})
	}
	if ran != 12 {
		t.Errorf("%d cases ran, want 12", ran)
	}
}

func broadcast(value float64, mask []float32) []float32 {
	out := make([]float32, len(mask))
	for i, m := range mask {
		out[i] = float32(value) * m
	}
	return out
}

// TestVectorRolloutAdvantages covers rollout_level_advantage.json: one member a
// rollout, however many rows; grpo and float32, without the cases that are
// errors there (contradicting rows cannot be expressed here).
func TestVectorRolloutAdvantages(t *testing.T) {
	t.Parallel()
	type vector struct {
		Name      string      `json:"name"`
		Estimator string      `json:"estimator"`
		Std       *bool       `json:"norm_adv_by_std_in_grpo"`
		Dtype     string      `json:"dtype"`
		Rewards   []float64   `json:"row_rewards"`
		Rollouts  []string    `json:"rollout_ids"`
		UIDs      []string    `json:"uids"`
		Mask      [][]float32 `json:"response_mask"`
		Expected  struct {
			Advantages [][]float32 `json:"advantages"`
			Error      string      `json:"error"`
		} `json:"expected"`
	}
	ran := 0
	for _, v := range load[vector](t, "rollout_level_advantage.json") {
		if v.Estimator != "grpo" || v.Dtype != "float32" || v.Expected.Error != "" {
			continue
		}
		ran++
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			var members []rl.Member
			place := map[string]int{}
			for i, id := range v.Rollouts {
				if _, ok := place[id]; !ok {
					place[id] = len(members)
					members = append(members, rl.Member{Group: v.UIDs[i], Reward: &v.Rewards[i]})
				}
			}
			got, _ := rl.GroupAdvantages(members, rl.AdvantageConfig{WithoutStd: v.Std != nil && !*v.Std, KeepConstant: true, MinMembers: 1})
			rows := make([][]float32, len(v.Rollouts))
			for i, id := range v.Rollouts {
				rows[i] = broadcast(got[place[id]].Value, v.Mask[i])
			}
			rowsNear(t, "advantages", rows, v.Expected.Advantages)
		})
	}
	if ran < 8 {
		t.Errorf("%d cases ran, want at least 8", ran)
	}
}

// TestVectorNormalisation covers every float32 case of
// per_rollout_normalisation.json.
func TestVectorNormalisation(t *testing.T) {
	t.Parallel()
	type vector struct {
		Name       string      `json:"name"`
		Dtype      string      `json:"dtype"`
		Advantages [][]float32 `json:"advantages"`
		Mask       [][]float32 `json:"response_mask"`
		Rollouts   []string    `json:"rollout_ids"`
		Rows       int         `json:"num_trained_rows"`
		Expected   struct {
			Advantages [][]float32 `json:"advantages"`
			Error      string      `json:"error"`
		} `json:"expected"`
	}
	for _, v := range load[vector](t, "per_rollout_normalisation.json") {
		if v.Dtype != "float32" {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			err := rl.NormalizeAdvantages(v.Advantages, v.Mask, v.Rollouts, v.Rows)
			if v.Expected.Error != "" {
				if err == nil {
					t.Fatalf("NormalizeAdvantages: no error, want one like %q", v.Expected.Error)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			rowsNear(t, "advantages", v.Advantages, v.Expected.Advantages)
		})
	}
}

// TestVectorLoss covers the per_rollout_mean cases of policy_loss.json; the
// factor for data-parallel workers is applied by the test.
func TestVectorLoss(t *testing.T) {
	t.Parallel()
	type vector struct {
		Name       string      `json:"name"`
		Mode       string      `json:"loss_mode"`
		Old        [][]float32 `json:"old_log_prob"`
		Logprobs   [][]float32 `json:"log_prob"`
		Advantages [][]float32 `json:"advantages"`
		Mask       [][]float32 `json:"response_mask"`
		Config     struct {
			Clip  float64  `json:"clip_ratio"`
			Low   *float64 `json:"clip_ratio_low"`
			High  *float64 `json:"clip_ratio_high"`
			Dual  float64  `json:"clip_ratio_c"`
			Batch struct {
				Workers float64 `json:"dp_size"`
			} `json:"global_batch_info"`
		} `json:"config"`
		Correction [][]float32 `json:"rollout_is_weights"`
		Expected   struct {
			Loss    float64 `json:"loss"`
			Metrics struct {
				Clipped float64 `json:"actor/pg_clipfrac"`
				KL      float64 `json:"actor/ppo_kl"`
				Dual    float64 `json:"actor/pg_clipfrac_lower"`
			} `json:"metrics"`
			Gradient [][]float32 `json:"grad_log_prob"`
		} `json:"expected"`
	}
	ran := 0
	for _, v := range load[vector](t, "policy_loss.json") {
		if v.Mode != "per_rollout_mean" {
			continue
		}
		ran++
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			clip := rl.Clip{Low: v.Config.Clip, High: v.Config.Clip, Dual: v.Config.Dual}
			if v.Config.Low != nil {
				clip.Low = *v.Config.Low
			}
			if v.Config.High != nil {
				clip.High = *v.Config.High
			}
			workers := max(v.Config.Batch.Workers, 1)
			got, err := rl.PolicyLoss(rl.LossInput{
				Logprobs: v.Logprobs, Old: v.Old, Advantages: v.Advantages, Mask: v.Mask, Correction: v.Correction,
			}, clip, rl.TokenSum)
			if err != nil {
				t.Fatal(err)
			}
			if want := v.Expected.Loss; math.Abs(got.Value*workers-want) > 1e-6*max(1, math.Abs(want)) {
				t.Errorf("loss = %v, want %v", got.Value*workers, want)
			}
			for _, m := range []struct {
				name      string
				got, want float64
			}{
				{"clip fraction", got.ClipFraction, v.Expected.Metrics.Clipped},
				{"dual clip fraction", got.DualClipFraction, v.Expected.Metrics.Dual},
				{"kl", got.KL1, v.Expected.Metrics.KL},
			} {
				if !near(m.got, m.want) {
					t.Errorf("%s = %v, want %v", m.name, m.got, m.want)
				}
			}
			for i := range got.Gradient {
				for j := range got.Gradient[i] {
					got.Gradient[i][j] *= float32(workers)
				}
			}
			rowsNear(t, "gradient", got.Gradient, v.Expected.Gradient)
		})
	}
	if ran != 10 {
		t.Errorf("%d cases ran, want 10", ran)
	}
}

type triplet struct {
	Prompt   []int32   `json:"prompt_token_ids"`
	Response []int32   `json:"response_token_ids"`
	Logprobs []float32 `json:"response_log_probs"`
}

// TestVectorEndToEnd runs end_to_end.json through every function, in float32.
func TestVectorEndToEnd(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "testdata", "vectors", "rl", "end_to_end.json"))
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Params struct {
			Prompt   int     `json:"max_prompt_length"`
			Response int     `json:"max_response_length"`
			Clip     float64 `json:"clip_ratio"`
			Dual     float64 `json:"clip_ratio_c"`
		} `json:"params"`
		Rollouts []struct {
			ID       string    `json:"rollout_id"`
			Data     string    `json:"data_id"`
			Reward   float64   `json:"final_reward"`
			Triplets []triplet `json:"triplets"`
		} `json:"rollouts"`
		Expected map[string]struct {
			Rollouts   []string    `json:"rollout_id_list"`
			Mask       [][]float32 `json:"response_mask"`
			Normalised [][]float32 `json:"normalised_advantages"`
			Logprobs   [][]float32 `json:"log_prob"`
			Old        [][]float32 `json:"old_log_prob"`
			Loss       float64     `json:"loss"`
		} `json:"expected"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	want := v.Expected["float32"]
	limits := adapter.Limits{Prompt: v.Params.Prompt, Response: v.Params.Response}
	var members []rl.Member
	for i := range v.Rollouts {
		members = append(members, rl.Member{Group: v.Rollouts[i].Data, Reward: &v.Rollouts[i].Reward})
	}
	advantages, _ := rl.GroupAdvantages(members, rl.AdvantageConfig{})
	var ids []string
	var rows, masks [][]float32
	for i, r := range v.Rollouts {
		var calls []adapter.Call
		for _, tr := range r.Triplets {
			calls = append(calls, adapter.Call{PromptIDs: tr.Prompt, ResponseIDs: tr.Response, Logprobs: tr.Logprobs})
		}
		trajectories, _ := adapter.Trajectories(calls, adapter.TrajectoryConfig{Limits: limits})
		for _, tr := range trajectories {
			mask := append(tr.Mask[tr.PromptLength:], make([]float32, limits.Response-len(tr.Mask)+tr.PromptLength)...)
			ids, masks = append(ids, r.ID), append(masks, mask)
			rows = append(rows, broadcast(advantages[i].Value, mask))
		}
	}
	if diff := cmp.Diff(want.Rollouts, ids); diff != "" {
		t.Fatalf("rollouts of rows (-want +got):\n%s", diff)
	}
	rowsNear(t, "mask", masks, want.Mask)
	if err := rl.NormalizeAdvantages(rows, masks, ids, len(rows)); err != nil {
		t.Fatal(err)
	}
	rowsNear(t, "normalised advantages", rows, want.Normalised)
	loss, err := rl.PolicyLoss(rl.LossInput{Logprobs: want.Logprobs, Old: want.Old, Advantages: rows, Mask: masks},
		rl.Clip{Low: v.Params.Clip, High: v.Params.Clip, Dual: v.Params.Dual}, rl.TokenSum)
	if err != nil {
		t.Fatal(err)
	}
	if !near(loss.Value, want.Loss) {
		t.Errorf("loss = %v, want %v", loss.Value, want.Loss)
	}
}
