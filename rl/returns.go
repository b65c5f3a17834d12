package rl

import (
	"fmt"
	"math"
)

// Returns computes discounted rewards to go, token by token: G_t = r_t +
// gamma·G_{t+1}. What comes after a token that is masked out does not reach
// back over it, as REINFORCE++ has it (arXiv:2501.03262, in verl's reading).
// rewards and mask have one slice a row, one entry a token, of the same shape.
func Returns(rewards, mask [][]float64, gamma float64) ([][]float64, error) {
	if err := sameShape("rewards", rewards, mask); err != nil {
		return nil, err
	}
	if !(gamma >= 0 && gamma <= 1) {
		return nil, fmt.Errorf("%w: gamma %v: must be between 0 and 1", ErrInvalid, gamma)
	}
	out := make([][]float64, len(rewards))
	for i, row := range rewards {
		out[i] = make([]float64, len(row))
		next := 0.0
		for t := len(row) - 1; t >= 0; t-- {
			next = row[t] + gamma*next
			out[i][t] = next
			if mask[i][t] == 0 {
				next = 0
			}
		}
	}
	return out, nil
}

// GAE computes generalised advantages of one row (arXiv:1506.02438, equation
// 16): with delta_t = r_t + gamma·V_{t+1} - V_t,
//
//	A_t = delta_t + gamma·lambda·A_{t+1}    returns_t = A_t + V_t
//
// over the tokens with a mask other than 0; those between two of them (answers
// of tools, for instance) are skipped, so that the next sampled token is the
// next step. The value after the last one is 0. Masked-out entries are 0.
func GAE(rewards, values, mask []float64, gamma, lambda float64) (advantages, returns []float64, err error) {
	switch {
	case len(rewards) != len(mask) || len(values) != len(mask):
		return nil, nil, fmt.Errorf("%w: %d rewards and %d values for %d mask entries", ErrInvalid, len(rewards), len(values), len(mask))
	case !(gamma >= 0 && gamma <= 1):
		return nil, nil, fmt.Errorf("%w: gamma %v: must be between 0 and 1", ErrInvalid, gamma)
	case !(lambda >= 0 && lambda <= 1):
		return nil, nil, fmt.Errorf("%w: lambda %v: must be between 0 and 1", ErrInvalid, lambda)
	}
	advantages, returns = make([]float64, len(mask)), make([]float64, len(mask))
	nextValue, next := 0.0, 0.0
	for t := len(mask) - 1; t >= 0; t-- {
		if mask[t] == 0 {
			continue
		}
		next = rewards[t] + gamma*nextValue - values[t] + gamma*lambda*next
		nextValue = values[t]
		advantages[t], returns[t] = next, next+values[t]
	}
	return advantages, returns, nil
}

// whiteningEpsilon is added to a variance and to a number of tokens before they
// divide.
const whiteningEpsilon = 1e-8

// Whiten shifts and scales the values of all masked tokens in place to mean 0
// and variance 1: (x - mean) / sqrt(var + 1e-8), with the unbiased variance.
// Entries off the mask become 0. With fewer than two tokens nothing is scaled.
func Whiten(values, mask [][]float64) error {
	if err := sameShape("values", values, mask); err != nil {
		return err
	}
	var w whitening
	for i, row := range mask {
		for t, m := range row {
			if m != 0 {
				w.add(values[i][t], 1)
			}
		}
	}
	mean, divisor := w.scale()
	for i, row := range mask {
		for t, m := range row {
			if values[i][t] = (values[i][t] - mean) / divisor; m == 0 {
				values[i][t] = 0
			}
		}
	}
	return nil
}

// whitening gathers mean and variance of values that count several times.
type whitening struct{ n, mean, sq float64 }

func (w *whitening) add(x, times float64) {
	w.n += times
	d := x - w.mean
	w.mean += d * times / w.n
	w.sq += times * d * (x - w.mean)
}

// scale returns what is subtracted and what divides.
func (w *whitening) scale() (mean, divisor float64) {
	if w.n < 2 {
		return 0, 1
	}
	return w.mean * w.n / (w.n + whiteningEpsilon), math.Sqrt(w.sq/(w.n-1) + whiteningEpsilon)
}

// ValueLoss is the loss of a critic at one token: half of the larger of (V-G)²
// and (V'-G)², where V' is V kept within clip of the value before the update
// (PPO's clipped value loss, as common implementations have it). clip 0 turns
// the second off. gradient is the derivative with respect to value.
func ValueLoss(value, old, target, clip float64) (loss, gradient float64) {
	loss, gradient = (value-target)*(value-target)/2, value-target
	if clip <= 0 {
		return loss, gradient
	}
	held := min(max(value, old-clip), old+clip)
	if other := (held - target) * (held - target) / 2; other > loss {
		loss, gradient = other, 0
		if held == value {
			gradient = value - target
		}
	}
	return loss, gradient
}

// SoftOverlong is DAPO's penalty for long answers (arXiv:2503.14476, equation
// 13): 0 up to limit-cache tokens, falling to -1 at limit, -1 beyond.
func SoftOverlong(length, limit, cache int) float64 {
	switch free := limit - cache; {
	case length <= free:
		return 0
	case length > limit:
		return -1
	default:
		return float64(free-length) / float64(cache)
	}
}

// sameShape returns an error when values do not have the shape of the mask.
func sameShape(what string, values, mask [][]float64) error {
	if len(values) != len(mask) {
		return fmt.Errorf("%w: %d rows of %s for %d rows of mask", ErrInvalid, len(values), what, len(mask))
	}
	for i := range mask {
		if len(values[i]) != len(mask[i]) {
			return fmt.Errorf("%w: row %d: %d %s for %d mask entries", ErrInvalid, i, len(values[i]), what, len(mask[i]))
		}
	}
	return nil
}
