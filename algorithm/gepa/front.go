package gepa

import (
	"math/rand/v2"
	"slices"

	agl "agentlightning"
)

// Candidate is a set of prompts that was scored on all validation tasks.
type Candidate struct {
	ID int `json:"id"` // its place among the candidates; 0 is the initial one
	// Parents are the candidates that it was made of: one for a rewrite, two for
	// a merge.
	Parents   []int                         `json:"parents"`
	Templates map[string]agl.PromptTemplate `json:"templates"`
	// Scores holds the rewards on each validation task, the primary one first and
	// then the objectives; nil where the candidate has none.
	Scores [][]float64 `json:"scores"`
	// Next is the component whose turn it is to be rewritten.
	Next int `json:"next"`
}

// Score is the mean of the primary rewards, and how many there are.
func (c *Candidate) Score() (mean float64, n int) {
	for _, s := range c.Scores {
		if s != nil {
			mean += s[0]
			n++
		}
	}
	return mean / float64(max(1, n)), n
}

// best returns the first candidate that none surpasses on the tasks that both
// have scores for without failing more often.
func best(all []Candidate) int {
	b := 0
	for i := 1; i < len(all); i++ {
		mine, theirs := 0.0, 0.0
		for k := range all[i].Scores {
			if x, y := all[i].Scores[k], all[b].Scores[k]; x != nil && y != nil {
				mine, theirs = mine+x[0], theirs+y[0]
			}
		}
		_, n := all[i].Score()
		_, of := all[b].Score()
		if n > 0 && of == 0 || n >= of && mine > theirs {
			b = i
		}
	}
	return b
}

// front returns, for each candidate that is on a Pareto front and not dominated,
// on how many pairs of validation task and objective nobody surpasses it
// (arXiv:2507.19457, algorithm 2).
func front(all []Candidate) map[int]int {
	var fronts [][]int
	for k := range all[0].Scores {
		for o := range objectives(all, k) {
			var lead []int
			top := 0.0
			for i := range all {
				s := all[i].Scores[k]
				switch {
				case s == nil:
				case lead == nil || s[o] > top:
					lead, top = []int{i}, s[o]
				case s[o] == top:
					lead = append(lead, i)
				}
			}
			if lead != nil {
				fronts = append(fronts, lead)
			}
		}
	}
	// A candidate is dominated when others are there wherever it is. The weakest
	// go first.
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, _ := all[a].Score()
		y, _ := all[b].Score()
		if x != y {
			if x < y {
				return -1
			}
			return 1
		}
		return b - a
	})
	gone := map[int]bool{}
	for _, c := range order {
		dominated := true
		for _, f := range fronts {
			if slices.Contains(f, c) && !slices.ContainsFunc(f, func(i int) bool { return i != c && !gone[i] }) {
				dominated = false
			}
		}
		gone[c] = dominated
	}
	out := map[int]int{}
	for _, f := range fronts {
		for _, c := range f {
			if !gone[c] {
				out[c]++
			}
		}
	}
	return out
}

func objectives(all []Candidate, k int) int {
	for i := range all {
		if s := all[i].Scores[k]; s != nil {
			return len(s)
		}
	}
	return 0
}

// choose draws a candidate in proportion to the fronts that it is on.
func choose(all []Candidate, r *rand.Rand) int {
	wins := front(all)
	total := 0
	for _, n := range wins {
		total += n
	}
	if total == 0 {
		return 0
	}
	at := r.IntN(total)
	for i := range all {
		if at -= wins[i]; at < 0 {
			return i
		}
	}
	return 0
}

// ancestors returns the candidates that one comes from.
func ancestors(all []Candidate, id int) map[int]bool {
	out := map[int]bool{}
	for open := slices.Clone(all[id].Parents); len(open) > 0; {
		p := open[0]
		open = open[1:]
		if !out[p] {
			out[p] = true
			open = append(open, all[p].Parents...)
		}
	}
	return out
}

// merge puts together what two lineages changed since their latest common
// ancestor; where both changed a component, the better candidate's is taken. It
// is nil when there is nothing to put together.
func merge(all []Candidate, i, j int) map[string]agl.PromptTemplate {
	ai, aj := ancestors(all, i), ancestors(all, j)
	if i == j || ai[j] || aj[i] {
		return nil
	}
	common := -1
	for a := range ai {
		if aj[a] {
			common = max(common, a)
		}
	}
	if common < 0 {
		return nil
	}
	better := i
	if best([]Candidate{all[i], all[j]}) == 1 {
		better = j
	}
	out := map[string]agl.PromptTemplate{}
	fromI, fromJ := false, false
	for name, was := range all[common].Templates {
		x, y := all[i].Templates[name], all[j].Templates[name]
		switch {
		case x == y:
			out[name] = x
		case y == was || x != was && better == i:
			out[name], fromI = x, true
		default:
			out[name], fromJ = y, true
		}
	}
	if !fromI || !fromJ {
		return nil
	}
	return out
}
