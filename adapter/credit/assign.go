package credit

import (
	"fmt"
	"slices"

	"agentlightning/rl"
)

// Credited is what one call got.
type Credited struct {
	Earned
	// Used tells that the call is trained on, with this Advantage.
	Used      bool
	Advantage float64
}

// Assignment is what became of a batch of rollouts.
type Assignment struct {
	// Calls has an entry a rollout with an entry a call.
	Calls [][]Credited
	// Stats count rollouts; with [ByRole] a rollout counts once for each role that
	// it has calls of.
	Stats rl.AdvantageStats
}

// Assign gives every call of a batch its credit and its advantage. A nil rule is
// [Identical]. What failed rollouts are worth is up to c.OnFailure; a rollout
// that takes no part earns nothing and is seen by no rule. Rollouts are compared
// within their group (and role) as c says, each with the mean of what its calls
// earned; where they earned differently, the variance within counts towards the
// deviation of the group.
func Assign(rollouts []Rollout, rule Rule, c rl.AdvantageConfig) (Assignment, error) {
	if rule == nil {
		rule = Identical{}
	}
	a := assigner{rollouts: rollouts, rule: rule, config: c, earned: earnedFor(rollouts)}
	if err := c.Validate(); err != nil {
		return Assignment{}, err
	}
	if err := a.credit(); err != nil {
		return Assignment{}, err
	}
	return a.compare()
}

type assigner struct {
	rollouts []Rollout
	rule     Rule
	config   rl.AdvantageConfig
	earned   [][]Earned

	members []rl.Member
	owners  []owner // of each member
}

// owner is the part of a rollout that is one member of a group.
type owner struct {
	rollout int
	role    string
}

// credit asks the rule, group by group.
func (a *assigner) credit() error {
	groups := map[string][]int{}
	var order []string
	for i := range a.rollouts {
		if !a.takesPart(&a.rollouts[i]) {
			continue
		}
		g := a.rollouts[i].Group
		if _, seen := groups[g]; !seen {
			order = append(order, g)
		}
		groups[g] = append(groups[g], i)
	}
	for _, g := range order {
		group := make([]Rollout, len(groups[g]))
		for k, i := range groups[g] {
			group[k] = a.effective(&a.rollouts[i])
		}
		earned, err := credit(a.rule, group)
		if err != nil {
			return fmt.Errorf("group %q: %w", g, err)
		}
		for k, i := range groups[g] {
			a.earned[i] = earned[k]
		}
	}
	return nil
}

// takesPart reports whether a rollout is compared with others.
func (a *assigner) takesPart(r *Rollout) bool {
	for _, w := range r.Rewards {
		if !finite(w.Value) {
			return false
		}
	}
	if r.Rejected || r.Final != nil && !finite(*r.Final) {
		return false
	}
	switch a.config.OnFailure {
	case rl.ZeroFailed:
		return true
	case rl.KeepFailed:
		return r.Final != nil
	default:
		return r.Final != nil && !r.Failed
	}
}

// effective is a rollout at what it is worth.
func (a *assigner) effective(r *Rollout) Rollout {
	out := *r
	if a.config.OnFailure == rl.ZeroFailed && (r.Failed || r.Final == nil) {
		out.Final, out.Rewards = new(float64), nil
	}
	return out
}

// compare makes members of the rollouts and advantages of what they are worth.
func (a *assigner) compare() (Assignment, error) {
	bonus := false
	for i := range a.rollouts {
		a.addMembers(i)
		for _, e := range a.earned[i] {
			bonus = bonus || e.Bonus != 0
		}
	}
	c := a.config
	if c.OnFailure == rl.ZeroFailed && c.Estimator != rl.GDPO {
		// What failed has earned 0 by now. What the rule gave nothing is no failure,
		// and what sampled nothing has no weight among tokens.
		c.OnFailure = rl.KeepFailed
	}
	bonus = bonus && c.Estimator.Grouped() // others drop no group
	if bonus {                             // a group of equal rewards may still teach by its states
		c.KeepConstant = true
	}
	advantages, stats, err := rl.Advantages(a.members, c)
	if err != nil {
		return Assignment{}, err
	}
	out := Assignment{Calls: make([][]Credited, len(a.rollouts)), Stats: stats}
	for i := range a.rollouts {
		out.Calls[i] = make([]Credited, len(a.earned[i]))
		for j, e := range a.earned[i] {
			out.Calls[i][j].Earned = e
		}
	}
	for n, o := range a.owners {
		if err := a.judge(out.Calls[o.rollout], o, advantages[n]); err != nil {
			return Assignment{}, err
		}
	}
	if bonus && !a.config.KeepConstant {
		a.dropSilent(out.Calls)
	}
	return out, nil
}

// addMembers adds a member for each role of a rollout, or one for a rollout
// without any.
func (a *assigner) addMembers(i int) {
	r := &a.rollouts[i]
	var roles []string
	for j, e := range a.earned[i] {
		if r.Calls[j].Usable() && !slices.Contains(roles, e.Role) && (e.Reward != nil || e.Role == "") {
			roles = append(roles, e.Role)
		}
	}
	if slices.Contains(roles, "") && len(roles) > 1 {
		roles = slices.DeleteFunc(roles, func(role string) bool { return role == "" })
	}
	if len(roles) == 0 {
		roles = []string{""}
	}
	for _, role := range roles {
		a.members = append(a.members, a.member(r, a.earned[i], role))
		a.owners = append(a.owners, owner{i, role})
	}
}

func (a *assigner) member(r *Rollout, earned []Earned, role string) rl.Member {
	m := rl.Member{Group: r.Group, Failed: r.Failed, Rejected: r.Rejected, Baseline: r.Baseline}
	if role != "" {
		m.Group += "\x00" + role
	}
	for _, d := range r.Dimensions {
		m.Components = append(m.Components, d.Value)
	}
	var rewards []float64
	for j, e := range earned {
		if e.Role == role && e.Reward != nil {
			rewards = append(rewards, *e.Reward)
			m.Tokens += len(r.Calls[j].ResponseIDs)
		}
	}
	switch {
	case len(rewards) > 0:
		mean, variance := spread(rewards)
		m.Reward, m.Variance = &mean, variance
	case !a.takesPart(r):
		m.Reward = r.Final // counted as what it is: failed, unrewarded or not finite
	case len(r.usable()) == 0 && !a.config.Estimator.CountsTokens():
		m.Reward = a.effective(r).Final // nothing to train on, but a result to compare with
	}
	for _, w := range r.Rewards {
		if !finite(w.Value) {
			m.Reward = &w.Value
		}
	}
	return m
}

// spread returns mean and variance (divisor n) of what the calls of a rollout
// earned; of equal values exactly that value and 0.
func spread(values []float64) (mean, variance float64) {
	equal := true
	for _, v := range values {
		mean += v / float64(len(values))
		equal = equal && v == values[0]
	}
	if equal {
		return values[0], 0
	}
	for _, v := range values {
		variance += (v - mean) * (v - mean) / float64(len(values))
	}
	return mean, variance
}

// judge gives the calls of a member their advantages.
func (a *assigner) judge(calls []Credited, o owner, advantage rl.Advantage) error {
	if !advantage.Used {
		return nil
	}
	for j := range calls {
		c := &calls[j]
		if c.Role != o.role || c.Reward == nil {
			continue
		}
		c.Used = true
		switch {
		case a.config.Estimator != rl.GDPO:
			c.Advantage = advantage.Of(*c.Reward) + c.Bonus
		case *c.Reward == advantage.Reward:
			c.Advantage = advantage.Value + c.Bonus
		default:
			return fmt.Errorf("%w: rule %s with gdpo: rollout %s, call %d earned %v of %v: gdpo compares the parts of whole rewards; use identical or last-call",
				ErrInvalid, a.rule, a.rollouts[o.rollout].ID, j, *c.Reward, advantage.Reward)
		}
	}
	return nil
}

// dropSilent leaves out the groups whose calls all have the advantage 0.
func (a *assigner) dropSilent(calls [][]Credited) {
	speaks := map[string]bool{}
	for i := range a.rollouts {
		for _, c := range calls[i] {
			if c.Used && !rl.Equal(c.Advantage, 0) {
				speaks[a.rollouts[i].Group] = true
			}
		}
	}
	for i := range a.rollouts {
		for j := range calls[i] {
			if !speaks[a.rollouts[i].Group] {
				calls[i][j].Used, calls[i][j].Advantage = false, 0
			}
		}
	}
}
