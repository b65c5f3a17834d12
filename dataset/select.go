package dataset

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrInvalid is returned for a selection that is out of range.
var ErrInvalid = errors.New("invalid selection")

// Scored is a rollout that may be chosen.
type Scored struct {
	ID    string
	Group string // the task that it has in common with others
	// Reward is its final reward; a rollout without one, or with one that is not
	// finite, is never chosen.
	Reward *float64
}

func (s *Scored) usable() bool {
	return s.Reward != nil && !math.IsNaN(*s.Reward) && !math.IsInf(*s.Reward, 0)
}

// Selection chooses rollouts by their reward. The zero value takes all that have
// one.
type Selection struct {
	// Min is the least reward; nil sets none.
	Min *float64
	// Top keeps this share of the best, in (0, 1], rounded down, at least one; 0
	// keeps all. Of equal rewards the first come first.
	Top float64
	// PerGroup applies Top to each group by itself.
	PerGroup bool
}

// Validate returns an error naming the field that is out of range.
func (s Selection) Validate() error {
	switch {
	case s.Min != nil && math.IsNaN(*s.Min):
		return fmt.Errorf("%w: min: NaN is no threshold", ErrInvalid)
	case !(s.Top >= 0 && s.Top <= 1):
		return fmt.Errorf("%w: top %v: must be above 0 and at most 1, or 0 for all", ErrInvalid, s.Top)
	case s.PerGroup && s.Top == 0:
		return fmt.Errorf("%w: per group: without top there is nothing to apply to each group", ErrInvalid)
	}
	return nil
}

// Select returns the indices of what is chosen, ascending.
func (s Selection) Select(rollouts []Scored) ([]int, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	groups := map[string][]int{}
	var order []string
	for i := range rollouts {
		r := &rollouts[i]
		if !r.usable() || s.Min != nil && *r.Reward < *s.Min {
			continue
		}
		g := ""
		if s.PerGroup {
			g = r.Group
		}
		if _, seen := groups[g]; !seen {
			order = append(order, g)
		}
		groups[g] = append(groups[g], i)
	}
	var out []int
	for _, g := range order {
		members := groups[g]
		if s.Top > 0 {
			slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(*rollouts[b].Reward, *rollouts[a].Reward) })
			members = members[:max(1, share(s.Top, len(members)))]
		}
		out = append(out, members...)
	}
	slices.Sort(out)
	return out, nil
}

// slack is what doubles may fall short of the number that was meant.
const slack = 1e-9

// share is a part of n, rounded down. 0.29 of a hundred are 29, although the
// product of the doubles is less.
func share(part float64, n int) int { return int(part*float64(n) + slack) }

// Preferences chooses pairs of rollouts of the same group.
type Preferences struct {
	// Margin is by how much the reward of the chosen one must exceed that of the
	// rejected one; at least 0, and any pair differs by more than 0.
	Margin float64
	// Most is the number of pairs of a group: the best with the worst, the second
	// best with the second worst, and so on; 0 means 1.
	Most int
}

// Pair are the indices of two rollouts.
type Pair struct{ Chosen, Rejected int }

// Select returns the pairs, group by group in order of first appearance.
func (p Preferences) Select(rollouts []Scored) ([]Pair, error) {
	if !(p.Margin >= 0) {
		return nil, fmt.Errorf("%w: margin %v: must not be negative", ErrInvalid, p.Margin)
	}
	if p.Most < 0 {
		return nil, fmt.Errorf("%w: at most %d pairs: must not be negative", ErrInvalid, p.Most)
	}
	groups := map[string][]int{}
	var order []string
	for i := range rollouts {
		if g := rollouts[i].Group; rollouts[i].usable() {
			if _, seen := groups[g]; !seen {
				order = append(order, g)
			}
			groups[g] = append(groups[g], i)
		}
	}
	var out []Pair
	for _, g := range order {
		members := groups[g]
		slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(*rollouts[b].Reward, *rollouts[a].Reward) })
		for k := range min(max(p.Most, 1), len(members)/2) {
			pair := Pair{members[k], members[len(members)-1-k]}
			if lead := *rollouts[pair.Chosen].Reward - *rollouts[pair.Rejected].Reward; !(lead > 0 && lead+slack >= p.Margin) {
				break
			}
			out = append(out, pair)
		}
	}
	return out, nil
}
