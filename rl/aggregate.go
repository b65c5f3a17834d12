package rl

import "fmt"

// Aggregation says how the losses of tokens become the loss of a batch.
type Aggregation string

const (
	// TokenMean is the mean over all sampled tokens of the batch: every token
	// counts the same, long rows count more (DAPO, arXiv:2503.14476, section 3.3).
	TokenMean Aggregation = "token_mean"
	// SequenceMean is the mean over rows of the mean over a row's tokens
	// (GRPO, arXiv:2402.03300, equation 3).
	SequenceMean Aggregation = "sequence_mean"
	// SequenceSum is the mean over rows of the sum over a row's tokens.
	SequenceSum Aggregation = "sequence_sum"
	// ConstantNorm is [SequenceSum] divided by [Loss.Norm], a constant such as the
	// largest number of tokens an answer may have (Dr. GRPO, arXiv:2503.20783,
	// section 3.2).
	ConstantNorm Aggregation = "constant_norm"
	// RolloutMean is the mean over rollouts of the mean over the tokens in all
	// rows of a rollout, so that a rollout that was split into rows weighs as
	// much as any other.
	RolloutMean Aggregation = "rollout_mean"
	// TokenSum is the plain sum, for advantages that are normalised already
	// ([NormalizeAdvantages]).
	TokenSum Aggregation = "token_sum"
)

// Aggregations lists all of them.
func Aggregations() []Aggregation {
	return []Aggregation{TokenMean, SequenceMean, SequenceSum, ConstantNorm, RolloutMean, TokenSum}
}

// Size is how much of a batch one row is.
type Size struct {
	// Tokens is the number of sampled tokens, or the sum of their weights.
	Tokens float64
	// Rollout names the rollout of the row; read by [RolloutMean].
	Rollout string
}

// Shares returns the weight of a token of each row, before the loss of an
// optimiser step is divided by what [Loss.Divisor] says of its rows. rows are
// those of the whole batch, of which a step may hold a part. A row without
// tokens has no weight.
func (l Loss) Shares(rows []Size) []float64 {
	tokens := make(map[string]float64)
	if l.aggregation() == RolloutMean {
		for _, r := range rows {
			tokens[r.Rollout] += r.Tokens
		}
	}
	out := make([]float64, len(rows))
	for i, r := range rows {
		if r.Tokens == 0 {
			continue
		}
		switch l.aggregation() {
		case SequenceMean:
			out[i] = 1 / r.Tokens
		case RolloutMean:
			out[i] = 1 / tokens[r.Rollout]
		case ConstantNorm:
			out[i] = 1 / l.Norm
		case TokenMean, SequenceSum, TokenSum:
			out[i] = 1
		}
	}
	return out
}

// Divisor returns what the sum of the weighted losses of an optimiser step is
// divided by: for the means over tokens, rows and rollouts the sum of the
// weights, for sums over rows the number of rows with a token, for [TokenSum] 1.
// It is never 0.
func (l Loss) Divisor(rows []Size, shares []float64) float64 {
	sum, count := 0.0, 0
	for i, r := range rows {
		if r.Tokens > 0 {
			sum += r.Tokens * shares[i]
			count++
		}
	}
	switch {
	case count == 0 || l.aggregation() == TokenSum:
		return 1
	case l.aggregation() == SequenceSum || l.aggregation() == ConstantNorm:
		return float64(count)
	}
	return sum
}

func (l Loss) validateAggregation() error {
	for _, a := range Aggregations() {
		if a != l.aggregation() {
			continue
		}
		switch {
		case a == ConstantNorm && !(l.Norm > 0 && finite(l.Norm)):
			return fmt.Errorf("%w: norm %v: constant_norm needs a number above 0", ErrInvalid, l.Norm)
		case a != ConstantNorm && l.Norm != 0:
			return fmt.Errorf("%w: norm %v: %s has no norm", ErrInvalid, l.Norm, a)
		}
		return nil
	}
	return fmt.Errorf("%w: aggregation %q: must be one of %v", ErrInvalid, l.Aggregation, Aggregations())
}

func (l Loss) aggregation() Aggregation {
	if l.Aggregation == "" {
		return TokenMean
	}
	return l.Aggregation
}
