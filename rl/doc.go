// Package rl holds the arithmetic between what agents did and what a learner
// needs: pure functions over numbers, without I/O, clocks or randomness.
//
// The way of a batch is
//
//	turns of a rollout ──Merge──▶ Sequences ──Cut──▶ training rows
//	rewards of a group ──GroupAdvantages──▶ one advantage a rollout
//	rows + advantages  ──RolloutWeights──▶ weight of every sampled token
//	log-probabilities  ──Clip.Token / PolicyLoss──▶ loss, gradient, metrics
//
// A turn is one call of the model, a rollout one attempt at a task, a group the
// rollouts of one task that are compared with one another. Token ids are those
// of the engine that sampled them; nothing here tokenises text. Rewards that
// are missing or not finite are absent, never zero.
//
// Log-probabilities are natural logarithms, advantages and losses have no unit.
// All statistics are computed in float64.
package rl
