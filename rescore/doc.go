// Package rescore computes rewards of rollouts that are stored, without running
// an agent, and keeps them as a named set beside the rewards that agents gave.
//
// A [Scorer] says what attempts are worth: an expression (package
// [agentlightning/rescore/expr]), a program ([Command]), a service ([HTTP]), a
// language model with a rubric ([Judge]) or one that ranks the answers to the
// same task ([Ranking]), or a Go function ([Func]). [Run] applies it to chosen
// rollouts. What was scored is stored before the next is begun, so that work that
// was interrupted or killed goes on when it is started again, and nothing is
// scored twice.
//
// The spans of a set are read by [agentlightning.InRewardSet].
package rescore
