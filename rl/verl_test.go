package rl_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"agentlightning/rl"
)

// TestVerl compares losses, gradients and GDPO with what verl 0.7.1 computes, as
// recorded by testdata/verl/generate.py: to 1e-6, GDPO to 1e-5, which whitens
// there with another epsilon.
func TestVerl(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("testdata", "verl", "losses.json"))
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Losses []struct {
			Name        string       `json:"name"`
			Surrogate   rl.Surrogate `json:"surrogate"`
			Aggregation string       `json:"aggregation"`
			Low         float64      `json:"low"`
			High        float64      `json:"high"`
			Old         [][]float32  `json:"old"`
			Logprobs    [][]float32  `json:"logprobs"`
			Advantages  [][]float32  `json:"advantages"`
			Mask        [][]float32  `json:"mask"`
			Loss        float64      `json:"loss"`
			Gradient    [][]float32  `json:"gradient"`
			Clipped     float64      `json:"clipped"`
		} `json:"losses"`
		GDPO []struct {
			Std        bool      `json:"std"`
			Weights    []float64 `json:"weights"`
			Groups     []string  `json:"groups"`
			X          []float64 `json:"x"`
			Y          []float64 `json:"y"`
			Advantages []float64 `json:"advantages"`
		} `json:"gdpo"`
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Losses) != 30 || len(v.GDPO) != 4 {
		t.Fatalf("%d losses and %d of GDPO, want 30 and 4", len(v.Losses), len(v.GDPO))
	}
	aggregations := map[string]rl.Aggregation{
		"token-mean": rl.TokenMean, "seq-mean-token-mean": rl.SequenceMean, "seq-mean-token-sum": rl.SequenceSum,
	}
	for _, c := range v.Losses {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			loss := rl.Loss{Surrogate: c.Surrogate, Clip: rl.Clip{Low: c.Low, High: c.High}, Aggregation: aggregations[c.Aggregation]}
			if c.Surrogate == rl.PPO {
				loss.Clip.Dual = 3
			}
			got, err := loss.Evaluate(rl.Batch{Logprobs: c.Logprobs, Old: c.Old, Advantages: c.Advantages, Mask: c.Mask})
			if err != nil {
				t.Fatal(err)
			}
			rowsNear(t, "gradient", got.Gradient, c.Gradient)
			// verl writes DPPO as a weight times log p, which has another value and the
			// same gradient, and counts clipped tokens of GMPO on one side only.
			if c.Surrogate != rl.DPPO && math.Abs(got.Value-c.Loss) > 1e-6 {
				t.Errorf("loss = %v, want %v", got.Value, c.Loss)
			}
			if c.Surrogate != rl.GMPO && math.Abs(got.ClipFraction-c.Clipped) > 1e-6 {
				t.Errorf("clip fraction = %v, want %v", got.ClipFraction, c.Clipped)
			}
		})
	}
	for i, c := range v.GDPO {
		members := make([]rl.Member, len(c.X))
		for j := range members {
			members[j] = rl.Member{Group: c.Groups[j], Reward: &c.X[j], Components: []float64{c.X[j], c.Y[j]}}
		}
		got, _, err := rl.Advantages(members, rl.AdvantageConfig{Estimator: rl.GDPO, WithoutStd: !c.Std, ComponentWeights: c.Weights})
		if err != nil {
			t.Fatal(err)
		}
		// verl whitens over tokens, of which these members have four each, and we over
		// members, as the paper does: the deviations differ by their divisors.
		scale := math.Sqrt((23. / 24) / (5. / 6))
		for j, want := range c.Advantages {
			if want /= scale; math.Abs(got[j].Value-want) > 1e-5 {
				t.Errorf("GDPO case %d, member %d: %v, want %v", i, j, got[j].Value, want)
			}
		}
	}
}
