package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	agl "agentlightning"
	"agentlightning/store"
)

const rewardSetFlag = "reward-set"

// bindRewardSet adds the flag that says which rewards count.
func bindRewardSet(cmd *cobra.Command, set *string) {
	cmd.Flags().StringVar(set, rewardSetFlag, agl.DefaultRewardSet, "which rewards count: default are those that agents gave, others are made by 'agl rescore'")
}

func checkRewardSet(set string) error {
	if err := agl.CheckRewardSet(set); err != nil {
		return fmt.Errorf("--%s: %w", rewardSetFlag, err)
	}
	return nil
}

// rewards are the final rewards of an attempt by set.
type rewards struct {
	order []string // of the named sets, by appearance
	final map[string]*float64
}

func (r *rewards) add(span *agl.Span) {
	set, named := agl.RewardSetOf(span)
	if !named {
		set = agl.DefaultRewardSet
	}
	in := agl.SpanInRewardSet(span, set)
	value, err := agl.RewardValue(&in)
	if err != nil || value == nil {
		return
	}
	if r.final == nil {
		r.final = map[string]*float64{}
	}
	if _, seen := r.final[set]; !seen && named {
		r.order = append(r.order, set)
	}
	r.final[set] = value
}

func (r *rewards) of(set string) *float64 { return r.final[set] }

// sets are the default one and those that have rewards.
func (r *rewards) sets() []string { return append([]string{agl.DefaultRewardSet}, r.order...) }

func readRewards(ctx context.Context, s store.Store, rolloutID, attemptID string) (rewards, error) {
	var r rewards
	err := eachSpan(ctx, s, rolloutID, &attemptID, func(span *agl.Span) error {
		r.add(span)
		return nil
	})
	return r, err
}

// appendReward adds the reward of a set to an object that ends here.
func appendReward(object []byte, set string, value *float64) []byte {
	name, err := json.Marshal(set)
	if err != nil {
		return object // names of sets are plain text
	}
	object = append(object[:len(object)-1], `,"reward_set":`...)
	object = append(append(object, name...), `,"reward":`...)
	if value == nil {
		return append(object, "null}"...)
	}
	return append(strconv.AppendFloat(object, *value, 'g', -1, 64), '}')
}

// inSet names a set in a sentence, unless it is the default one.
func inSet(set string) string {
	if set == agl.DefaultRewardSet {
		return ""
	}
	return " in the reward set " + set
}
