package dataset

import (
	"context"
	"fmt"

	"agentlightning/adapter/credit"
	"agentlightning/algorithm"
	"agentlightning/learner"
	"agentlightning/store"
)

// storedAtATime is how many rollouts are read at a time.
const storedAtATime = 50

// Stored reads rollouts that are in the store already, with the rewards of the
// selection's set.
func Stored(ctx context.Context, from store.Store, which algorithm.Stored) ([]credit.Rollout, error) {
	found, err := which.Find(ctx, from)
	if err != nil {
		return nil, err
	}
	out := make([]credit.Rollout, 0, len(found))
	for at := 0; at < len(found); at += storedAtATime {
		part := found[at:min(at+storedAtATime, len(found))]
		ids := make([]string, len(part))
		for i := range part {
			ids[i] = part[i].ID
		}
		outcomes, err := which.Outcomes(ctx, from, ids)
		if err != nil {
			return nil, err
		}
		for i, o := range outcomes {
			r := credit.Read(part[i].ID, part[i].Group, o.Spans)
			r.Failed = o.Failure != ""
			out = append(out, r)
		}
	}
	return out, nil
}

func scored(rollouts []credit.Rollout) []Scored {
	out := make([]Scored, len(rollouts))
	for i := range rollouts {
		out[i] = Scored{ID: rollouts[i].ID, Group: rollouts[i].Group, Reward: rollouts[i].Final}
		if rollouts[i].Failed {
			out[i].Reward = nil
		}
	}
	return out
}

// Demonstrations are the rows of the rollouts that a selection chooses, for
// supervised fine-tuning.
func Demonstrations(rollouts []credit.Rollout, which Selection) ([]learner.Row, error) {
	chosen, err := which.Select(scored(rollouts))
	if err != nil {
		return nil, err
	}
	var out []learner.Row
	for _, i := range chosen {
		for _, row := range Rows(&rollouts[i], nil) {
			out = append(out, row.Learner())
		}
	}
	return out, nil
}

// Pairs are the rows of chosen and rejected rollouts, one after the other, for
// preferences. Of a rollout with several rows the last one counts; a pair of
// which one has no row, or that do not go on from the same prompt, is left out
// and counted.
func Pairs(rollouts []credit.Rollout, which Preferences) (rows []learner.Row, leftOut int, err error) {
	pairs, err := which.Select(scored(rollouts))
	if err != nil {
		return nil, 0, err
	}
	for _, p := range pairs {
		chosen, rejected := Rows(&rollouts[p.Chosen], nil), Rows(&rollouts[p.Rejected], nil)
		if len(chosen) == 0 || len(rejected) == 0 || !samePrompt(&chosen[len(chosen)-1], &rejected[len(rejected)-1]) {
			leftOut++
			continue
		}
		rows = append(rows, chosen[len(chosen)-1].Learner(), rejected[len(rejected)-1].Learner())
	}
	if len(rows) == 0 && len(pairs) > 0 {
		return nil, leftOut, fmt.Errorf("none of %d pairs can be trained on: %w", len(pairs), ErrNoPrompt)
	}
	return rows, leftOut, nil
}

func samePrompt(a, b *Row) bool {
	if a.PromptLength != b.PromptLength {
		return false
	}
	for i := range a.PromptLength {
		if a.IDs[i] != b.IDs[i] {
			return false
		}
	}
	return true
}
