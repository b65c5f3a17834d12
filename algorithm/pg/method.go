package pg

import (
	"errors"
	"fmt"

	agl "agentlightning"
	"agentlightning/adapter/credit"
	"agentlightning/algorithm"
	"agentlightning/learner"
	"agentlightning/rl"
)

// Method is how rewards become an update. [Preset] has the published ones; every
// field can be changed from there. What a combination would not look at is an
// error of [Config.Validate].
type Method struct {
	// Credit says which call earned what; nil means [credit.Identical].
	Credit credit.Rule
	// Advantages say what rewards are compared with.
	Advantages rl.AdvantageConfig
	// Critic, when it is there, takes the place of the estimator: a learnt value
	// is the baseline of every token.
	Critic *Critic
	// Correction makes up for the difference between the policy that sampled and
	// the weights before the update. The learner must be a [learner.Scorer].
	Correction rl.Correction
	// RewardKL is taken off the reward of a rollout for the distance of what it
	// sampled from the reference policy.
	RewardKL rl.KL
	// Loss is what an update minimises.
	Loss rl.Loss
	// Overlong is taken off the reward of rollouts that sampled too much.
	Overlong Overlong
	// Refill is how often a step asks for more rollouts of groups that failed
	// ones have left short; 0 means not at all.
	Refill int
	// Resample is how often a step draws new tasks in place of groups whose
	// rewards are all equal or that are too small (dynamic sampling, DAPO,
	// arXiv:2503.14476, section 3.2); 0 means not at all.
	Resample int
}

// Critic is a learnt value function; the learner must be a [learner.Critic].
// Advantages are those of [rl.GAE], whitened over the tokens of the batch.
type Critic struct {
	LearningRate float64 // must be > 0
	Gamma        float64 // must be in (0, 1]
	Lambda       float64 // must be in [0, 1]
	// Clip bounds how far a value moves in an update; see [rl.ValueLoss]; 0 means
	// no bound.
	Clip float64
}

// Overlong is DAPO's penalty for rollouts that sampled close to Limit tokens or
// more ([rl.SoftOverlong]). The zero value is none.
type Overlong struct {
	Limit int // tokens of a rollout at which the penalty is 1
	Cache int // tokens below Limit at which it begins
	// Weight multiplies the penalty; 0 means 1.
	Weight float64
}

func (o Overlong) penalty(tokens int) float64 {
	if o.Limit == 0 {
		return 0
	}
	weight := o.Weight
	if weight == 0 {
		weight = 1
	}
	return weight * rl.SoftOverlong(tokens, o.Limit, o.Cache)
}

// validate returns an error naming the field that is out of range, or that the
// rest of the configuration would not look at.
func (m *Method) validate(c *Config) error {
	for _, part := range []struct {
		name string
		err  error
	}{
		{"Advantages", m.Advantages.Validate()},
		{"Correction", m.Correction.Validate()},
		{"RewardKL", m.RewardKL.Validate()},
		{"Loss", m.Loss.Validate()},
	} {
		if part.err != nil {
			return fmt.Errorf("%s: %w", part.name, part.err)
		}
	}
	switch {
	case m.Correction.Enabled() && !implements[learner.Scorer](c.Learner):
		return fmt.Errorf("Correction: the learner (%T) cannot score tokens with its weights before the update", c.Learner)
	case (m.Loss.KL.Coefficient != 0 || m.RewardKL.Coefficient != 0) && c.Reference == nil:
		return errors.New("Reference: must be set for a KL term, to the policy to stay with")
	case m.Loss.KL.Coefficient == 0 && m.RewardKL.Coefficient == 0 && c.Reference != nil:
		return errors.New("Reference: neither Loss.KL nor RewardKL looks at it")
	case m.Overlong != (Overlong{}) && !(m.Overlong.Limit > 0 && m.Overlong.Cache > 0 && m.Overlong.Cache <= m.Overlong.Limit && m.Overlong.Weight >= 0):
		return fmt.Errorf("Overlong: %+v: Limit must be above 0, Cache between 1 and Limit, Weight not negative", m.Overlong)
	case m.Refill < 0 || m.Resample < 0:
		return fmt.Errorf("Refill and Resample: %d and %d: must not be negative", m.Refill, m.Resample)
	case (m.Refill > 0 || m.Resample > 0) && m.Advantages.OnFailure == rl.ZeroFailed:
		return errors.New("Refill and Resample: with Advantages.OnFailure zero no rollout is missing")
	case m.Resample > 0 && m.Critic == nil && !m.Advantages.Estimator.Grouped():
		return fmt.Errorf("Resample: %s drops no group for its equal rewards", m.Advantages.Estimator)
	case m.Resample > 0 && m.Advantages.KeepConstant:
		return errors.New("Resample: with Advantages.KeepConstant no group is dropped for its equal rewards")
	}
	return m.validateCritic(c)
}

func (m *Method) validateCritic(c *Config) error {
	k := m.Critic
	if k == nil {
		return nil
	}
	step := false
	switch m.Credit.(type) {
	case nil, credit.Identical:
	case credit.StepRewards:
		step = true
	default:
		return fmt.Errorf("Credit: %s: a critic learns from rewards where they were given, so it takes identical or step-rewards", m.Credit)
	}
	switch {
	case !implements[learner.Critic](c.Learner):
		return fmt.Errorf("Critic: the learner (%T) has none", c.Learner)
	case !(k.LearningRate > 0):
		return fmt.Errorf("Critic.LearningRate: %v: must be greater than 0", k.LearningRate)
	case !(k.Gamma > 0 && k.Gamma <= 1):
		return fmt.Errorf("Critic.Gamma: %v: must be above 0 and at most 1", k.Gamma)
	case !(k.Lambda >= 0 && k.Lambda <= 1):
		return fmt.Errorf("Critic.Lambda: %v: must be between 0 and 1", k.Lambda)
	case !(k.Clip >= 0):
		return fmt.Errorf("Critic.Clip: %v: must not be negative", k.Clip)
	case step && m.Credit != (credit.StepRewards{Gamma: k.Gamma}):
		return fmt.Errorf("Credit: %s: its discount must be Critic.Gamma, %v", m.Credit, k.Gamma)
	case m.Resample > 0:
		return errors.New("Resample: a critic learns from groups of equal rewards too")
	}
	a := m.Advantages
	if a.Estimator != "" || a.WithoutStd || a.Epsilon != 0 || a.KeepConstant || a.MinMembers != 0 || a.ComponentWeights != nil {
		return errors.New("Advantages: with a Critic only OnFailure is looked at")
	}
	return nil
}

// implements reports whether a value has the methods of an optional power.
func implements[T any](v any) bool {
	_, ok := v.(T)
	return ok
}

// grouped reports whether rollouts of a task are compared with one another.
func (m *Method) grouped() bool {
	return m.Critic == nil && m.Advantages.Estimator.Grouped() && m.Advantages.MinMembers != 1
}

// comparison is how rewards are compared. With a critic nothing is: groups are
// kept whole, and the result only tells who takes part.
func (m *Method) comparison() rl.AdvantageConfig {
	if m.Critic != nil {
		return rl.AdvantageConfig{Estimator: rl.GRPO, WithoutStd: true, KeepConstant: true, MinMembers: 1, OnFailure: m.Advantages.OnFailure}
	}
	return m.Advantages
}

// reward is what a rollout counts with, also one that failed when the method
// keeps those; nil when it has none.
func (m *Method) reward(o algorithm.Outcome) *float64 {
	if o.Failure == "" || m.Advantages.OnFailure != rl.KeepFailed {
		return o.Reward
	}
	reward, err := agl.FinalReward(o.Spans)
	if err != nil {
		return nil // it is said to be unreadable where the spans are read
	}
	return reward
}

// zeroFailed reports whether what failed counts as a reward of 0.
func (m *Method) zeroFailed() bool { return m.Advantages.OnFailure == rl.ZeroFailed }

func (m *Method) criticOptions() learner.CriticOptions {
	if m.Critic == nil {
		return learner.CriticOptions{}
	}
	return learner.CriticOptions{LearningRate: m.Critic.LearningRate, Clip: m.Critic.Clip}
}

// methodSummary is what a run keeps of its method.
type methodSummary struct {
	Credit     string             `json:"credit"`
	Advantages rl.AdvantageConfig `json:"advantages"`
	Critic     *Critic            `json:"critic,omitempty"`
	Correction rl.Correction      `json:"correction,omitzero"`
	RewardKL   rl.KL              `json:"reward_kl,omitzero"`
	Loss       rl.Loss            `json:"loss"`
	Overlong   Overlong           `json:"overlong,omitzero"`
	Refill     int                `json:"refill,omitempty"`
	Resample   int                `json:"resample,omitempty"`
}

func (m *Method) summary() methodSummary {
	s := methodSummary{
		credit.Identical{}.String(), m.Advantages, m.Critic, m.Correction, m.RewardKL, m.Loss.Resolved(), m.Overlong, m.Refill, m.Resample,
	}
	if m.Credit != nil {
		s.Credit = m.Credit.String()
	}
	if s.Advantages.Estimator == "" && m.Critic == nil {
		s.Advantages.Estimator = rl.GRPO
	}
	return s
}
