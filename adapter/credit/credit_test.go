package credit_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/adapter/credit"
	"agentlightning/rl"
	"agentlightning/semconv"
)

// trace writes the spans of an attempt in order.
type trace []agl.Span

func (t *trace) add(name string, attributes ...agl.Attribute) string {
	id := strconv.Itoa(len(*t) + 1)
	*t = append(*t, agl.Span{SpanID: id, SequenceID: int64(len(*t) + 1), Name: name, Attributes: attributes})
	return id
}

// call adds a model call of an agent that was last told state.
func (t *trace) call(agent, state string) string {
	return t.add(semconv.SpanModelCall,
		agl.Attribute{Key: semconv.PromptTokenIDs, Value: []int64{1, 2}},
		agl.Attribute{Key: semconv.ResponseTokenIDs, Value: []int64{3, 4}},
		agl.Attribute{Key: semconv.ResponseLogprobs, Value: []float64{-.5, -.5}},
		agl.Attribute{Key: semconv.GenAIAgentName, Value: agent},
		agl.Attribute{Key: semconv.PromptKey(0, "role"), Value: "user"},
		agl.Attribute{Key: semconv.PromptKey(0, "content"), Value: state},
	)
}

// broken adds a call that cannot be trained on.
func (t *trace) broken() string {
	return t.add(semconv.SpanModelCall, agl.Attribute{Key: semconv.CallProblem, Value: semconv.ProblemCancelled})
}

// reward adds a reward; links are pairs of attribute and value.
func (t *trace) reward(value float64, links ...string) {
	attributes := []agl.Attribute{
		{Key: semconv.RewardName(0), Value: semconv.PrimaryReward}, {Key: semconv.RewardValue(0), Value: value},
	}
	for i := 0; i < len(links); i += 2 {
		attributes = append(attributes,
			agl.Attribute{Key: semconv.LinkKeyMatch(i / 2), Value: links[i]}, agl.Attribute{Key: semconv.LinkValueMatch(i / 2), Value: links[i+1]})
	}
	t.add(semconv.SpanAnnotation, attributes...)
}

func read(t *testing.T, id, group string, spans trace) credit.Rollout {
	t.Helper()
	r := credit.Read(id, group, spans)
	if len(r.Unreadable) > 0 {
		t.Fatal(r.Unreadable)
	}
	return r
}

// walk is an attempt of four calls, one of which was broken off, with rewards
// on the way and 1 at the end.
func walk() trace {
	var spans trace
	spans.call("planner", "start")
	spans.reward(.25)
	spans.broken()
	spans.call("coder", "door")
	spans.call("coder", "key")
	spans.reward(1)
	return spans
}

// table shows what calls earned: a number, or - for what is left out.
func table(earned []credit.Earned) string {
	var out []string
	for _, e := range earned {
		if e.Reward == nil {
			out = append(out, "-")
			continue
		}
		out = append(out, strconv.FormatFloat(*e.Reward, 'g', 6, 64))
	}
	return strings.Join(out, " ")
}

func TestRules(t *testing.T) {
	t.Parallel()
	linked := walk()
	linked.reward(.5, "span_id", "1")
	linked.reward(.25, "span_id", "1")
	linked.reward(9, "span_id", "no such span")
	linked.reward(2, semconv.GenAIAgentName, "coder")
	tests := []struct {
		rule  string
		spans trace
		want  string
	}{
		{"identical", walk(), "1 - 1 1"},
		{"last-call", walk(), "- - - 1"},
		{"discounted:0.5", walk(), "0.25 - 0.5 1"},
		// The reward of 0.25 came before the broken call began.
		{"step-rewards", walk(), "1.25 - 1 1"},
		{"step-rewards:0.5", walk(), "0.375 - 0.5 1"},
		{"linked", walk(), "- - - -"},
		{"linked", linked, "0.75 - 2 2"},
		{"linked:last-call", walk(), "- - - 1"},
		{"role:coder", walk(), "- - 1 1"},
		{"role:planner=identical;coder=discounted:0.5", walk(), "1 - 0.5 1"},
		{"role:planner=step-rewards;coder=step-rewards", walk(), "1.25 - 1 1"},
		{"role:^code", walk(), "- - 1 1"},
		{"anchor-states", walk(), "1 - 1 1"},
	}
	for _, tt := range tests {
		rule, err := credit.Parse(tt.rule)
		if err != nil {
			t.Errorf("Parse(%q): %v", tt.rule, err)
			continue
		}
		r := read(t, "ro-1", "g", tt.spans)
		got, err := rule.Credit([]credit.Rollout{r})
		if err != nil {
			t.Errorf("%s: %v", tt.rule, err)
			continue
		}
		if s := table(got[0]); s != tt.want {
			t.Errorf("%s gives %s, want %s", tt.rule, s, tt.want)
		}
		if again, err := credit.Parse(rule.String()); err != nil || again.String() != rule.String() {
			t.Errorf("%s is written %s, which reads as %v, %v", tt.rule, rule, again, err)
		}
	}
}

// A reward with links credits exactly the linked calls, in rules by step too;
// one that names the span of an agent's own tracer means the call that counts.
func TestLinksOfSteps(t *testing.T) {
	t.Parallel()
	var spans trace
	first := spans.call("", "a")
	spans.add(semconv.SpanModelCall, agl.Attribute{Key: semconv.GenAIResponseID, Value: "c1"}) // an agent's own
	own := spans[len(spans)-1].SpanID
	spans.add(semconv.SpanModelCall,
		agl.Attribute{Key: semconv.CallBackend, Value: "http://model"},
		agl.Attribute{Key: semconv.GenAIResponseID, Value: "c1"},
		agl.Attribute{Key: semconv.PromptTokenIDs, Value: []int64{1}}, agl.Attribute{Key: semconv.ResponseTokenIDs, Value: []int64{2}})
	spans.reward(3, "span_id", own)
	spans.reward(1, "span_id", first)
	r := read(t, "ro-1", "g", spans)
	if len(r.Calls) != 2 {
		t.Fatalf("%d calls, want the two that count", len(r.Calls))
	}
	got, err := credit.StepRewards{Gamma: 0}.Credit([]credit.Rollout{r})
	if err != nil || table(got[0]) != "1 3" {
		t.Errorf("step rewards = %v, %v, want 1 3", got, err)
	}
	spans.add(semconv.SpanAnnotation,
		agl.Attribute{Key: semconv.RewardName(0), Value: "primary"}, agl.Attribute{Key: semconv.RewardValue(0), Value: 1.0},
		agl.Attribute{Key: semconv.LinkKeyMatch(0), Value: "span_id"})
	r = credit.Read("ro-1", "g", spans)
	if len(r.Unreadable) != 1 || !strings.Contains(r.Unreadable[0].Error(), "link 0") || r.Final != nil || len(r.Rewards) != 2 {
		t.Errorf("half a link: %+v, want it named, no final reward, and the other rewards as they are", r)
	}
	spans.reward(1)
	if r = credit.Read("ro-1", "g", spans); r.Final == nil || *r.Final != 1 || len(r.Unreadable) != 1 {
		t.Errorf("a good reward after it: final %v, want 1", r.Final)
	}
}

// GiGPO by hand. Two rollouts of a group saw "door": one got 1 from there on,
// discounted 0.5 for the step in between, the other 0. Only one saw "key".
func TestAnchorStates(t *testing.T) {
	t.Parallel()
	var won, lost trace
	won.call("", "door")
	won.call("", "key")
	won.reward(1)
	lost.call("", "door")
	lost.reward(0)
	group := []credit.Rollout{read(t, "a", "g", won), read(t, "b", "g", lost)}
	got, err := credit.AnchorStates{Gamma: .5, Weight: 2}.Credit(group)
	if err != nil {
		t.Fatal(err)
	}
	// Worth 0.5 and 0: mean 0.25, deviation sqrt(2)/4; ±1/sqrt(2), times 2.
	for _, c := range []struct{ got, want float64 }{{got[0][0].Bonus, math.Sqrt2}, {got[0][1].Bonus, 0}, {got[1][0].Bonus, -math.Sqrt2}} {
		if math.Abs(c.got-c.want) > 1e-4 {
			t.Errorf("bonus = %v, want %v", c.got, c.want)
		}
	}
	// Equal final rewards say nothing, the states still do.
	var slow trace
	slow.call("", "door")
	slow.call("", "wall")
	slow.call("", "key")
	slow.reward(1)
	group[1] = read(t, "b", "g", slow)
	assigned, err := credit.Assign(group, credit.AnchorStates{Gamma: .5, Weight: 1}, rl.AdvantageConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if a, b := assigned.Calls[0][0], assigned.Calls[1][0]; !a.Used || a.Advantage < .7 || b.Advantage > -.7 {
		t.Errorf("at the door: %+v and %+v, want the short way above the long one", a, b)
	}
	plain, err := credit.Assign(group, credit.Identical{}, rl.AdvantageConfig{})
	if err != nil || plain.Calls[0][0].Used {
		t.Errorf("identical: %+v, %v, want the group dropped as constant", plain.Calls[0][0], err)
	}
}

// With identical credit every call has the advantage of its rollout, whatever
// the number of its calls; the same function that is previewed.
func TestAssignIsTheEstimator(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, e := range rl.Estimators() {
		var rollouts []credit.Rollout
		var members []rl.Member
		for i := range 12 {
			var spans trace
			calls := 1 + random.IntN(4)
			for range calls {
				spans.call("", "x")
			}
			value := random.Float64()
			spans.reward(value)
			r := read(t, strconv.Itoa(i), string(rune('a'+i/4)), spans)
			r.Baseline = new(.5)
			rollouts = append(rollouts, r)
			members = append(members, rl.Member{Group: r.Group, Reward: &value, Tokens: 2 * calls, Baseline: new(.5), Components: []float64{value}})
		}
		c := rl.AdvantageConfig{Estimator: e}
		want, stats, err := rl.Advantages(members, c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := credit.Assign(rollouts, nil, c)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(stats, got.Stats); diff != "" {
			t.Errorf("%s: stats (-want +got):\n%s", e, diff)
		}
		for i := range want {
			for _, call := range got.Calls[i] {
				if call.Used != want[i].Used || call.Advantage != want[i].Value {
					t.Errorf("%s: rollout %d: call %+v, want advantage %v", e, i, call, want[i].Value)
				}
			}
		}
	}
}

// A rollout counts once in its baseline however many calls it has, and calls
// that earned differently are judged on the scale of all of them.
func TestAssignByCalls(t *testing.T) {
	t.Parallel()
	var long, short trace
	for range 4 {
		long.call("", "")
	}
	long.reward(1)
	short.call("", "")
	short.reward(0)
	rollouts := []credit.Rollout{read(t, "a", "g", long), read(t, "b", "g", short)}
	got, err := credit.Assign(rollouts, credit.Discounted{Gamma: .5}, rl.AdvantageConfig{WithoutStd: true})
	if err != nil {
		t.Fatal(err)
	}
	mean := (.125 + .25 + .5 + 1) / 4
	for j, want := range []float64{.125, .25, .5, 1} {
		if a := got.Calls[0][j].Advantage; math.Abs(a-(want-mean/2)) > 1e-12 {
			t.Errorf("call %d: advantage %v, want %v less the mean of the two rollouts", j, a, want)
		}
	}
	// Two rollouts that agree on average, with calls that do not: no advantage is
	// large only because the rollouts agree.
	var up, down trace
	up.call("", "")
	up.reward(0)
	up.call("", "")
	up.reward(1)
	down.call("", "")
	down.reward(1)
	down.call("", "")
	down.reward(0)
	rollouts = []credit.Rollout{read(t, "a", "g", up), read(t, "b", "g", down)}
	got, err = credit.Assign(rollouts, credit.StepRewards{Gamma: 0}, rl.AdvantageConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]float64{{-1, 1}, {1, -1}} {
		for j := range want {
			if a := got.Calls[i][j]; !a.Used || math.Abs(a.Advantage-want[j]/math.Sqrt2) > 1e-5 {
				t.Errorf("rollout %d, call %d: %+v, want advantage %v", i, j, a, want[j]/math.Sqrt2)
			}
		}
	}
}

// A control exchanges everything that rollouts were given, so that no rule finds
// the real rewards on the way.
func TestTakeRewards(t *testing.T) {
	t.Parallel()
	var long, short trace
	long.reward(7) // before any call
	long.call("", "")
	long.reward(1)
	linked := long.call("", "")
	long.reward(2)
	long.reward(3, "span_id", linked)
	long.call("", "")
	long.reward(4)
	short.call("", "")
	short.reward(.5)
	short.call("", "")
	short.reward(.25)
	a, b := read(t, "a", "g", long), read(t, "b", "g", short)
	tests := []struct {
		to, from credit.Rollout
		rule     credit.Rule
		want     string
	}{
		{a, b, credit.StepRewards{}, "0.5 0 0.25"},
		{b, a, credit.StepRewards{}, "1 9"}, // 2 and 3 of the second call, 4 of the last one
		{a, b, credit.Identical{}, "0.25 0.25 0.25"},
		{b, a, credit.Identical{}, "4 4"},
		{a, a, credit.StepRewards{}, "1 5 4"},
		{b, a, credit.Linked{}, "- 3"},
	}
	for _, tt := range tests {
		r := tt.to
		r.TakeRewards(&tt.from)
		got, err := tt.rule.Credit([]credit.Rollout{r})
		if err != nil || table(got[0]) != tt.want {
			t.Errorf("%s with the rewards of %s: %s = %v, %v, want %s", tt.to.ID, tt.from.ID, tt.rule, table(got[0]), err, tt.want)
		}
	}
	var silent trace
	none := read(t, "none", "g", silent)
	none.TakeRewards(&a)
	if got := none.Earned(); len(got) != 0 || *none.Final != 4 {
		t.Errorf("without calls: earned %v, final %v, want nothing and 4", got, *none.Final)
	}
	if a.Rewards[3].Calls[0] != 1 || *b.Final != .25 {
		t.Errorf("the rollouts that rewards were taken from have changed: %+v, %+v", a.Rewards, b.Rewards)
	}
}

// Roles are compared with themselves only.
func TestAssignByRole(t *testing.T) {
	t.Parallel()
	var rollouts []credit.Rollout
	for i, rewards := range [][2]float64{{10, 0}, {20, 1}} {
		var spans trace
		spans.call("planner", "")
		spans.call("coder", "")
		spans.add(semconv.SpanAnnotation,
			agl.Attribute{Key: semconv.RewardName(0), Value: "plan"}, agl.Attribute{Key: semconv.RewardValue(0), Value: rewards[0]},
			agl.Attribute{Key: semconv.RewardName(1), Value: "code"}, agl.Attribute{Key: semconv.RewardValue(1), Value: rewards[1]})
		rollouts = append(rollouts, read(t, strconv.Itoa(i), "g", spans))
	}
	rule, err := credit.Parse("role:planner@plan;coder@code")
	if err != nil {
		t.Fatal(err)
	}
	got, err := credit.Assign(rollouts, rule, rl.AdvantageConfig{WithoutStd: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]float64{{-5, -.5}, {5, .5}} {
		for j := range want {
			if a := got.Calls[i][j]; !a.Used || a.Advantage != want[j] {
				t.Errorf("rollout %d, call %d: %+v, want advantage %v", i, j, a, want[j])
			}
		}
	}
	if got.Stats.Groups != 2 || got.Stats.Usable != 4 {
		t.Errorf("stats %+v, want two groups of two", got.Stats)
	}
}

// Failed rollouts are seen by no rule unless the caller says so.
func TestAssignOnFailure(t *testing.T) {
	t.Parallel()
	setup := func() []credit.Rollout {
		var good, bad, crashed, broken trace
		good.call("", "")
		good.reward(1)
		bad.call("", "")
		bad.reward(0)
		crashed.call("", "")
		crashed.reward(.5)
		broken.call("", "")
		broken.reward(math.NaN())
		out := []credit.Rollout{read(t, "good", "g", good), read(t, "bad", "g", bad), read(t, "crashed", "g", crashed), read(t, "nan", "g", broken)}
		out[2].Failed = true
		return out
	}
	seen := func(how rl.OnFailure) (ids []string, used int, stats rl.AdvantageStats) {
		rule := credit.Func{Name: "spy", Of: func(r credit.Rollout) ([]*float64, error) {
			ids = append(ids, r.ID+" "+strconv.FormatFloat(*r.Final, 'g', 3, 64))
			return []*float64{r.Final}, nil
		}}
		got, err := credit.Assign(setup(), rule, rl.AdvantageConfig{OnFailure: how})
		if err != nil {
			t.Fatal(err)
		}
		for _, calls := range got.Calls {
			if calls[0].Used {
				used++
			}
		}
		return ids, used, got.Stats
	}
	for how, want := range map[rl.OnFailure][]string{
		rl.DropFailed: {"good 1", "bad 0"},
		rl.KeepFailed: {"good 1", "bad 0", "crashed 0.5"},
		rl.ZeroFailed: {"good 1", "bad 0", "crashed 0"},
	} {
		ids, used, stats := seen(how)
		if !slices.Equal(ids, want) || used != len(want) {
			t.Errorf("%s: the rule saw %q and %d are used, want %q", how, ids, used, want)
		}
		if stats.Failed != 1 || stats.NonFinite != 1 || stats.Usable != len(want) {
			t.Errorf("%s: stats %+v, want 1 failed, 1 not finite, %d usable", how, stats, len(want))
		}
	}
}

func TestAssignRefuses(t *testing.T) {
	t.Parallel()
	var spans trace
	spans.call("", "")
	spans.call("", "")
	spans.reward(1)
	rollouts := []credit.Rollout{read(t, "a", "g", spans), read(t, "b", "g", spans)}
	rollouts[1].Final, rollouts[1].Dimensions = new(0.0), []agl.RewardDimension{{Name: "primary"}}
	fixed := func(values ...*float64) credit.Rule {
		return credit.Func{Name: "mine", Of: func(credit.Rollout) ([]*float64, error) { return values, nil }}
	}
	for want, tt := range map[string]struct {
		rule credit.Rule
		c    rl.AdvantageConfig
	}{
		"1 credits for 2 calls": {rule: fixed(nil)},
		"not finite":            {rule: fixed(nil, new(math.Inf(1)))},
		"gamma 2":               {rule: credit.Discounted{Gamma: 2}},
		"gamma -1":              {rule: credit.StepRewards{Gamma: -1}},
		"gamma NaN":             {rule: credit.AnchorStates{Gamma: math.NaN()}},
		"weight -1":             {rule: credit.AnchorStates{Gamma: 1, Weight: -1}},
		"whole rewards":         {rule: credit.Discounted{Gamma: .5}, c: rl.AdvantageConfig{Estimator: rl.GDPO}},
		`estimator "best"`:      {c: rl.AdvantageConfig{Estimator: "best"}},
	} {
		if _, err := credit.Assign(rollouts, tt.rule, tt.c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Assign: %v, want an error that says %q", err, want)
		}
	}
	if got, err := credit.Assign(nil, nil, rl.AdvantageConfig{}); err != nil || len(got.Calls) != 0 {
		t.Errorf("Assign of nothing = %+v, %v", got, err)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "best", "identical:1", "discounted", "discounted:2", "discounted:x", "step-rewards:-1", "anchor-states:1,2,3", "anchor-states:1,1,nostd,4",
		"anchor-states:1,-1", "linked:best", "role:", "role:a;", "role:(", "role:a=best",
	} {
		if rule, err := credit.Parse(text); !errors.Is(err, credit.ErrInvalid) {
			t.Errorf("Parse(%q) = %v, %v, want ErrInvalid", text, rule, err)
		}
	}
}

// A rule never trains on a call that cannot be trained on.
func TestUnusableCallsEarnNothing(t *testing.T) {
	t.Parallel()
	r := credit.Rollout{ID: "a", Final: new(1.0), Calls: []credit.Call{{Call: adapter.Call{Problem: "truncated"}}, {}}}
	r.Rewards = []credit.Reward{{Value: 1, Linked: true, Calls: []int{0, 1}}}
	for _, text := range []string{"identical", "last-call", "discounted:0.5", "step-rewards", "anchor-states", "linked", "linked:identical", "role:.*"} {
		rule, err := credit.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := rule.Credit([]credit.Rollout{r})
		if err != nil || got[0][0].Reward != nil || got[0][1].Reward == nil {
			t.Errorf("%s = %v, %v, want a reward for the second call only", text, table(got[0]), err)
		}
	}
}

// A failure is a reward of 0 when that is asked for, also for estimators that
// count tokens when it sampled none; a rollout that the rule leaves out is none.
func TestZeroFailedTakesFailuresOnly(t *testing.T) {
	var good, bad, early, aside trace
	good.call("a", "s")
	good.reward(1)
	bad.call("a", "s")
	bad.reward(.5)
	aside.call("b", "s")
	aside.reward(1)
	rollouts := []credit.Rollout{read(t, "good", "g", good), read(t, "bad", "g", bad), read(t, "early", "g", early), read(t, "aside", "g", aside)}
	rollouts[1].Failed, rollouts[2].Failed = true, true
	rule, err := credit.Parse("role:^a$")
	if err != nil {
		t.Fatal(err)
	}
	// For rloo what failed without a call stands by itself, in no role.
	for estimator, usable := range map[rl.Estimator]int{rl.RLOO: 3, rl.ReinforcePP: 2, rl.ReinforcePPBaseline: 2, rl.OPO: 2} {
		got, err := credit.Assign(rollouts, rule, rl.AdvantageConfig{Estimator: estimator, OnFailure: rl.ZeroFailed})
		if err != nil {
			t.Errorf("%s: %v", estimator, err)
			continue
		}
		if want := 1 / float64(usable); got.Stats.Usable != usable || math.Abs(got.Stats.RewardMean-want) > 1e-12 {
			t.Errorf("%s: %d usable with mean reward %v, want %d with %v: one rewarded, the others failed", estimator, got.Stats.Usable, got.Stats.RewardMean, usable, want)
		}
		if used := got.Calls[1][0]; !used.Used || used.Advantage >= 0 {
			t.Errorf("%s: the failed call is %+v, want it below the other", estimator, used)
		}
	}
	// Without a rule, what failed before its first call is compared with as 0.
	got, err := credit.Assign([]credit.Rollout{rollouts[0], rollouts[2]}, nil, rl.AdvantageConfig{WithoutStd: true, OnFailure: rl.ZeroFailed})
	if err != nil || got.Calls[0][0].Advantage != .5 {
		t.Errorf("Assign = %+v, %v, want an advantage of 0.5 over a failure without calls", got.Calls, err)
	}
	got, err = credit.Assign([]credit.Rollout{rollouts[0], rollouts[2]}, nil, rl.AdvantageConfig{Estimator: rl.ReinforcePP, OnFailure: rl.ZeroFailed})
	if err != nil || got.Stats.Usable != 1 {
		t.Errorf("Assign = %+v, %v, want reinforce++ to leave out a failure that sampled nothing", got.Stats, err)
	}
}

// A role with a dimension credits every reward by it, not the final one alone.
func TestRoleByDimensionOfSteps(t *testing.T) {
	both := func(primary, plan float64) []agl.Attribute {
		return []agl.Attribute{
			{Key: semconv.RewardName(0), Value: semconv.PrimaryReward},
			{Key: semconv.RewardValue(0), Value: primary},
			{Key: semconv.RewardName(1), Value: "plan"},
			{Key: semconv.RewardValue(1), Value: plan},
		}
	}
	var spans trace
	spans.call("planner", "s")
	spans.add(semconv.SpanAnnotation, both(100, 1)...)
	spans.call("planner", "s")
	spans.reward(7)
	spans.call("planner", "s")
	spans.add(semconv.SpanAnnotation, both(10, 2)...)
	rule, err := credit.Parse("role:planner@plan=step-rewards")
	if err != nil {
		t.Fatal(err)
	}
	var without trace
	without.call("planner", "s")
	without.reward(1)
	earned, err := rule.Credit([]credit.Rollout{read(t, "r", "g", spans), read(t, "q", "g", without)})
	if err != nil {
		t.Fatal(err)
	}
	for j, want := range []float64{3, 2, 2} {
		if got := earned[0][j].Reward; got == nil || *got != want {
			t.Errorf("call %d: earned %+v, want %v of plan", j, earned[0][j], want)
		}
	}
	if earned[1][0].Reward != nil {
		t.Errorf("a rollout without plan earned %v, want nothing", *earned[1][0].Reward)
	}
}
