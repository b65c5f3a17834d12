package pg

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"agentlightning/adapter"
	"agentlightning/adapter/credit"
	"agentlightning/algorithm"
	"agentlightning/learner"
	"agentlightning/rl"
)

// batch turns the outcomes of a step into the rows of an update.
type batch struct {
	*Config
	rollouts []credit.Rollout
	scored   []bool   // whether the rollout has a reward that counts
	scores   extremes // rewards as they were earned, before anything is paid off them
	// baselines are the greedy rollouts of the groups, for methods that have them.
	baselines map[string]credit.Rollout
	parts     []part
	stats     rl.AdvantageStats
	counts    counts
}

// part is one row and the rollout that it is of.
type part struct {
	learner.Row
	rollout int
	// origin is the call that brought each token.
	origin []int32
}

// counts say what became of the model calls of a step.
type counts struct {
	calls        int            // recorded
	cut          int            // of these, ended by the limit on tokens
	problems     map[string]int // left out: flagged, or without ids
	noLogprobs   int            // rows left out for want of log-probabilities
	mismatches   int            // calls whose prompt does not continue what was said before
	unreadable   int            // rewards that cannot be read
	uncredited   int            // calls that the rule of credit leaves out
	dropped      int            // rows left out to fill whole minibatches
	noBaseline   int            // rollouts left out for want of what they are compared with
	rows, tokens int            // rows trained on; tokens sampled in all calls
	corrected    *rl.Corrected
	rewardKL     float64 // mean penalty over the rollouts with rows
}

func (c *counts) add(to map[string]float64) {
	to["calls"] = float64(c.calls)
	if c.calls > 0 {
		to["response_length/clip_ratio"] = float64(c.cut) / float64(c.calls)
	}
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
	for name, n := range map[string]int{
		"rewards_unreadable": c.unreadable, "calls_uncredited": c.uncredited, "rows_dropped": c.dropped,
		"rollouts_without_baseline": c.noBaseline,
	} {
		if n > 0 {
			to[name] = float64(n)
		}
	}
	if c.rewardKL != 0 {
		to["reward_kl"] = c.rewardKL
	}
	if r := c.corrected; r != nil {
		to["rejected_tokens"], to["rejected_rows"] = float64(r.RejectedTokens), float64(r.RejectedRows)
		if r.Weights != nil {
			to["correction_mean"], to["correction_effective_share"] = r.Mean, r.EffectiveShare
		}
	}
}

// newBatch reads the outcomes.
func newBatch(c *Config, g gathered) *batch {
	b := &batch{Config: c, counts: counts{problems: map[string]int{}}, baselines: map[string]credit.Rollout{}}
	for i, o := range g.outcomes {
		r := b.read(o, g.groups[i])
		scored := c.Method.reward(o) != nil
		b.rollouts, b.scored = append(b.rollouts, r), append(b.scored, scored)
		if scored && r.Final != nil {
			b.scores.add(*r.Final)
		}
	}
	for group, o := range g.baselines {
		b.baselines[group] = b.read(o, group)
	}
	return b
}

func (b *batch) read(o algorithm.Outcome, group string) credit.Rollout {
	r := credit.Read(o.Rollout.RolloutID, group, o.Spans)
	b.counts.unreadable += len(r.Unreadable)
	r.Failed = o.Failure != ""
	for j := range r.Calls {
		b.counts.calls++
		b.counts.tokens += len(r.Calls[j].ResponseIDs)
		if reason := r.Calls[j].FinishReason; reason == "length" || reason == "max_tokens" {
			b.counts.cut++
		}
		if !r.Calls[j].Usable() {
			b.counts.problems[r.Calls[j].Problem]++
		}
	}
	return r
}

// shuffle permutes the rewards among the rollouts that earned one, those on the
// way together with the final one.
func (b *batch) shuffle(random *rand.Rand) {
	var have []int
	for i, scored := range b.scored {
		if scored {
			have = append(have, i)
		}
	}
	before, of := slices.Clone(b.rollouts), slices.Clone(have)
	random.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
	for i, at := range have {
		b.rollouts[at].TakeRewards(&before[of[i]])
	}
}

// assign computes what each call is worth, in the order in which one thing needs
// the other: rows, corrections, penalties, credit, advantages.
func (b *batch) assign(ctx context.Context) error {
	b.parts = b.join(b.rollouts, &b.counts)
	if err := b.correct(ctx); err != nil {
		return err
	}
	if err := b.penalize(ctx); err != nil {
		return err
	}
	if b.Method.Advantages.Estimator == rl.ReMax {
		if err := b.compare(ctx); err != nil {
			return err
		}
	}
	assigned, err := credit.Assign(b.rollouts, b.Method.Credit, b.Method.comparison())
	if err != nil {
		return err
	}
	b.stats = assigned.Stats
	b.spread(assigned.Calls)
	if b.Method.Critic != nil {
		return b.criticise(ctx)
	}
	return nil
}

// join makes rows of the calls of every rollout that may be trained on.
func (b *batch) join(rollouts []credit.Rollout, counts *counts) []part {
	var parts []part
	for i := range rollouts {
		r := &rollouts[i]
		if how := b.Method.Advantages.OnFailure; how != rl.ZeroFailed && (r.Final == nil || r.Failed && how != rl.KeepFailed) {
			continue
		}
		calls := make([]adapter.Call, len(r.Calls))
		for j := range r.Calls {
			calls[j] = r.Calls[j].Call
		}
		trajectories, mismatches := adapter.Trajectories(calls, adapter.TrajectoryConfig{})
		counts.mismatches += len(mismatches)
		for _, t := range trajectories {
			if t.Logprobs == nil {
				counts.noLogprobs++
				continue
			}
			parts = append(parts, part{
				learner.Row{IDs: t.IDs, Mask: t.Mask, Logprobs: t.Logprobs, Rollout: r.ID}, i, t.Origin,
			})
		}
	}
	return parts
}

func learnerRows(parts []part) []learner.Row {
	rows := make([]learner.Row, len(parts))
	for i := range parts {
		rows[i] = parts[i].Row
	}
	return rows
}

// correct weighs and rejects tokens by what the weights before the update think
// of them.
func (b *batch) correct(ctx context.Context) error {
	if !b.Method.Correction.Enabled() || len(b.parts) == 0 {
		return nil
	}
	rows := learnerRows(b.parts)
	old, err := b.Learner.(learner.Scorer).Score(ctx, rows)
	if err != nil {
		return fmt.Errorf("score the rows: %w", err)
	}
	captured, masks := make([][]float32, len(rows)), make([][]float32, len(rows))
	for i, row := range rows {
		captured[i], masks[i] = row.Logprobs, row.Mask
	}
	corrected, err := b.Method.Correction.Apply(old, captured, masks)
	if err != nil {
		return err
	}
	b.counts.corrected = &corrected
	left := make([]bool, len(b.rollouts))
	had := make([]bool, len(b.rollouts))
	for i := range b.parts {
		p := &b.parts[i]
		p.Logprobs, p.Mask = old[i], corrected.Mask[i]
		if corrected.Weights != nil {
			p.Correction = corrected.Weights[i]
		}
		had[p.rollout] = true
		left[p.rollout] = left[p.rollout] || slices.ContainsFunc(p.Mask, func(m float32) bool { return m != 0 })
	}
	for i := range b.rollouts {
		b.rollouts[i].Rejected = had[i] && !left[i]
	}
	return nil
}

// penalize takes what a rollout pays off its final reward.
func (b *batch) penalize(ctx context.Context) error {
	if (b.Method.Loss.KL.Coefficient != 0 || b.Method.RewardKL.Coefficient != 0) && len(b.parts) > 0 {
		if err := b.refer(ctx, b.parts); err != nil {
			return err
		}
	}
	penalties, err := b.fine(b.rollouts, b.parts)
	if err != nil {
		return err
	}
	paid := map[int]bool{}
	for i := range b.parts {
		paid[b.parts[i].rollout] = true
	}
	for _, penalty := range penalties {
		b.counts.rewardKL += penalty / float64(max(1, len(paid)))
	}
	return nil
}

// refer asks the reference what it thinks of rows.
func (b *batch) refer(ctx context.Context, parts []part) error {
	reference, err := b.Reference.Score(ctx, learnerRows(parts))
	if err != nil {
		return fmt.Errorf("score the rows by the reference: %w", err)
	}
	for i := range parts {
		parts[i].Reference = reference[i]
	}
	return nil
}

// fine changes the final rewards of rollouts by what they pay, and returns what
// each pays for its distance from the reference.
func (b *batch) fine(rollouts []credit.Rollout, parts []part) ([]float64, error) {
	penalties := make([]float64, len(rollouts))
	if b.Method.RewardKL.Coefficient != 0 {
		for i := range parts {
			p := &parts[i]
			penalty, err := b.Method.RewardKL.Penalty(p.Logprobs, p.Reference, p.Mask)
			if err != nil {
				return nil, err
			}
			penalties[p.rollout] += penalty
		}
	}
	for i := range rollouts {
		r := &rollouts[i]
		tokens := 0
		for _, c := range r.Calls {
			tokens += len(c.ResponseIDs)
		}
		if change := b.Method.Overlong.penalty(tokens) - penalties[i]; change != 0 && r.Final != nil {
			r.SetFinal(*r.Final + change)
		}
	}
	return penalties, nil
}

// compare gives every rollout the reward of the greedy one of its group, which
// pays as the others do. Rollouts of a group without take no part.
func (b *batch) compare(ctx context.Context) error {
	groups := slices.Sorted(maps.Keys(b.baselines))
	greedy := make([]credit.Rollout, len(groups))
	for i, g := range groups {
		greedy[i] = b.baselines[g]
	}
	var ignored counts // nothing is trained on these rows
	parts := b.join(greedy, &ignored)
	if b.Method.RewardKL.Coefficient != 0 && len(parts) > 0 {
		if err := b.refer(ctx, parts); err != nil {
			return err
		}
	}
	if _, err := b.fine(greedy, parts); err != nil {
		return err
	}
	rewards := map[string]*float64{}
	for i, g := range groups {
		switch r := greedy[i]; {
		case b.Method.zeroFailed() && (r.Failed || r.Final == nil):
			rewards[g] = new(float64)
		case r.Final != nil && rl.Finite(*r.Final) && (!r.Failed || b.Method.Advantages.OnFailure == rl.KeepFailed):
			rewards[g] = r.Final
		}
	}
	for i := range b.rollouts {
		r := &b.rollouts[i]
		if r.Baseline = rewards[r.Group]; r.Baseline == nil && !r.Rejected {
			r.Rejected = true
			b.counts.noBaseline++
		}
	}
	return nil
}

// spread puts the advantages of calls on their sampled tokens, and takes the
// calls that are not trained on out of the mask.
func (b *batch) spread(calls [][]credit.Credited) {
	for i, r := range b.rollouts {
		for j, c := range calls[i] {
			if r.Calls[j].Usable() && !c.Used && slices.ContainsFunc(calls[i], func(c credit.Credited) bool { return c.Used }) {
				b.counts.uncredited++
			}
		}
	}
	kept := b.parts[:0]
	for _, p := range b.parts {
		p.Advantages = make([]float32, len(p.IDs))
		sampled := false
		for t, m := range p.Mask {
			if m == 0 {
				continue
			}
			c := calls[p.rollout][p.origin[t]]
			if !c.Used {
				p.Mask[t] = 0
				continue
			}
			p.Advantages[t] = float32(c.Advantage)
			sampled = true
		}
		if sampled {
			kept = append(kept, p)
		}
	}
	b.parts = kept
}

// criticise replaces advantages by those of a critic: GAE over the sampled
// tokens of a row, with the rewards where they were given.
func (b *batch) criticise(ctx context.Context) error {
	if len(b.parts) == 0 {
		return nil
	}
	k := b.Method.Critic
	values, err := b.Learner.(learner.Critic).Values(ctx, learnerRows(b.parts))
	if err != nil {
		return fmt.Errorf("values of the rows: %w", err)
	}
	advantages, masks := make([][]float64, len(b.parts)), make([][]float64, len(b.parts))
	for i := range b.parts {
		p := &b.parts[i]
		masks[i] = widened(p.Mask)
		var returns []float64
		advantages[i], returns, err = rl.GAE(b.tokenRewards(p), widened(values[i]), masks[i], k.Gamma, k.Lambda)
		if err != nil {
			return err
		}
		p.Values, p.Returns = values[i], narrowed(returns)
	}
	if err := rl.Whiten(advantages, masks); err != nil {
		return err
	}
	for i := range b.parts {
		b.parts[i].Advantages = narrowed(advantages[i])
	}
	return nil
}

// tokenRewards puts rewards on the last sampled token of the call that earned
// them, or the final reward on that of the row.
func (b *batch) tokenRewards(p *part) []float64 {
	out := make([]float64, len(p.IDs))
	last := map[int32]int{} // token by call
	end := -1
	for t, m := range p.Mask {
		if m != 0 {
			last[p.origin[t]], end = t, t
		}
	}
	r := &b.rollouts[p.rollout]
	if r.Final == nil || r.Failed && b.Method.Advantages.OnFailure != rl.KeepFailed {
		return out // it takes part as 0
	}
	if _, steps := b.Method.Credit.(credit.StepRewards); !steps {
		out[end] = *r.Final
		return out
	}
	for call, reward := range r.Earned() {
		if t, ok := last[int32(call)]; ok {
			out[t] = reward
		}
	}
	return out
}

// rows are what the learner gets.
func (b *batch) rows(random *rand.Rand) ([]learner.Row, error) {
	rows := learnerRows(b.parts)
	if b.WholeMinibatches {
		rewards, groups := make([]float64, len(rows)), make([]string, len(rows))
		for i, p := range b.parts {
			r := &b.rollouts[p.rollout]
			if groups[i] = r.Group; r.Final != nil {
				rewards[i] = *r.Final
			}
		}
		kept, err := rl.WholeMinibatches(rewards, groups, b.Minibatch, 0, random)
		if err != nil {
			return nil, err
		}
		b.counts.dropped = len(rows) - len(kept)
		whole, parts := make([]learner.Row, len(kept)), make([]part, len(kept))
		for i, at := range kept {
			whole[i], parts[i] = rows[at], b.parts[at]
		}
		rows, b.parts = whole, parts
	}
	b.counts.rows = len(rows)
	return rows, nil
}

func widened(values []float32) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = float64(v)
	}
	return out
}

func narrowed(values []float64) []float32 {
	out := make([]float32, len(values))
	for i, v := range values {
		out[i] = float32(v)
	}
	return out
}
