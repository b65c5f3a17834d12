package rl

import "fmt"

// Row is one training row as its rollout sees it.
type Row struct {
	Rollout string
	Group   string  // the task of the rollout
	Reward  float64 // of the whole rollout, repeated on every row
	Tokens  int     // sampled in this row
}

// ByRollout makes one member of the rows of each rollout, in order of first
// appearance, so that a rollout that was split into many rows does not outweigh
// its siblings in the statistics of the group. index holds the member of each
// row. Rows of one rollout must agree on group and reward ([Equal]); the first
// of them stands for all and must have a sampled token.
func ByRollout(rows []Row) (members []Member, index []int, err error) {
	seen := make(map[string]int)
	index = make([]int, len(rows))
	for i, r := range rows {
		at, ok := seen[r.Rollout]
		if !ok {
			if r.Tokens == 0 {
				return nil, nil, fmt.Errorf("%w: the first row of rollout %q has no sampled token", ErrInvalid, r.Rollout)
			}
			at = len(members)
			seen[r.Rollout] = at
			reward := r.Reward
			members = append(members, Member{Group: r.Group, Reward: &reward, Tokens: r.Tokens})
		}
		m := &members[at]
		if m.Group != r.Group {
			return nil, nil, fmt.Errorf("%w: row %d of rollout %q is in group %q, the first one in %q", ErrInvalid, i, r.Rollout, r.Group, m.Group)
		}
		if !Equal(r.Reward, *m.Reward) {
			return nil, nil, fmt.Errorf("%w: row %d of rollout %q has reward %v, the first one %v", ErrInvalid, i, r.Rollout, r.Reward, *m.Reward)
		}
		index[i] = at
	}
	return members, index, nil
}

// NormalizeAdvantages divides the advantages of every row in place by the
// number of sampled tokens of its rollout times rows, as trainers of the 1.0
// protocol do before they sum the loss of a batch ([TokenSum]). Rows of
// advantages and masks have one entry a token.
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
