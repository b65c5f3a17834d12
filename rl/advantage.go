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

// Member is one rollout as its group sees it. A rollout is one member, however
// many rows it was split into.
type Member struct {
	// Group names the task that the members of a group have in common.
	Group string
	// Reward is the final reward; nil when the rollout failed or has none. A
	// reward that is NaN or infinite counts as none too.
	Reward *float64
}

// AdvantageConfig chooses how rewards become advantages. The zero value is GRPO
// as published, without the groups that have nothing to teach.
type AdvantageConfig struct {
	// WithoutStd leaves out the division by the standard deviation, which
	// otherwise gives very easy and very hard tasks a larger weight (Dr. GRPO,
	// arXiv:2503.20783, section 3).
	WithoutStd bool
	// Epsilon is added to the standard deviation; 0 means [DefaultEpsilon].
	Epsilon float64
	// KeepConstant keeps groups whose rewards are all equal. Their advantages
	// are 0 (up to rounding), so they only dilute the mean over a batch.
	KeepConstant bool
	// MinMembers is the number of usable members below which a group is
	// dropped; 0 means 2. A group of one has mean 0 and standard deviation 1.
	MinMembers int
}

// Advantage is the outcome for one member.
type Advantage struct {
	// Value is 0 unless Used.
	Value float64
	// Used is false for a member that must not be trained on.
	Used bool
}

// AdvantageStats count what became of members and groups.
type AdvantageStats struct {
	Groups         int // groups with at least one member
	GroupsConstant int // dropped or kept with advantage 0: all rewards equal
	GroupsSmall    int // dropped: fewer usable members than needed
	Members        int
	Unrewarded     int // members without a reward
	NonFinite      int // members whose reward is NaN or infinite
	RewardMean     float64
	RewardStd      float64 // of all usable rewards, divisor n-1; 0 for fewer than two
}

// GroupAdvantages compares every member with the others of its group:
//
//	A = (r - mean) / (std + epsilon)
//
// with mean and std (divisor k-1) over the k usable members of the group
// (GRPO, arXiv:2402.03300, equation in section 4.1.2, with the sample standard
// deviation that the common trainers use). The result has one entry a member,
// in order. Unusable members are absent from mean, std and k.
func GroupAdvantages(members []Member, c AdvantageConfig) ([]Advantage, AdvantageStats) {
	epsilon := c.Epsilon
	if epsilon == 0 {
		epsilon = DefaultEpsilon
	}
	least := c.MinMembers
	if least == 0 {
		least = 2
	}
	out := make([]Advantage, len(members))
	stats := AdvantageStats{Members: len(members)}
	groups := make(map[string][]int)
	var order []string // of first appearance, so that sums are repeatable
	var all moments
	for i, m := range members {
		usable, seen := groups[m.Group]
		if !seen {
			order = append(order, m.Group)
		}
		switch {
		case m.Reward == nil:
			stats.Unrewarded++
		case math.IsNaN(*m.Reward) || math.IsInf(*m.Reward, 0):
			stats.NonFinite++
		default:
			usable = append(usable, i)
			all.add(*m.Reward)
		}
		groups[m.Group] = usable
	}
	stats.Groups = len(order)
	stats.RewardMean, stats.RewardStd = all.mean, all.std()

	for _, name := range order {
		group := groups[name]
		if len(group) == 0 || len(group) < least {
			stats.GroupsSmall++
			continue
		}
		var m moments
		constant := true
		for _, i := range group {
			m.add(*members[i].Reward)
			constant = constant && Equal(*members[i].Reward, *members[group[0]].Reward)
		}
		if constant {
			stats.GroupsConstant++
			if !c.KeepConstant {
				continue
			}
		}
		mean, divisor := m.mean, m.std()+epsilon
		if len(group) == 1 {
			mean, divisor = 0, 1+epsilon
		}
		if c.WithoutStd {
			divisor = 1
		}
		for _, i := range group {
			out[i] = Advantage{Value: (*members[i].Reward - mean) / divisor, Used: true}
		}
	}
	return out, stats
}

// Equal reports whether two rewards count as the same: |x - first| is at most
// 1e-8 + 1e-5·|first|.
func Equal(x, first float64) bool { return math.Abs(x-first) <= 1e-8+1e-5*math.Abs(first) }

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

// RolloutWeights returns the weight of each sampled token of each row, such
// that the tokens of one rollout weigh 1 together, however many rows and tokens
// it has. rollouts names the rollout of each row; masks has one slice a row
// with a value other than 0 on sampled tokens. A rollout without a sampled
// token has weight 0.
func RolloutWeights(rollouts []string, masks [][]float32) ([]float64, error) {
	if len(rollouts) != len(masks) {
		return nil, fmt.Errorf("%w: %d rollouts for %d rows", ErrInvalid, len(rollouts), len(masks))
	}
	tokens := make(map[string]int)
	for i, m := range masks {
		tokens[rollouts[i]] += sampled(m)
	}
	weights := make([]float64, len(masks))
	for i := range masks {
		if n := tokens[rollouts[i]]; n > 0 {
			weights[i] = 1 / float64(n)
		}
	}
	return weights, nil
}

// NormalizeAdvantages divides the advantages of every row in place by the
// number of sampled tokens of its rollout times rows, as trainers of the 1.0
// protocol do before they sum the loss of a batch. Rows of advantages and
// masks have one entry a token.
func NormalizeAdvantages(advantages, masks [][]float32, rollouts []string, rows int) error {
	if len(rollouts) != len(advantages) || len(masks) != len(advantages) {
		return fmt.Errorf("%w: %d rollouts and %d masks for %d rows of advantages", ErrInvalid, len(rollouts), len(masks), len(advantages))
	}
	if rows <= 0 {
		return fmt.Errorf("%w: number of trained rows is %d: must be positive", ErrInvalid, rows)
	}
	tokens := make(map[string]int)
	for i, m := range masks {
		tokens[rollouts[i]] += sampled(m)
	}
	for i := range advantages {
		divisor := float64(max(1, tokens[rollouts[i]]*rows))
		for t, a := range advantages[i] {
			advantages[i][t] = float32(float64(a) / divisor)
		}
	}
	return nil
}

func sampled(mask []float32) int {
	n := 0
	for _, v := range mask {
		if v != 0 {
			n++
		}
	}
	return n
}
