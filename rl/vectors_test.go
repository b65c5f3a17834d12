package rl_test

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// dtypeNear compares with the tolerances of the recordings: float32 to 1e-6, and
// bfloat16, which this package does not round to, to one hundredth.
func dtypeNear(dtype string, got, want float64) bool {
	if dtype == "bfloat16" {
		return math.Abs(got-want) <= 1e-2*max(math.Abs(want), 1e-2)
	}
	return near(got, want)
}

func compareRows(t *testing.T, what, dtype string, got, want [][]float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d rows, want %d", what, len(got), len(want))
	}
	for i := range want {
		for j := range want[i] {
			if !dtypeNear(dtype, float64(got[i][j]), float64(want[i][j])) {
				t.Errorf("%s: [%d][%d] = %v, want %v", what, i, j, got[i][j], want[i][j])
			}
		}
	}
}

// estimators are the names of the recordings for ours. What verl calls
// rloo_vectorized differs from rloo in groups of one only, which it gives 0.
var estimators = map[string]rl.Estimator{
	"grpo": rl.GRPO, "rloo": rl.RLOO, "rloo_vectorized": rl.RLOO,
	"reinforce_plus_plus": rl.ReinforcePP, "reinforce_plus_plus_baseline": rl.ReinforcePPBaseline,
	"opo": rl.OPO, "gpg": rl.GPG, "grpo_passk": rl.PassK,
}

func recorded(name string, std bool) rl.AdvantageConfig {
	c := rl.AdvantageConfig{Estimator: estimators[name], KeepConstant: estimators[name].Grouped()}
	if c.Estimator == rl.ReinforcePP {
		return c
	}
	c.WithoutStd = !std && (c.Estimator == rl.GRPO || c.Estimator == rl.PassK)
	if c.MinMembers = 1; name == "rloo_vectorized" {
		c.MinMembers = 2
	}
	return c
}

// TestVectorAdvantages covers every case of advantage_estimators.json.
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
			Returns    [][]float64 `json:"returns"`
			Error      string      `json:"error"`
		} `json:"expected"`
	}
	ran := 0
	for _, v := range load[vector](t, "advantage_estimators.json") {
		ran++
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			members := make([]rl.Member, len(v.Rewards))
			for i := range members {
				members[i] = rl.Member{Group: v.UIDs[i], Reward: &v.Rewards[i], Tokens: ones(v.Mask[i])}
			}
			got, _, err := rl.Advantages(members, recorded(v.Estimator, v.Std))
			if v.Expected.Error != "" {
				if !errors.Is(err, rl.ErrInvalid) {
					t.Fatalf("Advantages = %v, want an error like %q", err, v.Expected.Error)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			rows := make([][]float32, len(got))
			for i, a := range got {
				rows[i] = broadcast(a.Value, v.Mask[i])
			}
			compareRows(t, "advantages", v.Dtype, rows, v.Expected.Advantages)
			if v.Estimator == "reinforce_plus_plus" {
				compareReturns(t, v.Rewards, v.Mask, v.Expected.Returns, v.Expected.Advantages)
			}
		})
	}
	if ran != 78 {
		t.Errorf("%d cases ran, want 78", ran)
	}
}

// compareReturns computes REINFORCE++ token by token, which must agree with
// what is computed rollout by rollout.
func compareReturns(t *testing.T, rewards []float64, masks [][]float32, wantReturns [][]float64, want [][]float32) {
	t.Helper()
	mask, placed := make([][]float64, len(masks)), make([][]float64, len(masks))
	for i, row := range masks {
		mask[i], placed[i] = make([]float64, len(row)), make([]float64, len(row))
		last := 0
		for j, m := range row {
			if mask[i][j] = float64(m); m != 0 {
				last = j
			}
		}
		placed[i][last] = rewards[i]
	}
	returns, err := rl.Returns(placed, mask, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range returns {
		for j := range returns[i] {
			if mask[i][j] != 0 && !near(returns[i][j], wantReturns[i][j]) {
				t.Errorf("returns: [%d][%d] = %v, want %v", i, j, returns[i][j], wantReturns[i][j])
			}
		}
	}
	if err := rl.Whiten(returns, mask); err != nil {
		t.Fatal(err)
	}
	for i := range want {
		for j := range want[i] {
			if !near(returns[i][j], float64(want[i][j])) {
				t.Errorf("whitened returns: [%d][%d] = %v, want %v", i, j, returns[i][j], want[i][j])
			}
		}
	}
}

func ones(mask []float32) int {
	n := 0
	for _, m := range mask {
		n += int(m)
	}
	return n
}

func broadcast(value float64, mask []float32) []float32 {
	out := make([]float32, len(mask))
	for i, m := range mask {
		out[i] = float32(value) * m
	}
	return out
}

// TestVectorRolloutAdvantages covers every case of
// rollout_level_advantage.json.
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
		ran++
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			rows := make([]rl.Row, len(v.Rollouts))
			for i := range rows {
				rows[i] = rl.Row{Rollout: v.Rollouts[i], Group: v.UIDs[i], Reward: v.Rewards[i], Tokens: ones(v.Mask[i])}
			}
			members, index, err := rl.ByRollout(rows)
			if v.Expected.Error != "" {
				if !errors.Is(err, rl.ErrInvalid) || !strings.Contains(err.Error(), `"r1"`) {
					t.Fatalf("ByRollout = %v, want an error like %q", err, v.Expected.Error)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := rl.Advantages(members, recorded(v.Estimator, v.Std == nil || *v.Std))
			if err != nil {
				t.Fatal(err)
			}
			out := make([][]float32, len(rows))
			for i := range rows {
				out[i] = broadcast(got[index[i]].Value, v.Mask[i])
			}
			compareRows(t, "advantages", v.Dtype, out, v.Expected.Advantages)
		})
	}
	if ran != 36 {
		t.Errorf("%d cases ran, want 36", ran)
	}
}

// TestVectorNormalisation covers every case of
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
		PerToken   float64     `json:"expected_per_token_float32"`
		Expected   struct {
			Advantages [][]float32 `json:"advantages"`
			Error      string      `json:"error"`
		} `json:"expected"`
	}
	ran := 0
	for _, v := range load[vector](t, "per_rollout_normalisation.json") {
		ran++
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			if v.Name == "token_count_rounding" { // 257 tokens in one of three rows
				row, rest := make([]float32, 257), []float32{0}
				for i := range row {
					row[i] = 1
				}
				advantages := [][]float32{append([]float32(nil), row...), {1}, {1}}
				if err := rl.NormalizeAdvantages(advantages, [][]float32{row, rest, rest}, []string{"A", "B", "C"}, 3); err != nil {
					t.Fatal(err)
				}
				if !near(float64(advantages[0][0]), v.PerToken) {
					t.Errorf("advantage of a token = %v, want %v", advantages[0][0], v.PerToken)
				}
				return
			}
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
			compareRows(t, "advantages", v.Dtype, v.Advantages, v.Expected.Advantages)
		})
	}
	if ran != 13 {
		t.Errorf("%d cases ran, want 13", ran)
	}
}

// TestVectorLoss covers every case of policy_loss.json; the factor for
// data-parallel workers is applied by the test.
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
		ran++
		t.Run(v.Mode+"/"+v.Name, func(t *testing.T) {
			t.Parallel()
			loss := rl.Loss{Clip: rl.Clip{Low: v.Config.Clip, High: v.Config.Clip, Dual: v.Config.Dual}, Aggregation: rl.TokenSum}
			if v.Mode == "cispo_per_rollout_mean" {
				loss.Surrogate, loss.Clip.Dual = rl.CISPO, 0
			}
			if v.Config.Low != nil {
				loss.Clip.Low = *v.Config.Low
			}
			if v.Config.High != nil {
				loss.Clip.High = *v.Config.High
			}
			workers := max(v.Config.Batch.Workers, 1)
			got, err := loss.Evaluate(rl.Batch{
				Logprobs: v.Logprobs, Old: v.Old, Advantages: v.Advantages, Mask: v.Mask, Correction: v.Correction,
			})
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
	if ran != 20 {
		t.Errorf("%d cases ran, want 20", ran)
	}
}

// TestVectorCorrection covers every case of rollout_correction.json. Extremes
// at the sequence level are left out: those of the recording are not truncated,
// all others are.
func TestVectorCorrection(t *testing.T) {
	t.Parallel()
	type vector struct {
		Name   string `json:"name"`
		Params struct {
			Level     string          `json:"rollout_is"`
			Threshold json.RawMessage `json:"rollout_is_threshold"`
			Normalize bool            `json:"rollout_is_batch_normalize"`
			Reject    string          `json:"rollout_rs"`
			RejectAt  json.RawMessage `json:"rollout_rs_threshold"`
		} `json:"params"`
		LogRatio [][]float32 `json:"log_ratio"`
		Mask     [][]float32 `json:"response_mask"`
		Expected struct {
			Weights [][]float32        `json:"rollout_is_weights"`
			Mask    [][]float32        `json:"response_mask"`
			Metrics map[string]float64 `json:"metrics"`
		} `json:"expected"`
	}
	bounds := func(raw json.RawMessage) (low, high float64) {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			_ = json.Unmarshal(raw, &high)
			return 0, high
		}
		before, after, _ := strings.Cut(text, "_")
		return number(t, before), number(t, after)
	}
	ran := 0
	for _, v := range load[vector](t, "rollout_correction.json") {
		ran++
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			var c rl.Correction
			if v.Params.Level != "" {
				c = rl.Correction{Weights: rl.Level(v.Params.Level), Normalize: v.Params.Normalize}
				c.Floor, c.Cap = bounds(v.Params.Threshold)
			}
			if v.Params.Reject != "" {
				at := strings.LastIndex(v.Params.Reject, "_")
				c.Reject = rl.Rejection{Over: rl.Over(v.Params.Reject[:at]), Estimator: rl.KLEstimator(v.Params.Reject[at+1:])}
				c.Reject.Low, c.Reject.High = bounds(v.Params.RejectAt)
			}
			zeros := make([][]float32, len(v.Mask))
			for i := range zeros {
				zeros[i] = make([]float32, len(v.Mask[i]))
			}
			got, err := c.Apply(v.LogRatio, zeros, v.Mask)
			if err != nil {
				t.Fatal(err)
			}
			if v.Expected.Mask != nil {
				rowsNear(t, "mask", got.Mask, v.Expected.Mask)
			}
			if v.Expected.Weights == nil {
				return
			}
			rowsNear(t, "weights", got.Weights, v.Expected.Weights)
			m := v.Expected.Metrics
			for name, value := range map[string]float64{
				"rollout_is_mean": got.Mean, "rollout_is_std": got.Std, "rollout_is_min": got.Min, "rollout_is_max": got.Max,
				"rollout_is_ratio_fraction_high": got.ShareHigh, "rollout_is_ratio_fraction_low": got.ShareLow,
				"rollout_is_eff_sample_size": got.EffectiveShare,
			} {
				extreme := name == "rollout_is_min" || name == "rollout_is_max"
				if !(extreme && c.Weights == rl.PerSequence) && !near(value, m[name]) {
					t.Errorf("%s = %v, want %v", name, value, m[name])
				}
			}
		})
	}
	if ran != 8 {
		t.Errorf("%d cases ran, want 8", ran)
	}
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestVectorGroups covers group_helpers.json. The number of groups whose
// rewards span exactly 0 counts rewards that differ in the last bits as
// different, our statistics count them as equal, as rows are dropped.
func TestVectorGroups(t *testing.T) {
	t.Parallel()
	type vector struct {
		Name     string    `json:"name"`
		Rewards  []float64 `json:"row_rewards"`
		UIDs     []string  `json:"uids"`
		Expected struct {
			Rows    []int          `json:"same_reward_row_indices"`
			Metrics map[string]int `json:"group_metrics"`
		} `json:"expected"`
	}
	for _, v := range load[vector](t, "group_helpers.json") {
		got := rl.ConstantRows(v.Rewards, v.UIDs)
		if diff := cmp.Diff(v.Expected.Rows, append([]int{}, got...)); diff != "" {
			t.Errorf("%s: rows (-want +got):\n%s", v.Name, diff)
		}
		members := make([]rl.Member, len(v.Rewards))
		for i := range members {
			members[i] = rl.Member{Group: v.UIDs[i], Reward: &v.Rewards[i]}
		}
		_, stats, err := rl.Advantages(members, rl.AdvantageConfig{MinMembers: 1})
		if err != nil {
			t.Fatal(err)
		}
		if want := v.Expected.Metrics["training/n_groups"]; stats.Groups != want {
			t.Errorf("%s: %d groups, want %d", v.Name, stats.Groups, want)
		}
		want := v.Expected.Metrics["training/n_zero_adv_groups"]
		if v.Name == "close_within_tolerance" {
			want = 1
		}
		if stats.GroupsConstant != want {
			t.Errorf("%s: %d constant groups, want %d", v.Name, stats.GroupsConstant, want)
		}
	}
}

// TestVectorMinibatches covers batch_rounding.json.
func TestVectorMinibatches(t *testing.T) {
	t.Parallel()
	type vector struct {
		Rows     int  `json:"rows_after_marked_drop"`
		Size     int  `json:"ppo_mini_batch_size"`
		N        int  `json:"rollout_n"`
		Most     *int `json:"max_ppo_update_times"`
		Expected struct {
			Kept    int `json:"kept_rows"`
			Updates int `json:"updates"`
		} `json:"expected"`
	}
	for _, v := range load[vector](t, "batch_rounding.json") {
		rewards, groups := make([]float64, v.Rows), make([]string, v.Rows)
		for i := range rewards {
			groups[i] = string(rune('a' + i/v.N))
		}
		most := 0
		if v.Most != nil {
			most = *v.Most
		}
		kept, err := rl.WholeMinibatches(rewards, groups, v.Size*v.N, most, rand.New(rand.NewPCG(1, 2)))
		if err != nil {
			t.Fatal(err)
		}
		if len(kept) != v.Expected.Kept || len(kept)/(v.Size*v.N) != v.Expected.Updates {
			t.Errorf("WholeMinibatches of %d rows by %d: %d rows, want %d", v.Rows, v.Size*v.N, len(kept), v.Expected.Kept)
		}
	}
}

type triplet struct {
	Prompt   []int32   `json:"prompt_token_ids"`
	Response []int32   `json:"response_token_ids"`
	Logprobs []float32 `json:"response_log_probs"`
}

// TestVectorEndToEnd runs end_to_end.json through every function, and compares
// with what was recorded in float32 and in bfloat16.
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
	limits := adapter.Limits{Prompt: v.Params.Prompt, Response: v.Params.Response}
	var members []rl.Member
	for i := range v.Rollouts {
		members = append(members, rl.Member{Group: v.Rollouts[i].Data, Reward: &v.Rollouts[i].Reward})
	}
	advantages, _, err := rl.Advantages(members, rl.AdvantageConfig{})
	if err != nil {
		t.Fatal(err)
	}
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
	if err := rl.NormalizeAdvantages(rows, masks, ids, len(rows)); err != nil {
		t.Fatal(err)
	}
	for dtype, want := range v.Expected {
		if diff := cmp.Diff(want.Rollouts, ids); diff != "" {
			t.Fatalf("%s: rollouts of rows (-want +got):\n%s", dtype, diff)
		}
		rowsNear(t, dtype+": mask", masks, want.Mask)
		compareRows(t, dtype+": normalised advantages", dtype, rows, want.Normalised)
		loss, err := rl.Loss{Clip: rl.Clip{Low: v.Params.Clip, High: v.Params.Clip, Dual: v.Params.Dual}, Aggregation: rl.TokenSum}.
			Evaluate(rl.Batch{Logprobs: want.Logprobs, Old: want.Old, Advantages: rows, Mask: masks})
		if err != nil {
			t.Fatal(err)
		}
		tolerance := 1e-6
		if dtype == "bfloat16" {
			tolerance = 2e-2 * math.Abs(want.Loss) // a sum of terms of both signs, each to one hundredth
		}
		if math.Abs(loss.Value-want.Loss) > tolerance {
			t.Errorf("%s: loss = %v, want %v", dtype, loss.Value, want.Loss)
		}
	}
	if len(v.Expected) != 2 {
		t.Errorf("%d recordings, want float32 and bfloat16", len(v.Expected))
	}
}
