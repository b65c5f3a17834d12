package rl

import "math"

// Pair are the log-probabilities of two answers to the same prompt, each summed
// over its tokens, under the policy and under the reference policy.
type Pair struct {
	Chosen, Rejected                   float64
	ReferenceChosen, ReferenceRejected float64
}

// PairLoss is the loss of one pair.
type PairLoss struct {
	Loss float64
	// Chosen and Rejected are the derivatives with respect to the two
	// log-probabilities under the policy.
	Chosen, Rejected float64
	// Margin is how much more the policy prefers the chosen answer than the
	// reference does, times beta: the difference of the implicit rewards.
	Margin float64
}

// DPO is the loss of direct preference optimisation (arXiv:2305.18290, equation
// 7): -log σ(beta·((log π_c - log ref_c) - (log π_r - log ref_r))).
func DPO(p Pair, beta float64) PairLoss {
	margin := beta * ((p.Chosen - p.ReferenceChosen) - (p.Rejected - p.ReferenceRejected))
	// log(1 + exp(-margin)) without an overflow.
	loss := math.Log1p(math.Exp(-math.Abs(margin))) + max(0, -margin)
	slope := -beta / (1 + math.Exp(margin))
	return PairLoss{Loss: loss, Chosen: slope, Rejected: -slope, Margin: margin}
}
