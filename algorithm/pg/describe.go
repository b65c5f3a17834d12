package pg

import (
	"agentlightning/adapter"
	"agentlightning/algorithm"
	"agentlightning/learner"
)

// extremes are the mean, the least and the most of some numbers.
type extremes struct {
	n              int
	sum, low, high float64
}

func (s *extremes) add(v float64) {
	if s.n == 0 {
		s.low, s.high = v, v
	}
	s.n++
	s.sum += v
	s.low, s.high = min(s.low, v), max(s.high, v)
}

// put stores them as NAME/mean, /max and /min, unless there are none.
func (s *extremes) put(to map[string]float64, name string) {
	if s.n > 0 {
		to[name+"/mean"], to[name+"/max"], to[name+"/min"] = s.sum/float64(s.n), s.high, s.low
	}
}

// describe adds what trackers know of a batch under their own names: scores of
// rollouts and what was left of them to learn from, advantages of sampled tokens,
// sampled tokens and prompt tokens of rows.
func (b *batch) describe(rows []learner.Row, to map[string]float64) {
	traced, rewarded, unmerged := 0, 0, 0
	var rewards, advantages, responses, prompts extremes
	for i := range b.rollouts {
		if len(b.rollouts[i].Calls) > 0 {
			traced++
		}
		if b.scored[i] {
			rewarded++
			if r := b.rollouts[i].Final; r != nil {
				rewards.add(*r)
			}
		}
	}
	perRollout := map[string]int{}
	for _, row := range rows {
		sampled, prompt := 0, -1
		for t, m := range row.Mask {
			if m == 0 {
				continue
			}
			if sampled++; prompt < 0 {
				prompt = t
			}
			if len(row.Advantages) > t {
				advantages.add(float64(row.Advantages[t]))
			}
		}
		responses.add(float64(sampled))
		prompts.add(float64(max(prompt, 0)))
		if perRollout[row.Rollout]++; perRollout[row.Rollout] == 2 {
			unmerged++
		}
	}
	to["training/n_rollouts_w_trace"], to["training/n_rollouts_w_reward"] = float64(traced), float64(rewarded)
	to["training/n_unmerged_rollouts"] = float64(unmerged)
	b.scores.put(to, "critic/score")
	rewards.put(to, "critic/rewards")
	advantages.put(to, "critic/advantages")
	responses.put(to, "response_length")
	prompts.put(to, "prompt_length")
}

// describeValidation adds the same of a validation. Lengths and turns are those
// of rollouts with model calls; an unreadable reward does not matter to them.
func describeValidation(outcomes []algorithm.Outcome, to map[string]float64) {
	traced := 0
	var turns, perTurn, total extremes
	for _, o := range outcomes {
		calls, _ := adapter.Calls(o.Spans)
		if len(calls) == 0 {
			continue
		}
		traced++
		tokens := 0
		for i := range calls {
			tokens += len(calls[i].ResponseIDs)
		}
		turns.add(float64(len(calls)))
		total.add(float64(tokens))
		perTurn.add(float64(tokens) / float64(len(calls)))
	}
	_, rewarded := algorithm.MeanReward(outcomes)
	to["val/n_rollouts"], to["val/n_rollouts_w_trace"], to["val/n_rollouts_w_reward"] = float64(len(outcomes)), float64(traced), float64(rewarded)
	if traced > 0 {
		to["val/turn_count"] = turns.sum / float64(traced)
		to["val/mean_response_length_per_turn"] = perTurn.sum / float64(traced)
		to["val/mean_total_response_length_per_rollout"] = total.sum / float64(traced)
	}
}
