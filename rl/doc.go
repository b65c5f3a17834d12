// Package rl holds the arithmetic between what agents did and what a learner
// needs: pure functions over numbers, without I/O, clocks or randomness.
//
// The way of a batch is
//
//	calls of an attempt ──adapter.Trajectories──▶ training rows
//	rewards of a group ──GroupAdvantages──▶ one advantage a rollout
//	rows + advantages  ──RolloutWeights──▶ weight of every sampled token
//	log-probabilities  ──Clip.Token / PolicyLoss──▶ loss, gradient, metrics
//
// A rollout is one attempt at a task, a group the rollouts of one task that are
// compared with one another, a row a sequence of tokens of which some were
// sampled by the policy; package adapter makes them. Rewards that are missing
// or not finite are absent, never zero.
//
// Log-probabilities are natural logarithms, advantages and losses have no unit.
// All statistics are computed in float64.
package rl
