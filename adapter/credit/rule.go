package credit

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
)

// ErrInvalid is returned for rules and rollouts that do not fit together.
var ErrInvalid = errors.New("invalid credit")

// Earned is what a rule gives one call.
type Earned struct {
	// Reward is what the call is worth, in the unit of the reward; nil leaves the
	// call out of training.
	Reward *float64
	// Bonus is added to the call's advantage as it is.
	Bonus float64
	// Role names the calls of a group that are compared with one another; empty
	// means all of them.
	Role string
}

// Rule gives credit to the calls of a group of rollouts of the same task. Every
// rollout of the group that takes part is there, each with a final reward. The
// result has an entry a rollout with an entry a call. Calls that are not usable
// must not be given a reward. Rules are pure.
type Rule interface {
	Credit(group []Rollout) ([][]Earned, error)
	// String is the rule as [Parse] reads it, where it can.
	String() string
}

// Func is a rule for one rollout at a time: what each call earned, nil to leave
// it out.
type Func struct {
	// Name is what the rule is called in tables and runs.
	Name string
	// Of returns one entry a call.
	Of func(r Rollout) ([]*float64, error)
}

// Credit implements [Rule].
func (f Func) Credit(group []Rollout) ([][]Earned, error) {
	out := make([][]Earned, len(group))
	for i, r := range group {
		rewards, err := f.Of(r)
		if err != nil {
			return nil, fmt.Errorf("%s: rollout %s: %w", f.Name, r.ID, err)
		}
		if len(rewards) != len(r.Calls) {
			return nil, fmt.Errorf("%w: %s: rollout %s: %d credits for %d calls", ErrInvalid, f.Name, r.ID, len(rewards), len(r.Calls))
		}
		out[i] = make([]Earned, len(rewards))
		for j, reward := range rewards {
			if reward != nil && r.Calls[j].Usable() {
				out[i][j].Reward = reward
			}
		}
	}
	return out, nil
}

func (f Func) String() string { return f.Name }

// Identical gives every call the final reward of its rollout, as trainers of
// both protocols do (the identical assignment of Agent Lightning,
// arXiv:2508.03680).
type Identical struct{}

// Credit implements [Rule].
func (Identical) Credit(group []Rollout) ([][]Earned, error) {
	return Discounted{Gamma: 1}.Credit(group)
}

func (Identical) String() string { return "identical" }

// LastCall gives the final reward to the last usable call; the others are left
// out.
type LastCall struct{}

// Credit implements [Rule].
func (LastCall) Credit(group []Rollout) ([][]Earned, error) {
	out := earnedFor(group)
	for i := range group {
		if calls := group[i].usable(); len(calls) > 0 {
			out[i][calls[len(calls)-1]].Reward = group[i].Final
		}
	}
	return out, nil
}

func (LastCall) String() string { return "last-call" }

// Discounted gives a call Gamma^k times the final reward, with k usable calls
// after it.
type Discounted struct{ Gamma float64 }

// Credit implements [Rule].
func (d Discounted) Credit(group []Rollout) ([][]Earned, error) {
	if err := checkGamma(d.Gamma); err != nil {
		return nil, err
	}
	out := earnedFor(group)
	for i := range group {
		r := &group[i]
		if r.Final == nil {
			continue
		}
		reward := *r.Final
		for _, j := range slices.Backward(r.usable()) {
			value := reward
			out[i][j].Reward = &value
			reward *= d.Gamma
		}
	}
	return out, nil
}

func (d Discounted) String() string { return "discounted:" + formatFloat(d.Gamma) }

// StepRewards gives a call the discounted sum of the rewards from it on: those
// between it and the next call in full, those of the next call times Gamma, and
// so on. A reward with links belongs to the calls that it names. The final
// reward counts like the others, where it stands.
type StepRewards struct{ Gamma float64 }

// Credit implements [Rule].
func (s StepRewards) Credit(group []Rollout) ([][]Earned, error) {
	if err := checkGamma(s.Gamma); err != nil {
		return nil, err
	}
	out := earnedFor(group)
	for i := range group {
		for j, g := range returns(&group[i], s.Gamma) {
			if group[i].Calls[j].Usable() {
				out[i][j].Reward = &g
			}
		}
	}
	return out, nil
}

func (s StepRewards) String() string { return "step-rewards:" + formatFloat(s.Gamma) }

// returns are the discounted sums of the step rewards from each call on.
func returns(r *Rollout, gamma float64) []float64 {
	out := r.Earned()
	for j := len(out) - 2; j >= 0; j-- {
		out[j] += gamma * out[j+1]
	}
	return out
}

// Linked gives rewards with links to exactly the calls that they name: a call
// earns the sum of them. Calls that no reward names get what Rest gives them;
// nil leaves them out.
type Linked struct{ Rest Rule }

// Credit implements [Rule].
func (l Linked) Credit(group []Rollout) ([][]Earned, error) {
	out := earnedFor(group)
	if l.Rest != nil {
		var err error
		if out, err = credit(l.Rest, group); err != nil {
			return nil, err
		}
	}
	for i := range group {
		named := map[int]bool{}
		for _, w := range group[i].Rewards {
			for _, j := range w.Calls {
				if !group[i].Calls[j].Usable() {
					continue
				}
				sum := w.Value
				if named[j] {
					sum += *out[i][j].Reward
				}
				named[j] = true
				out[i][j].Reward, out[i][j].Bonus = &sum, 0
			}
		}
	}
	return out, nil
}

func (l Linked) String() string {
	if l.Rest == nil {
		return "linked"
	}
	return "linked:" + l.Rest.String()
}

// AnchorStates gives every call the final reward, and beside it a second
// advantage among the calls of the group that saw the same state: the discounted
// sum of the rewards from the call on, less the mean over these calls, divided
// by their standard deviation, times Weight (the step-level advantage of GiGPO,
// arXiv:2505.10978). A state that only one call saw adds nothing.
type AnchorStates struct {
	Gamma  float64
	Weight float64 // ω of the paper
	// WithoutStd leaves out the division.
	WithoutStd bool
}

// Credit implements [Rule].
func (a AnchorStates) Credit(group []Rollout) ([][]Earned, error) {
	if err := checkGamma(a.Gamma); err != nil {
		return nil, err
	}
	if !finite(a.Weight) || a.Weight < 0 {
		return nil, fmt.Errorf("%w: weight %v: must be a number from 0", ErrInvalid, a.Weight)
	}
	out, err := Identical{}.Credit(group)
	if err != nil {
		return nil, err
	}
	type place struct{ rollout, call int }
	anchors := map[string][]place{}
	var order []string
	worth := make([][]float64, len(group))
	for i := range group {
		worth[i] = returns(&group[i], a.Gamma)
		for _, j := range group[i].usable() {
			state := group[i].Calls[j].State
			if state == "" {
				continue // the span tells nothing of what the call saw
			}
			if _, seen := anchors[state]; !seen {
				order = append(order, state)
			}
			anchors[state] = append(anchors[state], place{i, j})
		}
	}
	for _, state := range order {
		calls := anchors[state]
		if len(calls) < 2 {
			continue
		}
		mean, square := 0.0, 0.0
		for _, p := range calls {
			mean += worth[p.rollout][p.call] / float64(len(calls))
		}
		for _, p := range calls {
			d := worth[p.rollout][p.call] - mean
			square += d * d
		}
		divisor := 1.0
		if !a.WithoutStd {
			divisor = math.Sqrt(square/float64(len(calls)-1)) + epsilon
		}
		for _, p := range calls {
			out[p.rollout][p.call].Bonus = a.Weight * (worth[p.rollout][p.call] - mean) / divisor
		}
	}
	return out, nil
}

// epsilon keeps the division by a standard deviation finite.
const epsilon = 1e-6

func (a AnchorStates) String() string {
	text := "anchor-states:" + formatFloat(a.Gamma) + "," + formatFloat(a.Weight)
	if a.WithoutStd {
		text += ",nostd"
	}
	return text
}

// Role is how the calls of some agents are credited.
type Role struct {
	// Agent is searched in the name of the agent that made a call.
	Agent *regexp.Regexp
	// Dimension names the part of rewards that the role is for; empty means the
	// primary one. A rollout whose final reward lacks that part gives its calls
	// nothing; other rewards that lack it count as none.
	Dimension string
	// Rule credits the calls of the role as if there were no others; nil means
	// [Identical].
	Rule Rule
}

// ByRole credits the calls of each agent by themselves and compares them with
// calls of the same role only. A call belongs to the first role that matches;
// calls of no role are left out, so that one role alone trains one agent.
type ByRole []Role

// Credit implements [Rule].
func (b ByRole) Credit(group []Rollout) ([][]Earned, error) {
	out := earnedFor(group)
	for n, role := range b {
		part, where := b.part(n, group)
		rule := role.Rule
		if rule == nil {
			rule = Identical{}
		}
		earned, err := credit(rule, part)
		if err != nil {
			return nil, fmt.Errorf("role %q: %w", role.Agent, err)
		}
		for i := range earned {
			for k, e := range earned[i] {
				if part[i].Final == nil {
					e = Earned{} // whatever the rule made of other rewards
				}
				e.Role = role.Agent.String()
				out[i][where[i][k]] = e
			}
		}
	}
	return out, nil
}

// part returns the group as role n sees it, and where its calls are.
func (b ByRole) part(n int, group []Rollout) (part []Rollout, where [][]int) {
	part, where = make([]Rollout, len(group)), make([][]int, len(group))
	for i, r := range group {
		now := make(map[int]int) // places of the calls among those of the role
		part[i] = r
		part[i].Final = dimension(r.Final, r.Dimensions, b[n].Dimension)
		part[i].Calls, part[i].Rewards = nil, nil
		for j, c := range r.Calls {
			if b.of(c.Agent) == n {
				now[j] = len(part[i].Calls)
				part[i].Calls, where[i] = append(part[i].Calls, c), append(where[i], j)
			}
		}
		for _, w := range r.Rewards {
			value := dimension(&w.Value, w.Dimensions, b[n].Dimension)
			if value == nil {
				continue
			}
			w.Value, w.Calls = *value, translate(w.Calls, now)
			before := -1
			for j, at := range now {
				if j <= w.Before {
					before = max(before, at)
				}
			}
			w.Before = before
			part[i].Rewards = append(part[i].Rewards, w)
		}
	}
	return part, where
}

func translate(calls []int, now map[int]int) []int {
	var out []int
	for _, j := range calls {
		if at, ok := now[j]; ok {
			out = append(out, at)
		}
	}
	return out
}

// of returns the role of an agent, -1 for none.
func (b ByRole) of(agent string) int {
	for n, role := range b {
		if role.Agent.MatchString(agent) {
			return n
		}
	}
	return -1
}

func (b ByRole) String() string {
	parts := make([]string, len(b))
	for i, role := range b {
		parts[i] = role.Agent.String()
		if role.Dimension != "" {
			parts[i] += "@" + role.Dimension
		}
		if role.Rule != nil {
			parts[i] += "=" + role.Rule.String()
		}
	}
	return "role:" + strings.Join(parts, ";")
}

func earnedFor(group []Rollout) [][]Earned {
	out := make([][]Earned, len(group))
	for i := range group {
		out[i] = make([]Earned, len(group[i].Calls))
	}
	return out
}

// credit asks a rule and checks what it says.
func credit(rule Rule, group []Rollout) ([][]Earned, error) {
	out, err := rule.Credit(group)
	if err != nil {
		return nil, err
	}
	if len(out) != len(group) {
		return nil, fmt.Errorf("%w: rule %s: %d results for %d rollouts", ErrInvalid, rule, len(out), len(group))
	}
	for i := range out {
		if len(out[i]) != len(group[i].Calls) {
			return nil, fmt.Errorf("%w: rule %s: rollout %s: %d results for %d calls", ErrInvalid, rule, group[i].ID, len(out[i]), len(group[i].Calls))
		}
		for j, e := range out[i] {
			if e.Reward != nil && !finite(*e.Reward) || !finite(e.Bonus) {
				return nil, fmt.Errorf("%w: rule %s: rollout %s, call %d: a reward or bonus that is not finite", ErrInvalid, rule, group[i].ID, j)
			}
		}
	}
	return out, nil
}

func checkGamma(gamma float64) error {
	if !(gamma >= 0 && gamma <= 1) {
		return fmt.Errorf("%w: gamma %v: must be between 0 and 1", ErrInvalid, gamma)
	}
	return nil
}
