package credit_test

import (
	"fmt"

	agl "agentlightning"
	"agentlightning/adapter/credit"
	"agentlightning/rl"
	"agentlightning/semconv"
)

// attempt is what the store has of two calls and a reward at the end.
func attempt(reward float64) []agl.Span {
	call := func(id string, sequence int64) agl.Span {
		return agl.Span{SpanID: id, SequenceID: sequence, Name: semconv.SpanModelCall, Attributes: agl.Attributes{
			{Key: semconv.PromptTokenIDs, Value: []int64{1, 2}}, {Key: semconv.ResponseTokenIDs, Value: []int64{3}},
		}}
	}
	return []agl.Span{call("a", 1), call("b", 2), {SpanID: "r", SequenceID: 3, Name: semconv.SpanAnnotation, Attributes: agl.Attributes{
		{Key: semconv.RewardName(0), Value: semconv.PrimaryReward}, {Key: semconv.RewardValue(0), Value: reward},
	}}}
}

// Two attempts at one task under two rules.
func Example() {
	var rollouts []credit.Rollout
	for i, reward := range []float64{1, 0} {
		rollouts = append(rollouts, credit.Read(fmt.Sprint("ro-", i), "task", attempt(reward)))
	}
	for _, rule := range []credit.Rule{credit.Identical{}, credit.Discounted{Gamma: 0.5}} {
		a, err := credit.Assign(rollouts, rule, rl.AdvantageConfig{WithoutStd: true})
		if err != nil {
			fmt.Println(err)
			return
		}
		for i, calls := range a.Calls {
			for j, c := range calls {
				fmt.Printf("%s: %s, call %d: earned %.2f, advantage %+.3f\n", rule, rollouts[i].ID, j, *c.Reward, c.Advantage)
			}
		}
	}
	// Output:
	// identical: ro-0, call 0: earned 1.00, advantage +0.500
	// identical: ro-0, call 1: earned 1.00, advantage +0.500
	// identical: ro-1, call 0: earned 0.00, advantage -0.500
	// identical: ro-1, call 1: earned 0.00, advantage -0.500
	// discounted:0.5: ro-0, call 0: earned 0.50, advantage +0.125
	// discounted:0.5: ro-0, call 1: earned 1.00, advantage +0.625
	// discounted:0.5: ro-1, call 0: earned 0.00, advantage -0.375
	// discounted:0.5: ro-1, call 1: earned 0.00, advantage -0.375
}
