package rl

import (
	"errors"
	"fmt"
	"math"
)

// DefaultEpsilon keeps the division by a group's standard deviation finite.
const DefaultEpsilon = 1e-6

// ErrInvalid is returned for numbers that do not fit together.
var ErrInvalid = errors.New("invalid input")

// Estimator says what the reward of a rollout is compared with. In the formulas
// r is a reward, k the number of usable members of its group, mean and std
// (divisor k-1) are taken over them.
type Estimator string

const (
	// GRPO is (r - mean) / (std + epsilon) (arXiv:2402.03300, section 4.1.2, with
	// the sample standard deviation that the common trainers use). Without the
	// division it is the estimator of Dr. GRPO (arXiv:2503.20783, section 3.2).
	// A group of one has mean 0 and std 1.
	GRPO Estimator = "grpo"
	// RLOO is r less the mean of the others, which is (r - mean)·k/(k-1)
	// (the RLOO estimator of arXiv:2402.14740). A group of one has baseline 0.
	RLOO Estimator = "rloo"
	// ReinforcePP is r, whitened over the sampled tokens of the batch (REINFORCE++,
	// arXiv:2501.03262). Groups mean nothing to it.
	ReinforcePP Estimator = "reinforce_plus_plus"
	// ReinforcePPBaseline is r - mean, whitened over the sampled tokens of the
	// batch (REINFORCE++-baseline, arXiv:2501.03262). A group of one has mean 0.
	ReinforcePPBaseline Estimator = "reinforce_plus_plus_baseline"
	// ReMax is r less the reward of the greedy rollout of the same task
	// (arXiv:2310.10505), which every member must bring.
	ReMax Estimator = "remax"
	// OPO is r less the mean of the group weighted by sampled tokens (optimal
	// reward baseline, arXiv:2505.23585). A group of one has baseline 0.
	OPO Estimator = "opo"
	// GPG is (r - mean) times members over members with a reward other than 0,
	// both counted over the batch (arXiv:2504.02546; the way verl counts). It
	// belongs to the loss without a ratio, [Reinforce].
	GPG Estimator = "gpg"
	// PassK gives the best member of a group best less second best, divided by
	// std + epsilon, and every other one 0 (arXiv:2503.19595). A group of one is
	// an error.
	PassK Estimator = "passk"
	// GDPO takes GRPO's value for each component of the reward by itself, adds
	// them up by weight, and whitens the sum over the members of the batch
	// (arXiv:2601.05242; verl whitens over their tokens).
	GDPO Estimator = "gdpo"
)

// Estimators lists all of them.
func Estimators() []Estimator {
	return []Estimator{GRPO, RLOO, ReinforcePP, ReinforcePPBaseline, ReMax, OPO, GPG, PassK, GDPO}
}

// CountsTokens reports whether the estimator reads [Member.Tokens].
func (e Estimator) CountsTokens() bool {
	return e == OPO || e == ReinforcePP || e == ReinforcePPBaseline
}

// Grouped reports whether the members of a group are compared with one another.
func (e Estimator) Grouped() bool { return e != ReinforcePP && e != ReMax }

// OnFailure says what a rollout that failed is worth.
type OnFailure string

const (
	// DropFailed leaves out members that failed and members without a reward.
	// They are in no mean, no deviation and no count. It is the default.
	DropFailed OnFailure = "drop"
	// KeepFailed takes a failed member at the reward that it was given before it
	// failed; without one it is left out.
	KeepFailed OnFailure = "keep"
	// ZeroFailed takes members that failed or have no reward as reward 0.
	ZeroFailed OnFailure = "zero"
)

// Member is one rollout as its group sees it. A rollout is one member, however
// many rows it was split into.
type Member struct {
	// Group names the task that the members of a group have in common.
	Group string
	// Reward is the final reward; nil when the rollout has none. A reward that is
	// NaN or infinite is unusable, whatever [OnFailure] says.
	Reward *float64
	// Failed: the rollout did not end as it should have.
	Failed bool
	// Rejected: a correction took every token of the rollout away. The member is
	// absent, so that it does not move the baseline of the others.
	Rejected bool
	// Tokens is how many tokens the policy sampled; read by [OPO], [ReinforcePP]
	// and [ReinforcePPBaseline].
	Tokens int
	// Baseline is the reward of the greedy rollout; read by [ReMax].
	Baseline *float64
	// Variance is that of what the calls of the rollout earned (divisor n), where
	// Reward is their mean; 0 when all earned the same. It counts towards the
	// deviation of the group and of the batch, so that a call is never measured
	// against rollouts that happen to agree on average.
	Variance float64
	// Components are the parts of the reward, equally many for every member;
	// read by [GDPO].
	Components []float64
}

// AdvantageConfig chooses how rewards become advantages. The zero value is GRPO
// as published, without the groups that have nothing to teach.
type AdvantageConfig struct {
	// Estimator is the formula; empty means [GRPO].
	Estimator Estimator `json:"estimator,omitempty"`
	// WithoutStd leaves out the division by the standard deviation, which
	// otherwise gives very easy and very hard tasks a larger weight; for [GRPO],
	// [PassK] and [GDPO].
	WithoutStd bool `json:"without_std,omitempty"`
	// Epsilon is added to the standard deviation; 0 means [DefaultEpsilon]. Only
	// estimators that divide by one have it.
	Epsilon float64 `json:"epsilon,omitempty"`
	// KeepConstant keeps groups whose rewards are all equal. Their advantages
	// are 0 (up to rounding), so they only dilute the mean over a batch.
	KeepConstant bool `json:"keep_constant,omitempty"`
	// MinMembers is the number of usable members below which a group is
	// dropped; 0 means 2. Estimators that compare no members do not look at it.
	MinMembers int `json:"min_members,omitempty"`
	// OnFailure says what failed and unscored members are worth; empty means
	// [DropFailed].
	OnFailure OnFailure `json:"on_failure,omitempty"`
	// ComponentWeights weigh the components of [GDPO]; nil means 1 for each.
	ComponentWeights []float64 `json:"component_weights,omitempty"`
}

// Validate returns an error naming the first field that is out of range, or
// that the estimator would not look at.
func (c AdvantageConfig) Validate() error {
	e := c.estimator()
	known := false
	for _, k := range Estimators() {
		known = known || k == e
	}
	switch {
	case !known:
		return fmt.Errorf("%w: estimator %q: must be one of %v", ErrInvalid, e, Estimators())
	case c.WithoutStd && e != GRPO && e != PassK && e != GDPO:
		return fmt.Errorf("%w: without std: %s has no standard deviation to leave out", ErrInvalid, e)
	case !(c.Epsilon >= 0) || math.IsInf(c.Epsilon, 0):
		return fmt.Errorf("%w: epsilon %v: must be a number from 0", ErrInvalid, c.Epsilon)
	case c.Epsilon != 0 && !(e == GDPO || !c.WithoutStd && (e == GRPO || e == PassK)):
		return fmt.Errorf("%w: epsilon %v: there is no standard deviation of a group that %s would divide by", ErrInvalid, c.Epsilon, e)
	case c.KeepConstant && !e.Grouped():
		return fmt.Errorf("%w: keep constant: %s does not compare members of a group", ErrInvalid, e)
	case c.MinMembers < 0:
		return fmt.Errorf("%w: smallest group %d: must not be negative", ErrInvalid, c.MinMembers)
	case c.MinMembers > 0 && !e.Grouped():
		return fmt.Errorf("%w: smallest group %d: %s does not compare members of a group", ErrInvalid, c.MinMembers, e)
	case len(c.ComponentWeights) > 0 && e != GDPO:
		return fmt.Errorf("%w: component weights: %s looks at the whole reward only", ErrInvalid, e)
	}
	switch c.OnFailure {
	case "", DropFailed, KeepFailed, ZeroFailed:
		return nil
	}
	return fmt.Errorf("%w: on failure %q: must be drop, keep or zero", ErrInvalid, c.OnFailure)
}

func (c AdvantageConfig) estimator() Estimator {
	if c.Estimator == "" {
		return GRPO
	}
	return c.Estimator
}

// Advantage is the outcome for one member.
type Advantage struct {
	// Value is (reward - Baseline) / Divisor, for [GDPO] the whitened sum; 0
	// unless Used.
	Value float64
	// Used is false for a member that must not be trained on.
	Used bool
	// Reward is what the member counted with.
	Reward float64
	// Baseline and Divisor are what its reward was compared with; see
	// [Advantage.Of]. Divisor is NaN for [GDPO], whose components have their own.
	Baseline, Divisor float64
}

// Of returns the advantage that another reward would have had in the place of
// the member's, with everything it is compared with left as it is. That is how
// calls of one rollout that are credited differently are compared with the
// group without weighing more than a rollout. It is NaN for [GDPO].
func (a Advantage) Of(reward float64) float64 { return (reward - a.Baseline) / a.Divisor }

// AdvantageStats count what became of members and groups.
type AdvantageStats struct {
	Groups         int // groups with at least one member
	GroupsConstant int // dropped or kept with advantage 0: all rewards equal
	GroupsSmall    int // dropped: fewer usable members than needed
	Members        int
	Usable         int // members that statistics were taken over
	Failed         int // members that failed
	Unrewarded     int // members without a reward
	NonFinite      int // members whose reward is NaN or infinite
	Rejected       int // members that a correction took away
	RewardMean     float64
	RewardStd      float64 // of all usable rewards, divisor n-1; 0 for fewer than two
}

// Advantages compares the reward of every member with what the estimator says.
// The result has one entry a member, in order. Members that are not usable are
// absent from every statistic. An error says which number does not fit.
func Advantages(members []Member, c AdvantageConfig) ([]Advantage, AdvantageStats, error) {
	if err := c.Validate(); err != nil {
		return nil, AdvantageStats{}, err
	}
	b := newBatch(members, c)
	if err := b.check(); err != nil {
		return nil, AdvantageStats{}, err
	}
	for _, name := range b.order {
		group, keep := b.pick(name)
		if !keep {
			continue
		}
		if err := b.compare(name, group); err != nil {
			return nil, AdvantageStats{}, err
		}
	}
	b.finish()
	for i := range b.out {
		if a := &b.out[i]; a.Used && b.estimator != GDPO {
			a.Value = (a.Reward - a.Baseline) / a.Divisor
		}
	}
	return b.out, b.stats, nil
}

// batch is the work of one call of [Advantages].
type batch struct {
	AdvantageConfig
	estimator Estimator
	members   []Member
	out       []Advantage
	stats     AdvantageStats
	groups    map[string][]int // usable members
	order     []string         // of first appearance, so that sums are repeatable
}

func newBatch(members []Member, c AdvantageConfig) *batch {
	if c.Epsilon == 0 {
		c.Epsilon = DefaultEpsilon
	}
	if c.MinMembers == 0 {
		c.MinMembers = 2
	}
	b := &batch{
		AdvantageConfig: c, estimator: c.estimator(), members: members,
		out: make([]Advantage, len(members)), groups: make(map[string][]int),
	}
	b.stats.Members = len(members)
	var all moments
	for i, m := range members {
		usable, seen := b.groups[m.Group]
		if !seen {
			b.order = append(b.order, m.Group)
		}
		if reward, ok := b.reward(m); ok {
			usable = append(usable, i)
			b.out[i].Reward = reward
			all.add(reward)
		}
		b.groups[m.Group] = usable
	}
	b.stats.Groups, b.stats.Usable = len(b.order), all.n
	b.stats.RewardMean, b.stats.RewardStd = all.mean, all.std()
	return b
}

// reward returns what a member counts with, and counts why it does not.
func (b *batch) reward(m Member) (float64, bool) {
	if m.Failed {
		b.stats.Failed++
	}
	if m.Reward == nil {
		b.stats.Unrewarded++
	}
	switch {
	case m.Rejected:
		b.stats.Rejected++
		return 0, false
	case m.Reward != nil && !finite(*m.Reward), b.estimator == GDPO && !allFinite(m.Components):
		b.stats.NonFinite++
		return 0, false
	case m.Failed && b.OnFailure == ZeroFailed:
		return 0, true
	case m.Reward == nil:
		return 0, b.OnFailure == ZeroFailed
	case m.Failed && b.OnFailure != KeepFailed:
		return 0, false
	}
	return *m.Reward, true
}

// check looks for what the estimator needs in every usable member.
func (b *batch) check() error {
	components := -1
	for _, name := range b.order {
		for _, i := range b.groups[name] {
			m := &b.members[i]
			switch b.estimator {
			case ReMax:
				if m.Baseline == nil || !finite(*m.Baseline) {
					return fmt.Errorf("%w: member %d of group %q has no reward of a greedy rollout, which remax needs", ErrInvalid, i, name)
				}
			case OPO, ReinforcePP, ReinforcePPBaseline:
				if m.Tokens <= 0 {
					return fmt.Errorf("%w: member %d of group %q has %d tokens: %s needs at least 1", ErrInvalid, i, name, m.Tokens, b.estimator)
				}
			case GDPO:
				if b.worthless(m) {
					continue
				}
				if components < 0 {
					components = len(m.Components)
				}
				if len(m.Components) == 0 || len(m.Components) != components {
					return fmt.Errorf("%w: member %d of group %q has %d reward components, want %d (at least 1)", ErrInvalid, i, name, len(m.Components), max(components, 1))
				}
			case GRPO, RLOO, GPG, PassK:
			}
		}
	}
	if n := len(b.ComponentWeights); n > 0 && components >= 0 && n != components {
		return fmt.Errorf("%w: %d component weights for %d reward components", ErrInvalid, n, components)
	}
	return nil
}

// worthless reports whether a usable member counts as zero in every component.
func (b *batch) worthless(m *Member) bool {
	return b.OnFailure == ZeroFailed && (m.Failed || m.Reward == nil)
}

// pick returns the usable members of a group and whether they are trained on.
func (b *batch) pick(name string) ([]int, bool) {
	group := b.groups[name]
	if len(group) == 0 || b.estimator.Grouped() && len(group) < b.MinMembers {
		b.stats.GroupsSmall++
		return nil, false
	}
	if !b.estimator.Grouped() || !b.constant(group) {
		return group, true
	}
	b.stats.GroupsConstant++
	return group, b.KeepConstant
}

// constant reports whether the members of a group are all worth the same.
func (b *batch) constant(group []int) bool {
	first := group[0]
	for _, i := range group {
		if b.estimator != GDPO {
			if !Equal(b.out[i].Reward, b.out[first].Reward) || !Equal(b.members[i].Variance, 0) {
				return false
			}
			continue
		}
		for c := range b.componentCount(group) {
			if !Equal(b.component(i, c), b.component(first, c)) {
				return false
			}
		}
	}
	return true
}

func (b *batch) componentCount(group []int) int {
	n := 0
	for _, i := range group {
		n = max(n, len(b.members[i].Components))
	}
	return n
}

func (b *batch) component(i, c int) float64 {
	if m := &b.members[i]; !b.worthless(m) {
		return m.Components[c]
	}
	return 0
}

// compare fills baseline and divisor of the members of one group.
func (b *batch) compare(name string, group []int) error {
	var m moments
	for _, i := range group {
		m.add(b.out[i].Reward)
		m.sq += b.members[i].Variance
		b.out[i].Used, b.out[i].Divisor = true, 1
	}
	k := float64(len(group))
	switch b.estimator {
	case GRPO:
		mean, divisor := b.scale(m)
		for _, i := range group {
			b.out[i].Baseline, b.out[i].Divisor = mean, divisor
		}
	case RLOO:
		if len(group) > 1 {
			for _, i := range group {
				b.out[i].Baseline = (m.mean*k - b.out[i].Reward) / (k - 1)
			}
		}
	case ReinforcePPBaseline, GPG:
		if len(group) > 1 {
			for _, i := range group {
				b.out[i].Baseline = m.mean
			}
		}
	case ReMax:
		for _, i := range group {
			b.out[i].Baseline = *b.members[i].Baseline
		}
	case OPO:
		if len(group) > 1 {
			b.weighted(group)
		}
	case PassK:
		return b.best(name, group, m)
	case GDPO:
		b.decoupled(group)
	case ReinforcePP:
	}
	return nil
}

// scale returns mean and divisor of a group as GRPO has them.
func (b *batch) scale(m moments) (mean, divisor float64) {
	mean, divisor = m.mean, m.std()+b.Epsilon
	if m.n == 1 {
		mean, divisor = 0, 1+b.Epsilon
	}
	if b.WithoutStd {
		divisor = 1
	}
	return mean, divisor
}

// weighted sets the baseline to the mean by tokens.
func (b *batch) weighted(group []int) {
	var sum, tokens float64
	for _, i := range group {
		l := float64(b.members[i].Tokens)
		sum += l * b.out[i].Reward
		tokens += l
	}
	for _, i := range group {
		b.out[i].Baseline = sum / tokens
	}
}

// best gives the best member its lead over the second.
func (b *batch) best(name string, group []int, m moments) error {
	if len(group) < 2 {
		return fmt.Errorf("%w: group %q has %d usable member: passk needs at least 2", ErrInvalid, name, len(group))
	}
	top, second := group[0], -1
	for _, i := range group[1:] {
		switch r := b.out[i].Reward; {
		case r > b.out[top].Reward:
			top, second = i, top
		case second < 0 || r > b.out[second].Reward:
			second = i
		}
	}
	_, divisor := b.scale(m)
	for _, i := range group {
		b.out[i].Baseline, b.out[i].Divisor = b.out[second].Reward, math.Inf(1)
	}
	b.out[top].Divisor = divisor
	return nil
}

// decoupled puts the sum of the normalised components into Value.
func (b *batch) decoupled(group []int) {
	for c := range b.componentCount(group) {
		weight := 1.0
		if c < len(b.ComponentWeights) {
			weight = b.ComponentWeights[c]
		}
		var m moments
		for _, i := range group {
			m.add(b.component(i, c))
		}
		mean, divisor := b.scale(m)
		for _, i := range group {
			b.out[i].Value += weight * (b.component(i, c) - mean) / divisor
		}
	}
	for _, i := range group {
		b.out[i].Divisor = math.NaN()
	}
}

// finish does what is done over the whole batch.
func (b *batch) finish() {
	switch b.estimator {
	case GPG:
		nonzero := 0
		for _, name := range b.order {
			for _, i := range b.groups[name] {
				if b.out[i].Reward != 0 {
					nonzero++
				}
			}
		}
		for i := range b.out {
			b.out[i].Divisor = float64(max(1, nonzero)) / float64(max(1, b.stats.Usable))
		}
	case ReinforcePP, ReinforcePPBaseline:
		var w whitening
		for i, a := range b.out {
			if a.Used {
				w.add(a.Reward-a.Baseline, float64(b.members[i].Tokens))
				w.sq += b.members[i].Variance * float64(b.members[i].Tokens)
			}
		}
		mean, divisor := w.scale()
		for i := range b.out {
			b.out[i].Baseline, b.out[i].Divisor = b.out[i].Baseline+mean, divisor
		}
	case GDPO:
		var m moments
		for _, a := range b.out {
			if a.Used {
				m.add(a.Value)
			}
		}
		for i := range b.out {
			if a := &b.out[i]; a.Used && m.n > 1 {
				a.Value = (a.Value - m.mean) / (m.std() + b.Epsilon)
			}
		}
	case GRPO, RLOO, ReMax, OPO, PassK:
	}
}

// Equal reports whether two rewards count as the same: |x - first| is at most
// 1e-8 + 1e-5·|first|.
func Equal(x, first float64) bool { return math.Abs(x-first) <= 1e-8+1e-5*math.Abs(first) }

// Finite reports whether a reward is a number that can be computed with.
func Finite(x float64) bool { return finite(x) }

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

func allFinite(xs []float64) bool {
	for _, x := range xs {
		if !finite(x) {
			return false
		}
	}
	return true
}

// moments gathers mean and variance in one pass (Welford), without the
// cancellation of the sum of squares.
type moments struct {
	n    int
	mean float64
	sq   float64 // sum of squared deviations
}

func (m *moments) add(x float64) {
	m.n++
	d := x - m.mean
	m.mean += d / float64(m.n)
	m.sq += d * (x - m.mean)
}

func (m *moments) std() float64 {
	if m.n < 2 {
		return 0
	}
	return math.Sqrt(m.sq / float64(m.n-1))
}
