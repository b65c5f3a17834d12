package grpo

import (
	"agentlightning/adapter"
	"agentlightning/algorithm"
	"agentlightning/learner"
	"agentlightning/rl"
)

// counts say what became of the model calls of a step.
type counts struct {
	calls        int            // recorded
	problems     map[string]int // left out: flagged, or without ids
	noLogprobs   int            // rows left out for want of log-probabilities
	mismatches   int            // calls whose prompt does not continue what was said before
	rows, tokens int            // rows trained on; tokens sampled in all calls
}

func (c counts) add(to map[string]float64) {
	to["calls"] = float64(c.calls)
	left := 0
	for problem, n := range c.problems {
		to["calls_left_out_"+problem] = float64(n)
		left += n
	}
	to["calls_left_out"] = float64(left)
	to["rows_without_logprobs"] = float64(c.noLogprobs)
	to["prefix_mismatches"] = float64(c.mismatches)
	to["rows"] = float64(c.rows)
	to["sampled_tokens"] = float64(c.tokens)
}

// makeRows turns the calls of the rollouts that have an advantage into rows.
// The order of the rows is that of the outcomes.
func makeRows(outcomes []algorithm.Outcome, advantages []rl.Advantage) ([]learner.Row, counts) {
	var rows []learner.Row
	n := counts{problems: map[string]int{}}
	for i, o := range outcomes {
		// Rewards on the way are not used here, so one that cannot be read does
		// no harm; that of the rollout was read before.
		calls, _ := adapter.Calls(o.Spans)
		for i := range calls {
			n.calls++
			n.tokens += len(calls[i].ResponseIDs)
			if !calls[i].Usable() {
				n.problems[calls[i].Problem]++
			}
		}
		if !advantages[i].Used {
			continue
		}
		trajectories, mismatches := adapter.Trajectories(calls, adapter.TrajectoryConfig{})
		n.mismatches += len(mismatches)
		for _, r := range trajectories {
			if r.Logprobs == nil {
				n.noLogprobs++
				continue
			}
			rows = append(rows, learner.Row{
				IDs: r.IDs, Mask: r.Mask, Logprobs: r.Logprobs,
				Advantages: spread(r.Mask, advantages[i].Value), Rollout: o.Rollout.RolloutID,
			})
		}
	}
	n.rows = len(rows)
	return rows, n
}

// spread puts an advantage on every sampled token.
func spread(mask []float32, advantage float64) []float32 {
	out := make([]float32, len(mask))
	for i, m := range mask {
		if m != 0 {
			out[i] = float32(advantage)
		}
	}
	return out
}
