package rl

import (
	"fmt"
	"math/rand/v2"
)

// Shortage is a group that lacks usable members.
type Shortage struct {
	Group string
	// Missing is how many members it takes to be full.
	Missing int
}

// Shortages returns the groups with fewer usable members than size, in order of
// first appearance: what must be run again to fill them.
func Shortages(members []Member, c AdvantageConfig, size int) []Shortage {
	var out []Shortage
	b := newBatch(members, c)
	for _, name := range b.order {
		if n := len(b.groups[name]); n < size {
			out = append(out, Shortage{name, size - n})
		}
	}
	return out
}

// WholeMinibatches returns the rows, ascending, that are left when the number
// of rows is cut to a multiple of size, and to at most most minibatches unless
// most is 0. Rows of groups whose rewards are all equal go first, then others,
// at random within both. Without enough rows for one minibatch the result is
// empty.
func WholeMinibatches(rewards []float64, groups []string, size, most int, random *rand.Rand) ([]int, error) {
	switch {
	case len(rewards) != len(groups):
		return nil, fmt.Errorf("%w: %d rewards for %d groups", ErrInvalid, len(rewards), len(groups))
	case size < 1:
		return nil, fmt.Errorf("%w: minibatch of %d rows: must be at least 1", ErrInvalid, size)
	case most < 0:
		return nil, fmt.Errorf("%w: at most %d minibatches: must not be negative", ErrInvalid, most)
	}
	keep := len(rewards) / size * size
	if most > 0 {
		keep = min(keep, size*most)
	}
	dropped := make([]bool, len(rewards))
	left := len(rewards) - keep
	drop := func(candidates []int) {
		random.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
		for _, i := range candidates[:min(left, len(candidates))] {
			dropped[i] = true
			left--
		}
	}
	constant := ConstantRows(rewards, groups)
	drop(constant)
	var rest []int
	for i := range rewards {
		if !dropped[i] {
			rest = append(rest, i)
		}
	}
	drop(rest)
	out := make([]int, 0, keep)
	for i := range rewards {
		if !dropped[i] {
			out = append(out, i)
		}
	}
	return out, nil
}

// ConstantRows returns the rows, ascending, of groups whose rewards are all
// equal ([Equal] to the first), groups of one row included.
func ConstantRows(rewards []float64, groups []string) []int {
	first := make(map[string]float64)
	differs := make(map[string]bool)
	for i, g := range groups {
		if f, ok := first[g]; !ok {
			first[g] = rewards[i]
		} else if !Equal(rewards[i], f) {
			differs[g] = true
		}
	}
	var out []int
	for i, g := range groups {
		if !differs[g] {
			out = append(out, i)
		}
	}
	return out
}
