package rl

import (
	"fmt"
	"math"
)

// maxLogRatio bounds the logarithm of an importance ratio before it is
// exponentiated.
const maxLogRatio = 20

// maskEpsilon keeps masked means over no token finite.
const maskEpsilon = 1e-8

// Ratio is the importance ratio of a token: its probability under the policy
// being trained over that under the policy that sampled it. The logarithm is
// clamped to ±20.
func Ratio(logprob, old float64) float64 {
	return math.Exp(min(max(logprob-old, -maxLogRatio), maxLogRatio))
}

// KL3 estimates the divergence KL(policy ‖ reference) from one token sampled by
// the policy: exp(d) - 1 - d with d = reference - logprob. It is unbiased and
// never negative ("k3", http://joschu.net/blog/kl-approx.html). gradient is its
// derivative with respect to logprob.
func KL3(logprob, reference float64) (value, gradient float64) {
	d := min(max(reference-logprob, -maxLogRatio), maxLogRatio)
	r := math.Exp(d)
	if d != reference-logprob {
		return r - 1 - d, 0
	}
	return r - 1 - d, 1 - r
}

// Clip is the clipped surrogate objective of policy gradients. Low and High are
// the distances that a ratio may move away from 1 before it stops to count;
// High above Low is "clip-higher" (DAPO, arXiv:2503.14476, equation 10).
type Clip struct {
	// Low is in [0, 1), High at least 0.
	Low, High float64
	// Dual bounds the loss of a token with negative advantage by Dual·|A|
	// (dual-clip PPO, arXiv:1912.09729); it must exceed 1; 0 turns it off.
	Dual float64
}

// Validate returns an error naming the first field that is out of range.
func (c Clip) Validate() error {
	switch {
	case !(c.Low >= 0 && c.Low < 1):
		return fmt.Errorf("%w: clip low %v: must be at least 0 and below 1", ErrInvalid, c.Low)
	case !(c.High >= 0):
		return fmt.Errorf("%w: clip high %v: must be at least 0", ErrInvalid, c.High)
	case c.Dual != 0 && !(c.Dual > 1):
		return fmt.Errorf("%w: dual clip %v: must be above 1, or 0 for none", ErrInvalid, c.Dual)
	}
	return nil
}

// TokenLoss is the surrogate loss of one token.
type TokenLoss struct {
	Loss     float64
	Gradient float64 // derivative with respect to the token's log-probability
	Ratio    float64
	// Clipped: the clipped branch decided. ClippedDual: the dual bound did.
	Clipped, ClippedDual bool
}

// Token returns max(-A·ρ, -A·clamp(ρ, 1-Low, 1+High)) for the ratio ρ of the
// token (PPO, arXiv:1707.06347, equation 7, with the sign of a loss), bounded
// for negative A when Dual is set. The gradient is -A·ρ where the first branch
// decides and 0 elsewhere.
func (c Clip) Token(logprob, old, advantage float64) TokenLoss {
	ratio := Ratio(logprob, old)
	plain := -advantage * ratio
	clipped := -advantage * min(max(ratio, 1-c.Low), 1+c.High)
	t := TokenLoss{Loss: plain, Gradient: plain, Ratio: ratio}
	if math.Abs(logprob-old) > maxLogRatio {
		t.Gradient = 0 // the clamp of the logarithm is flat out there
	}
	if clipped > plain {
		t.Loss, t.Gradient, t.Clipped = clipped, 0, true
	}
	if c.Dual != 0 && advantage < 0 {
		if bound := -advantage * c.Dual; t.Loss > bound {
			t.Loss, t.Gradient, t.ClippedDual = bound, 0, true
		}
	}
	return t
}

// Aggregation says how the losses of tokens become the loss of a batch.
type Aggregation string

const (
	// TokenMean is the mean over all masked tokens of the batch: every token
	// counts the same, long rows count more (DAPO, arXiv:2503.14476, section 3.3).
	TokenMean Aggregation = "token_mean"
	// SequenceMean is the mean over rows of the mean over a row's masked tokens
	// (GRPO as published).
	SequenceMean Aggregation = "sequence_mean"
	// TokenSum is the plain sum, for advantages that are normalised already.
	TokenSum Aggregation = "token_sum"
)

// Weights returns the weight of a masked token of each row under the
// aggregation, for masks with one slice a row. Rows without a masked token
// have weight 0 and do not count as rows.
func (a Aggregation) Weights(masks [][]float32) ([]float64, error) {
	rows, total := 0, 0
	counts := make([]int, len(masks))
	for i, m := range masks {
		counts[i] = sampled(m)
		total += counts[i]
		if counts[i] > 0 {
			rows++
		}
	}
	weights := make([]float64, len(masks))
	for i, n := range counts {
		if n == 0 {
			continue
		}
		switch a {
		case TokenMean:
			weights[i] = 1 / float64(total)
		case SequenceMean:
			weights[i] = 1 / float64(n*rows)
		case TokenSum:
			weights[i] = 1
		default:
			return nil, fmt.Errorf("%w: aggregation %q: must be token_mean, sequence_mean or token_sum", ErrInvalid, a)
		}
	}
	return weights, nil
}

// LossInput are the tokens of a batch: one slice a row, one entry a token, all
// of the same shape. Entries where Mask is 0 are never read.
type LossInput struct {
	Logprobs   [][]float32 // under the policy being trained
	Old        [][]float32 // under the policy that sampled
	Advantages [][]float32
	Mask       [][]float32
	// Correction multiplies the loss of each token, for instance by truncated
	// importance weights; nil means 1 everywhere.
	Correction [][]float32
}

// Loss is the loss of a batch and how it came about.
type Loss struct {
	Value float64
	// Gradient is the derivative with respect to Logprobs, 0 off the mask.
	Gradient [][]float32
	// The rest are means over masked tokens: share of clipped tokens and of
	// tokens at the dual bound, mean of old minus new log-probability, its k3
	// estimate, and mean ratio.
	ClipFraction     float64
	DualClipFraction float64
	KL1, KL3         float64
	RatioMean        float64
}

// PolicyLoss is the clipped surrogate loss of a batch.
func PolicyLoss(in LossInput, clip Clip, aggregation Aggregation) (Loss, error) {
	if err := clip.Validate(); err != nil {
		return Loss{}, err
	}
	if err := in.validate(); err != nil {
		return Loss{}, err
	}
	weights, err := aggregation.Weights(in.Mask)
	if err != nil {
		return Loss{}, err
	}
	out := Loss{Gradient: make([][]float32, len(in.Mask))}
	var tokens, clipped, dual float64
	for i, mask := range in.Mask {
		out.Gradient[i] = make([]float32, len(mask))
		for t, m := range mask {
			if m == 0 {
				continue
			}
			logprob, old := float64(in.Logprobs[i][t]), float64(in.Old[i][t])
			tok := clip.Token(logprob, old, float64(in.Advantages[i][t]))
			w := weights[i]
			if in.Correction != nil {
				w *= float64(in.Correction[i][t])
			}
			out.Value += w * tok.Loss
			out.Gradient[i][t] = float32(w * tok.Gradient)
			tokens++
			if tok.Clipped {
				clipped++
			}
			if tok.ClippedDual {
				dual++
			}
			k3, _ := KL3(old, logprob) // tokens come from the old policy
			out.KL1 += min(max(old-logprob, -maxLogRatio), maxLogRatio)
			out.KL3 += k3
			out.RatioMean += tok.Ratio
		}
	}
	tokens += maskEpsilon
	out.ClipFraction, out.DualClipFraction = clipped/tokens, dual/tokens
	out.KL1, out.KL3, out.RatioMean = out.KL1/tokens, out.KL3/tokens, out.RatioMean/tokens
	return out, nil
}

func (in LossInput) validate() error {
	parts := []struct {
		name string
		rows [][]float32
	}{{"logprobs", in.Logprobs}, {"old logprobs", in.Old}, {"advantages", in.Advantages}, {"correction", in.Correction}}
	if in.Correction == nil {
		parts = parts[:3]
	}
	for _, p := range parts {
		if len(p.rows) != len(in.Mask) {
			return fmt.Errorf("%w: %d rows of %s for %d rows of mask", ErrInvalid, len(p.rows), p.name, len(in.Mask))
		}
		for i, row := range p.rows {
			if len(row) != len(in.Mask[i]) {
				return fmt.Errorf("%w: row %d: %d %s for %d mask entries", ErrInvalid, i, len(row), p.name, len(in.Mask[i]))
			}
		}
	}
	return nil
}
