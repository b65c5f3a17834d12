package agl_test

import (
	"fmt"
	"testing"

	agl "agentlightning"
	"agentlightning/semconv"
)

func reward(v float64) agl.Attributes {
	return agl.Attributes{{Key: semconv.RewardName(0), Value: semconv.PrimaryReward}, {Key: semconv.RewardValue(0), Value: v}}
}

func rescored(set string, v float64) agl.Span {
	return agl.Span{Name: semconv.SpanRescore, SpanID: set, Attributes: agl.Attributes{
		{Key: semconv.RescoreSet, Value: set},
		{Key: semconv.RescoreReward + ".0.name", Value: semconv.PrimaryReward},
		{Key: semconv.RescoreReward + ".0.value", Value: v},
		{Key: semconv.RescoreReward + ".1.name", Value: "brevity"},
		{Key: semconv.RescoreReward + ".1.value", Value: 0.25},
	}}
}

// Rewards of all formats belong to the default set, and none of another set
// shows there.
func TestRewardSets(t *testing.T) {
	t.Parallel()
	spans := []agl.Span{
		{Name: semconv.SpanModelCall},
		{Name: semconv.SpanAnnotation, Attributes: append(reward(0.5), agl.Attribute{Key: "kept", Value: "yes"})},
		{Name: semconv.SpanAnnotation, Attributes: agl.Attributes{{Key: "reward", Value: 0.75}}},
		{Name: "task", Attributes: agl.Attributes{{Key: "agentops.task.output", Value: `{"type":"reward","value":1}`}}},
		{Name: "broken", Attributes: agl.Attributes{{Key: "agentlightning.reward", Value: 1.0}}},
		rescored("strict", 0.125), rescored("kind", 1),
	}
	if got := fmt.Sprint(agl.RewardSets(spans)); got != "[strict kind]" {
		t.Errorf("RewardSets = %s", got)
	}
	for set, want := range map[string]float64{"strict": 0.125, "kind": 1} {
		in := agl.InRewardSet(spans, set)
		got, err := agl.FinalReward(in)
		if err != nil || got == nil || *got != want {
			t.Errorf("final reward in %s = %v, %v, want %v", set, got, err, want)
		}
		n := 0
		for i := range in {
			if v, err := agl.RewardValue(&in[i]); err != nil {
				t.Errorf("%s: %v", set, err)
			} else if v != nil {
				n++
				if dims, err := agl.Rewards(&in[i]); err != nil || len(dims) != 2 || dims[1] != (agl.RewardDimension{Name: "brevity", Value: 0.25}) {
					t.Errorf("%s: dimensions %v, %v", set, dims, err)
				}
			}
		}
		if n != 1 {
			t.Errorf("%d rewards in %s, want 1", n, set)
		}
		if v, ok := in[1].Attributes.String("kept"); !ok || v != "yes" {
			t.Errorf("an attribute that is no reward is gone: %v", in[1].Attributes)
		}
	}
	if got, err := agl.FinalReward(agl.InRewardSet(spans, "unknown")); got != nil || err != nil {
		t.Errorf("final reward in a set that nobody computed = %v, %v", got, err)
	}
	for _, set := range []string{"", agl.DefaultRewardSet} {
		if got, err := agl.FinalReward(agl.InRewardSet(spans[:4], set)); err != nil || got == nil || *got != 1 {
			t.Errorf("final reward of set %q = %v, %v, want 1", set, got, err)
		}
	}
	for i := range spans[5:] {
		if v, err := agl.RewardValue(&spans[5+i]); v != nil || err != nil {
			t.Errorf("a reward of a named set shows in the default one: %v, %v", v, err)
		}
	}
	if v, _ := agl.RewardValue(&spans[1]); v == nil || *v != 0.5 {
		t.Errorf("the given spans were changed: %v", spans[1].Attributes)
	}
}

func TestCheckRewardSet(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{"": true, "default": true, "judge-2.1_b": true, "-x": false, "a b": false, "ä": false} {
		if err := agl.CheckRewardSet(name); (err == nil) != ok {
			t.Errorf("CheckRewardSet(%q) = %v", name, err)
		}
	}
}

// A set that was computed later is read by the same functions.
func ExampleInRewardSet() {
	spans := []agl.Span{{Name: semconv.SpanAnnotation, Attributes: reward(1)}, rescored("strict", 0.5)}
	given, _ := agl.FinalReward(spans)
	strict, _ := agl.FinalReward(agl.InRewardSet(spans, "strict"))
	fmt.Println(*given, *strict)
	// Output: 1 0.5
}
