package rl_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentlightning/rl"
)

func group(name string, rewards ...*float64) []rl.Member {
	var out []rl.Member
	for _, r := range rewards {
		out = append(out, rl.Member{Group: name, Reward: r})
	}
	return out
}

func TestAdvantagesUnusableMembers(t *testing.T) {
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
			stats:   rl.AdvantageStats{Groups: 1, Members: 4, Usable: 3, Unrewarded: 1, RewardMean: 2.0 / 3, RewardStd: s},
		},
		{
			name:    "a group with one reward is dropped",
			members: group("a", nil, nil, nil, new(float64(1))),
			want:    []float64{math.NaN(), math.NaN(), math.NaN(), math.NaN()},
			stats:   rl.AdvantageStats{Groups: 1, GroupsSmall: 1, Members: 4, Usable: 1, Unrewarded: 3, RewardMean: 1},
		},
		{
			name:    "not finite counts as none",
			members: group("a", nan, new(float64(1)), new(float64(0)), inf),
			want:    []float64{math.NaN(), .5 / math.Sqrt(.5), -.5 / math.Sqrt(.5), math.NaN()},
			stats:   rl.AdvantageStats{Groups: 1, Members: 4, Usable: 2, NonFinite: 2, RewardMean: .5, RewardStd: math.Sqrt(.5)},
		},
		{
			name:    "three of a group of four",
			members: group("a", new(float64(1)), new(float64(0)), new(float64(0)), nil),
			config:  rl.AdvantageConfig{WithoutStd: true},
			want:    []float64{2.0 / 3, -1.0 / 3, -1.0 / 3, math.NaN()},
			stats:   rl.AdvantageStats{Groups: 1, Members: 4, Usable: 3, Unrewarded: 1, RewardMean: 1.0 / 3, RewardStd: s},
		},
		{
			name:    "constant groups are dropped and the others unmoved",
			members: append(group("a", new(float64(1)), new(float64(1))), group("b", new(float64(0)), new(float64(1)))...),
			config:  rl.AdvantageConfig{WithoutStd: true},
			want:    []float64{math.NaN(), math.NaN(), -.5, .5},
			stats:   rl.AdvantageStats{Groups: 2, GroupsConstant: 1, Members: 4, Usable: 4, RewardMean: .75, RewardStd: .5},
		},
		{
			name:    "constant groups kept",
			members: group("a", new(.3), new(.3)),
			config:  rl.AdvantageConfig{KeepConstant: true},
			want:    []float64{0, 0},
			stats:   rl.AdvantageStats{Groups: 1, GroupsConstant: 1, Members: 2, Usable: 2, RewardMean: .3},
		},
		{
			name:    "minimum of members",
			members: group("a", new(float64(0)), new(float64(1)), nil),
			config:  rl.AdvantageConfig{MinMembers: 3},
			want:    []float64{math.NaN(), math.NaN(), math.NaN()},
			stats:   rl.AdvantageStats{Groups: 1, GroupsSmall: 1, Members: 3, Usable: 2, Unrewarded: 1, RewardMean: .5, RewardStd: math.Sqrt(.5)},
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
			got, stats, err := rl.Advantages(tt.members, tt.config)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(tt.want) {
				t.Fatalf("Advantages: %d advantages, want %d", len(got), len(tt.want))
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
	rows := []rl.Row{{"r1", "a", 1, 2}, {"r1", "a", 1, 3}, {"r1", "a", 1, 1}, {"r2", "a", 0, 1}, {"r3", "a", 0, 1}, {"r4", "a", 0, 1}}
	members, index, err := rl.ByRollout(rows)
	if err != nil {
		t.Fatal(err)
	}
	got, stats, err := rl.Advantages(members, rl.AdvantageConfig{WithoutStd: true})
	if err != nil {
		t.Fatal(err)
	}
	if stats.RewardMean != .25 || got[index[2]].Value != .75 {
		t.Errorf("mean %v, advantage %v, want 0.25 and 0.75", stats.RewardMean, got[index[2]].Value)
	}
}

// What failed is out of the statistics unless asked otherwise.
func TestOnFailure(t *testing.T) {
	t.Parallel()
	members := group("a", new(1.0), new(0.5), nil, new(0.0))
	members[1].Failed = true
	tests := []struct {
		how  rl.OnFailure
		mean float64
		used []bool
	}{
		{"", .5, []bool{true, false, false, true}},
		{rl.DropFailed, .5, []bool{true, false, false, true}},
		{rl.KeepFailed, .5, []bool{true, true, false, true}},
		{rl.ZeroFailed, .25, []bool{true, true, true, true}},
	}
	for _, tt := range tests {
		got, stats, err := rl.Advantages(members, rl.AdvantageConfig{OnFailure: tt.how})
		if err != nil {
			t.Fatal(err)
		}
		if stats.RewardMean != tt.mean || stats.Failed != 1 || stats.Unrewarded != 1 {
			t.Errorf("%q: stats %+v, want mean %v, 1 failed, 1 unrewarded", tt.how, stats, tt.mean)
		}
		for i, a := range got {
			if a.Used != tt.used[i] {
				t.Errorf("%q: member %d used = %v, want %v", tt.how, i, a.Used, tt.used[i])
			}
		}
	}
	members[0].Reward = new(math.NaN())
	_, stats, err := rl.Advantages(members, rl.AdvantageConfig{OnFailure: rl.ZeroFailed})
	if err != nil || stats.NonFinite != 1 || stats.Usable != 3 {
		t.Errorf("a reward that is NaN: stats %+v, %v, want it unusable", stats, err)
	}
}

// A member whose every token was rejected leaves the baseline of the others.
func TestRejectedMember(t *testing.T) {
	t.Parallel()
	members := group("a", new(1.0), new(0.0), new(0.0), new(1.0))
	members[3].Rejected = true
	got, stats, err := rl.Advantages(members, rl.AdvantageConfig{WithoutStd: true})
	if err != nil || stats.Rejected != 1 || stats.Usable != 3 {
		t.Fatalf("Advantages: stats %+v, %v, want 3 usable and 1 rejected", stats, err)
	}
	if math.Abs(got[0].Value-2.0/3) > 1e-12 || got[3].Used {
		t.Errorf("advantages %+v, want 2/3 for the first and none for the last", got)
	}
}

// Worked by hand: r - greedy for ReMax; for GDPO a group whose rewards add up
// to the same sum, which GRPO cannot tell apart, still has an order.
func TestWorkedExamples(t *testing.T) {
	t.Parallel()
	greedy := group("a", new(1.0), new(0.25))
	greedy[0].Baseline, greedy[1].Baseline = new(0.5), new(0.5)
	got, _, err := rl.Advantages(greedy, rl.AdvantageConfig{Estimator: rl.ReMax})
	if err != nil || got[0].Value != .5 || got[1].Value != -.25 {
		t.Errorf("remax: %+v, %v, want 0.5 and -0.25", got, err)
	}

	// Components of three members: (1 0) (1 1) (0 1). Column means 2/3, deviations
	// sqrt(1/3): normalised 1/sqrt(3) or -2/sqrt(3). Sums -1/√3, 2/√3, -1/√3;
	// their mean is 0 and their deviation 1, so that whitening leaves them.
	parts := group("a", new(1.0), new(2.0), new(1.0))
	parts[0].Components, parts[1].Components, parts[2].Components = []float64{1, 0}, []float64{1, 1}, []float64{0, 1}
	got, _, err = rl.Advantages(parts, rl.AdvantageConfig{Estimator: rl.GDPO})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{-1, 2, -1} {
		if want /= math.Sqrt(3); math.Abs(got[i].Value-want) > 1e-5 {
			t.Errorf("gdpo: member %d = %v, want %v", i, got[i].Value, want)
		}
	}
	if !math.IsNaN(got[0].Of(1)) {
		t.Errorf("gdpo: Of(1) = %v, want NaN, since its components have their own baselines", got[0].Of(1))
	}

	// With 0.25 for a call whose rollout has 1: less the mean of the others.
	got, _, err = rl.Advantages(group("a", new(1.0), new(0.0), new(.5)), rl.AdvantageConfig{Estimator: rl.RLOO})
	if err != nil || got[0].Value != .75 || got[0].Of(.25) != 0 {
		t.Errorf("rloo: %+v, %v, want 0.75, and 0 for a call with 0.25", got, err)
	}
}

// Every estimator is invariant to what it should be, and has nothing to say
// about an empty batch.
func TestEstimatorProperties(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, e := range rl.Estimators() {
		if got, stats, err := rl.Advantages(nil, rl.AdvantageConfig{Estimator: e}); err != nil || len(got) != 0 || stats != (rl.AdvantageStats{}) {
			t.Errorf("%s of nothing = %v, %+v, %v", e, got, stats, err)
		}
		for range 50 {
			members := make([]rl.Member, 12)
			for i := range members {
				r, tokens := random.Float64(), 1+random.IntN(9)
				members[i] = rl.Member{
					Group: string(rune('a' + i/4)), Reward: &r, Tokens: tokens, Baseline: new(0.5), Components: []float64{r / 3, 2 * r / 3},
				}
			}
			got, _, err := rl.Advantages(members, rl.AdvantageConfig{Estimator: e})
			if err != nil {
				t.Fatal(err)
			}
			sum, weighted := 0.0, 0.0
			for i, a := range got {
				if !a.Used || math.IsNaN(a.Value) || math.IsInf(a.Value, 0) {
					t.Fatalf("%s: member %d = %+v", e, i, a)
				}
				if e != rl.GDPO && a.Of(a.Reward) != a.Value {
					t.Errorf("%s: Of(its own reward) = %v, want %v", e, a.Of(a.Reward), a.Value)
				}
				sum += a.Value
				weighted += a.Value * float64(members[i].Tokens)
			}
			switch e {
			case rl.GRPO, rl.RLOO, rl.GPG, rl.GDPO: // centred over members
				if math.Abs(sum) > 1e-9 {
					t.Errorf("%s: advantages sum to %v, want 0", e, sum)
				}
			case rl.OPO, rl.ReinforcePP, rl.ReinforcePPBaseline: // centred over tokens
				if math.Abs(weighted) > 1e-6 {
					t.Errorf("%s: advantages sum to %v over tokens, want 0", e, weighted)
				}
			case rl.PassK, rl.ReMax:
			}
		}
	}
}

func TestAdvantagesRefuses(t *testing.T) {
	t.Parallel()
	members := group("a", new(1.0), new(0.0))
	for want, c := range map[string]rl.AdvantageConfig{
		`estimator "ppo"`:     {Estimator: "ppo"},
		"without std":         {Estimator: rl.RLOO, WithoutStd: true},
		"epsilon":             {Epsilon: math.NaN()},
		"smallest group -1":   {MinMembers: -1},
		"smallest group 3":    {Estimator: rl.ReinforcePP, MinMembers: 3},
		"epsilon 0.1":         {Estimator: rl.RLOO, Epsilon: 0.1},
		"epsilon 0.2":         {WithoutStd: true, Epsilon: 0.2},
		"keep constant":       {Estimator: rl.ReinforcePP, KeepConstant: true},
		"component weights":   {ComponentWeights: []float64{1}},
		`on failure "ignore"`: {OnFailure: "ignore"},
		"greedy rollout":      {Estimator: rl.ReMax},
		"0 tokens":            {Estimator: rl.OPO},
		"0 reward components": {Estimator: rl.GDPO},
	} {
		if _, _, err := rl.Advantages(members, c); !errors.Is(err, rl.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("Advantages with %+v: %v, want an error that says %q", c, err, want)
		}
	}
}

func TestShortages(t *testing.T) {
	t.Parallel()
	members := append(group("a", new(1.0), nil, new(math.NaN())), group("b", new(0.0), new(1.0), new(1.0))...)
	got := rl.Shortages(members, rl.AdvantageConfig{}, 3)
	if diff := cmp.Diff([]rl.Shortage{{Group: "a", Missing: 2}}, got); diff != "" {
		t.Errorf("Shortages (-want +got):\n%s", diff)
	}
}

// Rows of groups that teach nothing go first.
func TestWholeMinibatchesDropsConstantGroupsFirst(t *testing.T) {
	t.Parallel()
	rewards, groups := []float64{1, 1, 0, 1, 0, 1, 0}, []string{"a", "a", "b", "b", "c", "c", "c"}
	got, err := rl.WholeMinibatches(rewards, groups, 5, 0, rand.New(rand.NewPCG(3, 4)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{2, 3, 4, 5, 6}, got); diff != "" {
		t.Errorf("WholeMinibatches (-want +got):\n%s", diff)
	}
	for _, size := range []int{0, -1} {
		if _, err := rl.WholeMinibatches(rewards, groups, size, 0, nil); !errors.Is(err, rl.ErrInvalid) {
			t.Errorf("minibatches of %d rows: %v, want ErrInvalid", size, err)
		}
	}
}
