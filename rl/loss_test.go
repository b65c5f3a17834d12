package rl_test

import (
	"errors"
	"math"
	"testing"

	"agentlightning/rl"
)

// The gradient of every branch agrees with central differences.
func TestTokenGradient(t *testing.T) {
	t.Parallel()
	clips := []rl.Clip{{Low: .2, High: .2}, {Low: .2, High: .3}, {Low: .1, High: .4, Dual: 3}}
	for _, clip := range clips {
		for _, advantage := range []float64{-2, -.3, 0, .3, 2} {
			for _, logprob := range []float64{-3, -1.3, -1.1, -1, -.9, -.78, -.7, .5} {
				const h = 1e-6
				want := (clip.Token(logprob+h, -1, advantage).Loss - clip.Token(logprob-h, -1, advantage).Loss) / (2 * h)
				got := clip.Token(logprob, -1, advantage).Gradient
				if math.Abs(got-want) > 1e-5*max(1, math.Abs(want)) {
					t.Errorf("%+v.Token(%v, -1, %v).Gradient = %v, want %v", clip, logprob, advantage, got, want)
				}
			}
		}
	}
}

// A policy that ran away gives a large loss and no gradient, never an infinity.
func TestTokenFarAway(t *testing.T) {
	t.Parallel()
	clip := rl.Clip{Low: .2, High: .2}
	if got := clip.Token(800, 0, -1); got.Loss != math.Exp(20) || got.Gradient != 0 {
		t.Errorf("Token(800, 0, -1) = %v with gradient %v, want %v and 0", got.Loss, got.Gradient, math.Exp(20))
	}
}

func TestClipHigher(t *testing.T) {
	t.Parallel()
	clip := rl.Clip{Low: .2, High: .3}
	tests := []struct {
		ratio, advantage float64
		loss             float64
		clipped          bool
	}{
		{1.25, 1, -1.25, false},
		{1.35, 1, -1.3, true},
		{.7, 1, -.7, false},
		{.7, -1, .8, true},
		{.85, -1, .85, false},
		{1.35, -1, 1.35, false},
	}
	for _, tt := range tests {
		got := clip.Token(math.Log(tt.ratio), 0, tt.advantage)
		if math.Abs(got.Loss-tt.loss) > 1e-12 || got.Clipped != tt.clipped {
			t.Errorf("Token(ratio %v, advantage %v) = %v, clipped %v, want %v, %v", tt.ratio, tt.advantage, got.Loss, got.Clipped, tt.loss, tt.clipped)
		}
	}
}

func TestKL3(t *testing.T) {
	t.Parallel()
	if v, g := rl.KL3(-1, -1); v != 0 || g != 0 {
		t.Errorf("KL3(-1, -1) = %v, %v, want 0, 0", v, g)
	}
	for _, logprob := range []float64{-4, -1.5, -.2} {
		v, g := rl.KL3(logprob, -1)
		if want := math.Exp(-1-logprob) - 1 - (-1 - logprob); math.Abs(v-want) > 1e-12 || v < 0 {
			t.Errorf("KL3(%v, -1) = %v, want %v", logprob, v, want)
		}
		const h = 1e-6
		above, _ := rl.KL3(logprob+h, -1)
		below, _ := rl.KL3(logprob-h, -1)
		if want := (above - below) / (2 * h); math.Abs(g-want) > 1e-6 {
			t.Errorf("KL3(%v, -1): gradient %v, want %v", logprob, g, want)
		}
	}
	if v, _ := rl.KL3(0, 1e6); math.IsInf(v, 0) {
		t.Errorf("KL3(0, 1e6) = %v, want a finite value", v)
	}
}

func TestAggregation(t *testing.T) {
	t.Parallel()
	masks := [][]float32{{0, 1, 1, 1}, {0, 1}, {0, 0}}
	tests := []struct {
		aggregation rl.Aggregation
		want        []float64
	}{
		{rl.TokenMean, []float64{.25, .25, 0}},
		{rl.SequenceMean, []float64{1.0 / 6, .5, 0}},
		{rl.TokenSum, []float64{1, 1, 0}},
	}
	for _, tt := range tests {
		got, err := tt.aggregation.Weights(masks)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if math.Abs(got[i]-tt.want[i]) > 1e-12 {
				t.Errorf("%s.Weights = %v, want %v", tt.aggregation, got, tt.want)
				break
			}
		}
	}
	if _, err := rl.Aggregation("median").Weights(masks); !errors.Is(err, rl.ErrInvalid) {
		t.Errorf("median.Weights: error %v, want ErrInvalid", err)
	}
}

// What is off the mask is never read, not even NaN.
func TestPolicyLossIgnoresMaskedOut(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	got, err := rl.PolicyLoss(rl.LossInput{
		Logprobs:   [][]float32{{nan, -1}},
		Old:        [][]float32{{nan, -1}},
		Advantages: [][]float32{{nan, 2}},
		Mask:       [][]float32{{0, 1}},
	}, rl.Clip{Low: .2, High: .2}, rl.TokenMean)
	if err != nil {
		t.Fatal(err)
	}
	if got.Value != -2 || got.Gradient[0][0] != 0 || got.Gradient[0][1] != -2 {
		t.Errorf("PolicyLoss = %v with gradient %v, want -2 and [0 -2]", got.Value, got.Gradient)
	}
}

func TestPolicyLossRefuses(t *testing.T) {
	t.Parallel()
	one := [][]float32{{1}}
	good := rl.LossInput{Logprobs: one, Old: one, Advantages: one, Mask: one}
	short := good
	short.Advantages = [][]float32{{}}
	tests := []struct {
		name string
		in   rl.LossInput
		clip rl.Clip
	}{
		{"ragged rows", short, rl.Clip{}},
		{"missing rows", rl.LossInput{Mask: one}, rl.Clip{}},
		{"clip low of 1", good, rl.Clip{Low: 1}},
		{"negative clip high", good, rl.Clip{High: -.1}},
		{"dual clip of 1", good, rl.Clip{Dual: 1}},
		{"NaN", good, rl.Clip{Low: math.NaN()}},
	}
	for _, tt := range tests {
		if _, err := rl.PolicyLoss(tt.in, tt.clip, rl.TokenMean); !errors.Is(err, rl.ErrInvalid) {
			t.Errorf("%s: error %v, want ErrInvalid", tt.name, err)
		}
	}
}
