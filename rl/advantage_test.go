package rl_test

import (
	"math"
	"testing"

	"agentlightning/rl"
)

func group(name string, rewards ...*float64) []rl.Member {
	var out []rl.Member
	for _, r := range rewards {
		out = append(out, rl.Member{Group: name, Reward: r})
	}
	return out
}

func TestGroupAdvantagesUnusableMembers(t *testing.T) {
	t.Parallel()
	nan, inf := new(math.NaN()), new(math.Inf(1))
	s := math.Sqrt(1.0 / 3) // standard deviation of 1, 1, 0 and of 1, 0, 0
	tests := []struct {
		name    string
		members []rl.Member
		config  rl.AdvantageConfig
		want    []float64 // NaN: not used
		stats   rl.AdvantageStats
	}{
		{
			name:    "a missing reward leaves mean and divisor",
			members: group("a", new(float64(1)), nil, new(float64(0)), new(float64(1))),
			want:    []float64{1.0 / 3 / s, math.NaN(), -2.0 / 3 / s, 1.0 / 3 / s},
			stats:   rl.AdvantageStats{Groups: 1, Members: 4, Unrewarded: 1, RewardMean: 2.0 / 3, RewardStd: s},
		},
		{
			name:    "a group with one reward is dropped",
			members: group("a", nil, nil, nil, new(float64(1))),
			want:    []float64{math.NaN(), math.NaN(), math.NaN(), math.NaN()},
			stats:   rl.AdvantageStats{Groups: 1, GroupsSmall: 1, Members: 4, Unrewarded: 3, RewardMean: 1},
		},
		{
			name:    "not finite counts as none",
			members: group("a", nan, new(float64(1)), new(float64(0)), inf),
			want:    []float64{math.NaN(), .5 / math.Sqrt(.5), -.5 / math.Sqrt(.5), math.NaN()},
			stats:   rl.AdvantageStats{Groups: 1, Members: 4, NonFinite: 2, RewardMean: .5, RewardStd: math.Sqrt(.5)},
		},
		{
			name:    "three of a group of four",
			members: group("a", new(float64(1)), new(float64(0)), new(float64(0)), nil),
			config:  rl.AdvantageConfig{WithoutStd: true},
			want:    []float64{2.0 / 3, -1.0 / 3, -1.0 / 3, math.NaN()},
			stats:   rl.AdvantageStats{Groups: 1, Members: 4, Unrewarded: 1, RewardMean: 1.0 / 3, RewardStd: s},
		},
		{
			name:    "constant groups are dropped and the others unmoved",
			members: append(group("a", new(float64(1)), new(float64(1))), group("b", new(float64(0)), new(float64(1)))...),
			config:  rl.AdvantageConfig{WithoutStd: true},
			want:    []float64{math.NaN(), math.NaN(), -.5, .5},
			stats:   rl.AdvantageStats{Groups: 2, GroupsConstant: 1, Members: 4, RewardMean: .75, RewardStd: .5},
		},
		{
			name:    "constant groups kept",
			members: group("a", new(.3), new(.3)),
			config:  rl.AdvantageConfig{KeepConstant: true},
			want:    []float64{0, 0},
			stats:   rl.AdvantageStats{Groups: 1, GroupsConstant: 1, Members: 2, RewardMean: .3},
		},
		{
			name:    "minimum of members",
			members: group("a", new(float64(0)), new(float64(1)), nil),
			config:  rl.AdvantageConfig{MinMembers: 3},
			want:    []float64{math.NaN(), math.NaN(), math.NaN()},
			stats:   rl.AdvantageStats{Groups: 1, GroupsSmall: 1, Members: 3, Unrewarded: 1, RewardMean: .5, RewardStd: math.Sqrt(.5)},
		},
		{
			name:  "nothing",
			want:  []float64{},
			stats: rl.AdvantageStats{},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, stats := rl.GroupAdvantages(tt.members, tt.config)
			if len(got) != len(tt.want) {
				t.Fatalf("GroupAdvantages: %d advantages, want %d", len(got), len(tt.want))
			}
			for i, want := range tt.want {
				if got[i].Used == math.IsNaN(want) {
					t.Errorf("member %d: Used = %v", i, got[i].Used)
				}
				if got[i].Used && math.Abs(got[i].Value-want) > 1e-5 {
					t.Errorf("member %d: advantage = %v, want %v", i, got[i].Value, want)
				}
				if !got[i].Used && got[i].Value != 0 {
					t.Errorf("member %d: unused but advantage %v", i, got[i].Value)
				}
			}
			if math.Abs(stats.RewardMean-tt.stats.RewardMean) > 1e-12 || math.Abs(stats.RewardStd-tt.stats.RewardStd) > 1e-12 {
				t.Errorf("reward mean, std = %v, %v, want %v, %v", stats.RewardMean, stats.RewardStd, tt.stats.RewardMean, tt.stats.RewardStd)
			}
			stats.RewardMean, stats.RewardStd = tt.stats.RewardMean, tt.stats.RewardStd
			if stats != tt.stats {
				t.Errorf("stats = %+v, want %+v", stats, tt.stats)
			}
		})
	}
}

// A rollout is one member of its group however many rows it has: three rows of
// the rewarded one must not pull the mean from 1/4 to 1/2.
func TestBaselineCountsRolloutsNotRows(t *testing.T) {
	t.Parallel()
	got, stats := rl.GroupAdvantages(group("a", new(float64(1)), new(float64(0)), new(float64(0)), new(float64(0))), rl.AdvantageConfig{WithoutStd: true})
	if stats.RewardMean != .25 || got[0].Value != .75 {
		t.Errorf("mean %v, advantage %v, want 0.25 and 0.75", stats.RewardMean, got[0].Value)
	}
	weights, err := rl.RolloutWeights([]string{"r1", "r1", "r1", "r2"}, [][]float32{{0, 1}, {0, 1, 1}, {0, 1}, {0, 1, 1, 1}})
	if err != nil {
		t.Fatal(err)
	}
	if one, two := weights[0]+2*weights[1]+weights[2], 3*weights[3]; math.Abs(one-1) > 1e-12 || math.Abs(two-1) > 1e-12 {
		t.Errorf("weights of the rollouts' tokens sum to %v and %v, want 1 and 1", one, two)
	}
}

func TestRolloutWeights(t *testing.T) {
	t.Parallel()
	weights, err := rl.RolloutWeights([]string{"short", "long", "long", "long", "long", "long", "empty"},
		[][]float32{{1}, {1}, {1}, {1}, {1}, {1}, {0}})
	if err != nil {
		t.Fatal(err)
	}
	want := []float64{1, .2, .2, .2, .2, .2, 0}
	for i := range want {
		if math.Abs(weights[i]-want[i]) > 1e-12 {
			t.Errorf("RolloutWeights[%d] = %v, want %v", i, weights[i], want[i])
		}
	}
	if _, err := rl.RolloutWeights([]string{"a"}, nil); err == nil {
		t.Error("RolloutWeights: no error for 1 rollout and 0 rows")
	}
}
