package dataset_test

import (
	"fmt"
	"testing"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/dataset"
	"agentlightning/semconv"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// What is imitated and preferred follows the chosen reward set.
func TestStoredRolloutsAsRows(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() { _ = s.Close() })
	for i := range int64(4) { // two tasks, two answers each; the second is right
		r, err := s.StartRollout(ctx, store.StartRequest{EnqueueRequest: store.EnqueueRequest{Input: fmt.Appendf(nil, "%d", i/2)}})
		if err != nil {
			t.Fatal(err)
		}
		call := agl.SpanCore{Name: semconv.SpanModelCall, Attributes: agl.Attributes{
			{Key: semconv.PromptTokenIDs, Value: []int64{i / 2}},
			{Key: semconv.ResponseTokenIDs, Value: []int64{10 + i%2}},
			{Key: semconv.ResponseLogprobs, Value: []float64{-0.5}},
		}}
		reward := agl.SpanCore{Name: semconv.SpanAnnotation, Attributes: agl.Attributes{
			{Key: semconv.RewardName(0), Value: "primary"}, {Key: semconv.RewardValue(0), Value: float64(i % 2)},
		}}
		other := agl.SpanCore{Name: semconv.SpanRescore, Attributes: agl.Attributes{
			{Key: semconv.RescoreSet, Value: "inverted"},
			{Key: semconv.RescoreReward + ".0.name", Value: "primary"},
			{Key: semconv.RescoreReward + ".0.value", Value: float64(1 - i%2)},
		}}
		at := r.Attempt.AttemptID
		if _, err := s.AddSpans(ctx, []agl.Span{call.Span(r.RolloutID, at, 1, 1), reward.Span(r.RolloutID, at, 2, 2), other.Span(r.RolloutID, at, 3, 3)}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.UpdateAttempt(ctx, r.RolloutID, at, store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)}); err != nil {
			t.Fatal(err)
		}
	}
	for set, want := range map[string][2]string{
		"":         {"[0 11] [1 11]", "[0 11] [0 10] [1 11] [1 10]"},
		"inverted": {"[0 10] [1 10]", "[0 10] [0 11] [1 10] [1 11]"},
	} {
		rollouts, err := dataset.Stored(ctx, s, algorithm.Stored{RewardSet: set})
		if err != nil {
			t.Fatal(err)
		}
		rows, err := dataset.Demonstrations(rollouts, dataset.Selection{Min: new(1.0)})
		var got string
		for _, r := range rows {
			got += fmt.Sprint(" ", r.IDs)
		}
		if err != nil || got != " "+want[0] {
			t.Errorf("demonstrations by set %q: %s, %v, want %s", set, got, err, want[0])
		}
		pairs, left, err := dataset.Pairs(rollouts, dataset.Preferences{})
		got = ""
		for _, r := range pairs {
			got += fmt.Sprint(" ", r.IDs)
		}
		if err != nil || left != 0 || got != " "+want[1] {
			t.Errorf("pairs by set %q: %s, %d left out, %v, want %s", set, got, left, err, want[1])
		}
	}
	if _, err := dataset.Stored(ctx, s, algorithm.Stored{RewardSet: "a b"}); err == nil {
		t.Error("a set of that name was taken")
	}
}
