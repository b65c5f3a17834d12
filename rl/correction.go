package rl

import (
	"fmt"
	"math"
)

// Level says what one importance weight belongs to.
type Level string

const (
	// PerToken weighs each token by its own ratio.
	PerToken Level = "token"
	// PerSequence weighs the tokens of a row by the product of their ratios.
	PerSequence Level = "sequence"
)

// Over says what a rejection looks at.
type Over string

const (
	// OverToken looks at each token and rejects tokens.
	OverToken Over = "token"
	// OverSum looks at the sum over the tokens of a row, and rejects rows.
	OverSum Over = "seq_sum"
	// OverMean looks at their mean.
	OverMean Over = "seq_mean"
	// OverMax looks at the largest.
	OverMax Over = "seq_max"
)

// Correction makes up for the difference between the policy that sampled (its
// log-probabilities were captured with the tokens) and the policy that an
// update starts from: another implementation, or older weights. With δ the
// log-probability before the update less the captured one, the importance
// weight of a token is w = exp(δ), clamped to exp(±20). The zero value corrects
// nothing.
type Correction struct {
	// Weights says what is weighed; empty means nothing.
	Weights Level `json:"weights,omitempty"`
	// Cap truncates weights to w = min(w, Cap) (truncated importance sampling;
	// token level: https://fengyao.notion.site/off-policy-rl); 0 means 2.
	Cap float64 `json:"cap,omitempty"`
	// Floor, when it is not 0, turns truncation into a mask: weights outside
	// [Floor, Cap] become 0 (IcePop, with 0.5 and 2).
	Floor float64 `json:"floor,omitempty"`
	// Normalize divides the weights by their mean over the batch: over tokens, or
	// over the means of rows for [PerSequence].
	Normalize bool `json:"normalize,omitempty"`
	// Reject takes tokens or rows away altogether.
	Reject Rejection `json:"reject,omitzero"`
}

// Rejection takes tokens or rows out of the mask that the two policies disagree
// about too much. The zero value rejects nothing.
type Rejection struct {
	Over Over `json:"over,omitempty"` // empty means no rejection
	// Estimator is what is looked at: [K1] is -δ, [K2] δ²/2, [K3] exp(δ)-1-δ.
	// [OverMean] with [K1] and bounds close to 1 is the geometric sequence mask.
	Estimator KLEstimator `json:"estimator,omitempty"`
	// High is the largest estimate for [K2] and [K3]. For [K1] the estimate must lie
	// within [ln Low, ln High], so that it bounds exp(-δ), the captured probability
	// over that before the update: the inverse of what Cap and Floor bound. verl has
	// it so.
	High float64 `json:"high,omitempty"`
	// Low is for [K1] only; 0 means 1/High.
	Low float64 `json:"low,omitempty"`
}

// Corrected is what a correction makes of a batch.
type Corrected struct {
	// Weights are 0 off the mask; nil when nothing is weighed.
	Weights [][]float32
	// Mask is that of the batch without what was rejected.
	Mask [][]float32
	// RejectedTokens and RejectedRows count what is gone from the mask; a row
	// counts when no token of it is left.
	RejectedTokens, RejectedRows int
	// The rest describe the weights over the tokens of the mask before
	// normalisation: mean, deviation (divisor n), extremes, the shares of tokens
	// whose weight was above Cap and below 1/Cap (or Floor) before it was
	// truncated, and the effective share of the sample, mean(w)²/mean(w²).
	Mean, Std, Min, Max, ShareHigh, ShareLow, EffectiveShare float64
}

// Enabled reports whether the correction does anything.
func (c Correction) Enabled() bool { return c.Weights != "" || c.Reject.Over != "" }

// Validate returns an error naming the first field that is out of range, or
// that would not be looked at.
func (c Correction) Validate() error {
	r := c.resolved()
	switch c.Weights {
	case "":
		if c.Cap != 0 || c.Floor != 0 || c.Normalize {
			return fmt.Errorf("%w: correction: cap, floor and normalize need weights", ErrInvalid)
		}
	case PerToken, PerSequence:
		if !(r.Cap > 0) {
			return fmt.Errorf("%w: correction cap %v: must be above 0", ErrInvalid, c.Cap)
		}
		if !(c.Floor >= 0 && c.Floor < r.Cap) {
			return fmt.Errorf("%w: correction floor %v: must be at least 0 and below the cap of %v", ErrInvalid, c.Floor, r.Cap)
		}
	default:
		return fmt.Errorf("%w: correction weights %q: must be token or sequence", ErrInvalid, c.Weights)
	}
	j := r.Reject
	switch j.Over {
	case "":
		if j != (Rejection{}) {
			return fmt.Errorf("%w: rejection: says how but not over what", ErrInvalid)
		}
		return nil
	case OverToken, OverSum, OverMean, OverMax:
	default:
		return fmt.Errorf("%w: rejection over %q: must be token, seq_sum, seq_mean or seq_max", ErrInvalid, j.Over)
	}
	if err := j.Estimator.validate(); err != nil {
		return fmt.Errorf("rejection: %w", err)
	}
	switch {
	case !(j.High > 0):
		return fmt.Errorf("%w: rejection high %v: must be above 0", ErrInvalid, j.High)
	case j.Estimator != K1 && j.Low != 0:
		return fmt.Errorf("%w: rejection low %v: %s has no lower bound", ErrInvalid, j.Low, j.Estimator)
	case j.Estimator == K1 && !(j.Low > 0 && j.Low < j.High):
		return fmt.Errorf("%w: rejection low %v: must be above 0 and below high %v", ErrInvalid, j.Low, j.High)
	}
	return nil
}

func (c Correction) resolved() Correction {
	if c.Weights != "" && c.Cap == 0 {
		c.Cap = 2
	}
	if c.Reject.Over != "" && c.Reject.Estimator == K1 && c.Reject.Low == 0 {
		c.Reject.Low = 1 / c.Reject.High
	}
	return c
}

// Apply computes weights and mask from the log-probabilities of the policy
// before the update and those that were captured. All arguments have one slice
// a row and one entry a token; entries off the mask are not read. A token whose
// captured log-probability is not finite is an error: it was not captured.
func (c Correction) Apply(old, captured, mask [][]float32) (Corrected, error) {
	if err := c.Validate(); err != nil {
		return Corrected{}, err
	}
	b := Batch{Logprobs: old, Old: captured, Advantages: mask, Mask: mask}
	if err := b.validate(Loss{}); err != nil {
		return Corrected{}, err
	}
	c = c.resolved()
	out := Corrected{Mask: make([][]float32, len(mask))}
	delta := make([][]float64, len(mask))
	for i, row := range mask {
		out.Mask[i] = append([]float32(nil), row...)
		delta[i] = make([]float64, len(row))
		for t, m := range row {
			if m == 0 {
				continue
			}
			if d := float64(old[i][t]) - float64(captured[i][t]); finite(d) {
				delta[i][t] = d
				continue
			}
			return Corrected{}, fmt.Errorf("%w: row %d, token %d: log-probabilities %v before the update and %v captured: must be numbers",
				ErrInvalid, i, t, old[i][t], captured[i][t])
		}
	}
	if c.Weights != "" {
		c.weigh(&out, delta, mask)
	}
	if c.Reject.Over != "" {
		c.Reject.apply(&out, delta, mask)
	}
	return out, nil
}

// weigh fills the weights and what is told of them.
func (c Correction) weigh(out *Corrected, delta [][]float64, mask [][]float32) {
	out.Weights = make([][]float32, len(mask))
	low := c.Floor
	if low == 0 {
		low = 1 / c.Cap
	}
	var n, sum, squares, rows, rowMeans float64
	out.Min = math.Inf(1)
	for i, row := range mask {
		out.Weights[i] = make([]float32, len(row))
		total := 0.0
		for t, m := range row {
			if m != 0 {
				total += delta[i][t]
			}
		}
		rowN, rowSum := 0.0, 0.0
		for t, m := range row {
			if m == 0 {
				continue
			}
			d := delta[i][t]
			if c.Weights == PerSequence {
				d = total
			}
			w := math.Exp(clampLog(d))
			if w > c.Cap {
				out.ShareHigh++
			}
			if w < low {
				out.ShareLow++
			}
			switch {
			case c.Floor == 0:
				w = min(w, c.Cap)
			case w < c.Floor || w > c.Cap:
				w = 0
			}
			out.Weights[i][t] = float32(w)
			out.Min, out.Max = min(out.Min, w), max(out.Max, w)
			rowN++
			rowSum += w
			squares += w * w
		}
		if rowN > 0 {
			rows++
			rowMeans += rowSum / rowN
		}
		n += rowN
		sum += rowSum
	}
	if n == 0 {
		out.Min = 0
		return
	}
	out.ShareHigh /= n
	out.ShareLow /= n
	out.Mean = sum / n
	out.Std = math.Sqrt(max(0, squares/n-out.Mean*out.Mean))
	if squares > 0 {
		out.EffectiveShare = out.Mean * out.Mean / (squares / n)
	}
	if !c.Normalize {
		return
	}
	by := out.Mean
	if c.Weights == PerSequence {
		by = rowMeans / rows
	}
	if by == 0 {
		return
	}
	for i := range out.Weights {
		for t := range out.Weights[i] {
			out.Weights[i][t] = float32(float64(out.Weights[i][t]) / by)
		}
	}
}

func (r Rejection) apply(out *Corrected, delta [][]float64, mask [][]float32) {
	for i, row := range mask {
		var sum, most, n float64
		most = math.Inf(-1)
		for t, m := range row {
			if m == 0 {
				continue
			}
			v, _ := r.Estimator.Token(0, clampLog(delta[i][t]))
			if r.Over == OverToken && !r.accepts(v) {
				out.Mask[i][t] = 0
				out.RejectedTokens++
			}
			n++
			sum += v
			most = max(most, v)
		}
		if n == 0 {
			continue
		}
		value, whole := sum, true
		switch r.Over {
		case OverMean:
			value = sum / n
		case OverMax:
			value = most
		case OverToken:
			whole = false
		case OverSum:
		}
		if whole && !r.accepts(value) {
			clear(out.Mask[i])
			out.RejectedTokens += int(n)
		}
		if sampled(out.Mask[i]) == 0 {
			out.RejectedRows++
		}
	}
}

func (r Rejection) accepts(v float64) bool {
	if r.Estimator == K1 {
		return v >= math.Log(r.Low) && v <= math.Log(r.High)
	}
	return v <= r.High
}
