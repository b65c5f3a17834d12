// Package rl holds the arithmetic between what agents did and what a learner
// needs: pure functions over numbers, without I/O, clocks or randomness.
//
// The way of a batch is
//
//	rewards of a group    ──Advantages──▶  one advantage a rollout
//	captured and current
//	log-probabilities     ──Correction.Apply──▶  weights and what is rejected
//	log-probabilities,
//	advantages, weights   ──Loss.Sequence, Loss.Evaluate──▶  loss, gradient, metrics
//
// Every formula names the paper that it is from. Where a recorded value of the
// Python trainers disagrees with a paper, the recording wins, and the comment
// says so.
//
// A rollout is one attempt at a task, a group the rollouts of one task that are
// compared with one another, a row a sequence of tokens of which some were
// sampled by the policy; package adapter makes them. Rewards that are missing
// or not finite are absent, never zero.
//
// Log-probabilities are natural logarithms, advantages and losses have no unit.
// All statistics are computed in float64.
package rl
