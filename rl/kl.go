package rl

import (
	"fmt"
	"math"
)

// KLEstimator estimates the divergence KL(policy ‖ reference) from one token
// that the policy sampled (J. Schulman, http://joschu.net/blog/kl-approx.html).
// In the formulas d is logprob - reference.
type KLEstimator string

const (
	// K1 is d: unbiased, of either sign. Its derivative is 1 whatever the
	// reference is, so it belongs into rewards; as a loss it only adds noise.
	K1 KLEstimator = "k1"
	// K2 is d²/2: biased, its gradient is that of the divergence in expectation.
	K2 KLEstimator = "k2"
	// K3 is exp(-d) - 1 + d: unbiased and never negative.
	K3 KLEstimator = "k3"
)

// Token returns the estimate and its derivative with respect to logprob. The
// exponent of [K3] is clamped to ±20.
func (e KLEstimator) Token(logprob, reference float64) (value, gradient float64) {
	d := logprob - reference
	switch e {
	case K1:
		return d, 1
	case K2:
		return d * d / 2, d
	case K3:
		held := min(max(-d, -maxLogRatio), maxLogRatio)
		r := math.Exp(held)
		if held != -d {
			return r - 1 - held, 0
		}
		return r - 1 - held, 1 - r
	}
	return math.NaN(), math.NaN()
}

func (e KLEstimator) validate() error {
	switch e {
	case K1, K2, K3:
		return nil
	}
	return fmt.Errorf("%w: KL estimator %q: must be k1, k2 or k3", ErrInvalid, e)
}

// KL is a penalty for moving away from a reference policy. The zero value is
// none.
type KL struct {
	Estimator KLEstimator `json:"estimator,omitempty"` // empty means [K3]
	// Coefficient multiplies the estimate; 0 turns the penalty off.
	Coefficient float64 `json:"coefficient,omitempty"`
}

// Validate returns an error naming the field that is out of range.
func (k KL) Validate() error {
	if !(k.Coefficient >= 0) || math.IsInf(k.Coefficient, 0) {
		return fmt.Errorf("%w: KL coefficient %v: must be a number from 0", ErrInvalid, k.Coefficient)
	}
	if k.Coefficient == 0 && k.Estimator != "" {
		return fmt.Errorf("%w: KL estimator %q without a coefficient", ErrInvalid, k.Estimator)
	}
	return k.estimator().validate()
}

func (k KL) estimator() KLEstimator {
	if k.Estimator == "" {
		return K3
	}
	return k.Estimator
}

// Penalty returns what is taken off the reward of a row or a rollout: the
// coefficient times the sum of the estimates over its sampled tokens, with
// logprobs under the policy that sampled them (KL in the reward).
func (k KL) Penalty(logprobs, reference, mask []float32) (float64, error) {
	if err := k.Validate(); err != nil {
		return 0, err
	}
	if len(logprobs) != len(mask) || len(reference) != len(mask) {
		return 0, fmt.Errorf("%w: %d log-probabilities and %d of the reference for %d mask entries", ErrInvalid, len(logprobs), len(reference), len(mask))
	}
	sum := 0.0
	for t, m := range mask {
		if m != 0 {
			v, _ := k.estimator().Token(float64(logprobs[t]), float64(reference[t]))
			sum += v
		}
	}
	return k.Coefficient * sum, nil
}

// Entropy returns the entropy of the softmax of logits, in nats, and writes its
// derivative with respect to each of them to gradient (which may be logits):
// -p·(log p + entropy).
func Entropy(logits, gradient []float64) float64 {
	shift := math.Inf(-1)
	for _, z := range logits {
		shift = max(shift, z)
	}
	sum, weighted := 0.0, 0.0
	for _, z := range logits {
		e := math.Exp(z - shift)
		sum += e
		weighted += e * (z - shift)
	}
	entropy := math.Log(sum) - weighted/sum
	for i, z := range logits {
		logp := z - shift - math.Log(sum)
		gradient[i] = -math.Exp(logp) * (logp + entropy)
	}
	return entropy
}
