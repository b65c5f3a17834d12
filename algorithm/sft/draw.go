package sft

import (
	"math/rand/v2"

	"agentlightning/learner"
)

// Draw makes batches for [Config.Rows] of rows that are there, such as those of
// stored rollouts: count of them a step, every pass over them each once, in an
// order of its own. For preferences, pairs stay together and count is that of
// pairs.
func Draw(rows []learner.Row, count int, pairs bool, seed int64) func(step int, random *rand.Rand) []learner.Row {
	unit := 1
	if pairs {
		unit = 2
	}
	units := len(rows) / unit
	return func(step int, _ *rand.Rand) []learner.Row {
		var out []learner.Row
		var order []int
		at := -1 // the pass that order is of
		for n := (step - 1) * count; n < step*count && units > 0; n++ {
			if pass := n / units; pass != at {
				at, order = pass, rand.New(rand.NewPCG(uint64(seed), uint64(pass)^0xd1a)).Perm(units)
			}
			first := order[n%units] * unit
			out = append(out, rows[first:first+unit]...)
		}
		return out
	}
}
