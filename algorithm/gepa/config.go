package gepa

import (
	"errors"
	"fmt"
	"time"

	agl "agentlightning"
	"agentlightning/algorithm/prompt"
	"agentlightning/semconv"
)

// Failures is what a rollout means that failed or has no reward.
type Failures string

const (
	// DropFailures leaves it out: candidates are compared on tasks that both have
	// a score for, and one that fails more often than its parent is not accepted.
	DropFailures Failures = "drop"
	// ZeroFailures makes it a reward of 0.
	ZeroFailures Failures = "zero"
)

// Config says how to search.
type Config struct {
	// Completer rewrites prompts; required.
	Completer prompt.Completer
	// Model is what requests to it name.
	Model string
	// Temperature is that of the requests; nil means 1.
	Temperature *float64

	// Components are the names of the prompt templates to improve; nil means all
	// among the initial resources.
	Components []string
	// Objectives are dimensions of the reward, each of which has Pareto fronts of
	// its own beside those of the primary one.
	Objectives []string
	// Minibatch is how many training tasks a rewrite is written from and tried
	// on; 0 means 3.
	Minibatch int
	// Repeats is how many rollouts, of different seeds, score a candidate on a
	// task; 0 means 1.
	Repeats int
	// MaxMerges is how many merges of two lineages are tried; 0 means 5, and a
	// negative number none.
	MaxMerges int
	// Perfect is the reward that cannot be surpassed: a minibatch on which a
	// prompt has it throughout is not worth a rewrite. Nil means unknown.
	Perfect *float64

	// MaxEvaluations is the budget of rollouts; required. See [Config.Plan].
	MaxEvaluations int
	// MaxTokens and MaxCost end the search once the calls of Completer have taken
	// so much; 0 means no cap. The call that gets there is still used.
	MaxTokens int64
	MaxCost   float64
	// MaxFailures is how many iterations may fail one after another, for want of
	// an answer or of a usable one, before the run does; 0 means 5.
	MaxFailures int

	// OnFailure is what failed rollouts mean; empty means [DropFailures].
	OnFailure Failures
	// Rollout holds the limits and the retry rule of every rollout; nil means the
	// store's defaults.
	Rollout *agl.RolloutConfig
	// Stall is how long to wait without any rollout finishing; 0 means 5 minutes.
	Stall time.Duration
	// Seed is where every random choice comes from.
	Seed int64
	// OnIteration is called after each iteration; nil means not at all.
	OnIteration func(Iteration)
}

func (c Config) withDefaults() Config {
	for _, d := range [...]struct {
		field *int
		value int
	}{{&c.Minibatch, 3}, {&c.Repeats, 1}, {&c.MaxMerges, 5}, {&c.MaxFailures, 5}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.Temperature == nil {
		one := 1.0
		c.Temperature = &one
	}
	if c.OnFailure == "" {
		c.OnFailure = DropFailures
	}
	return c
}

// Validate returns an error naming the field that is out of range.
func (c Config) Validate() error {
	switch {
	case c.Completer == nil:
		return errors.New("gepa: Completer: must be set")
	case c.Temperature != nil && !(*c.Temperature >= 0 && *c.Temperature <= 2):
		return fmt.Errorf("gepa: Temperature: %v: must be from 0 to 2", *c.Temperature)
	case c.Minibatch < 0:
		return fmt.Errorf("gepa: Minibatch: %d: must not be negative", c.Minibatch)
	case c.Repeats < 0:
		return fmt.Errorf("gepa: Repeats: %d: must not be negative", c.Repeats)
	case c.MaxEvaluations < 1:
		return fmt.Errorf("gepa: MaxEvaluations: %d: must be at least 1", c.MaxEvaluations)
	case c.MaxTokens < 0:
		return fmt.Errorf("gepa: MaxTokens: %d: must not be negative", c.MaxTokens)
	case !(c.MaxCost >= 0):
		return fmt.Errorf("gepa: MaxCost: %v: must not be negative", c.MaxCost)
	case c.MaxFailures < 0:
		return fmt.Errorf("gepa: MaxFailures: %d: must not be negative", c.MaxFailures)
	case c.OnFailure != "" && c.OnFailure != DropFailures && c.OnFailure != ZeroFailures:
		return fmt.Errorf("gepa: OnFailure: %q: must be %q or %q", c.OnFailure, DropFailures, ZeroFailures)
	}
	seen := map[string]bool{semconv.PrimaryReward: true}
	for i, o := range c.Objectives {
		if o == "" || seen[o] {
			return fmt.Errorf("gepa: Objectives[%d]: %q: must be a dimension beside %q, named once", i, o, semconv.PrimaryReward)
		}
		seen[o] = true
	}
	return nil
}

// Plan is the arithmetic of a budget, in rollouts.
type Plan struct {
	Budget   int
	Baseline int // to score the initial prompts on the validation tasks
	Proposal int // the most that a rewrite takes that is accepted
	Rejected int // the most that one takes that is not
	Floor    int // the least useful budget: |val| + 3·(minibatch + |val|)
	Low      int // recommended: 15 to 30 times the validation tasks
	High     int
}

// String says it in a line.
func (p Plan) String() string {
	return fmt.Sprintf("budget %d rollouts: %d for the initial prompts, then at most %d for a rewrite that is accepted and %d for one that is not: at least %d accepted, were all accepted; least useful budget %d, recommended %d to %d",
		p.Budget, p.Baseline, p.Proposal, p.Rejected, max(0, p.Budget-p.Baseline)/p.Proposal, p.Floor, p.Low, p.High)
}

// Plan returns what the budget is good for with so many validation tasks. It is
// logged before a run starts, and a budget below the floor is refused.
func (c Config) Plan(val int) (Plan, error) {
	c = c.withDefaults()
	m, v := c.Minibatch*c.Repeats, val*c.Repeats
	p := Plan{
		Budget: c.MaxEvaluations, Baseline: v, Proposal: 2*m + v, Rejected: 2 * m,
		Floor: max(v+3*(m+v), 2*v+2*m), Low: 15 * v, High: 30 * v,
	}
	if p.Budget < p.Floor {
		return p, fmt.Errorf("gepa: MaxEvaluations: %d: must be at least %d for %d validation tasks and minibatches of %d (recommended %d to %d)",
			p.Budget, p.Floor, val, c.Minibatch, p.Low, p.High)
	}
	return p, nil
}

// summary is what the run keeps of its configuration.
type summary struct {
	Model          string   `json:"model"`
	Temperature    float64  `json:"temperature"`
	Components     []string `json:"components"`
	Objectives     []string `json:"objectives,omitempty"`
	Minibatch      int      `json:"minibatch"`
	Repeats        int      `json:"repeats"`
	MaxMerges      int      `json:"max_merges"`
	MaxEvaluations int      `json:"max_evaluations"`
	MaxTokens      int64    `json:"max_tokens,omitempty"`
	MaxCost        float64  `json:"max_cost,omitempty"`
	OnFailure      Failures `json:"on_failure"`
}

func (c Config) summary() summary {
	return summary{
		c.Model, *c.Temperature, c.Components, c.Objectives, c.Minibatch, c.Repeats, c.MaxMerges,
		c.MaxEvaluations, c.MaxTokens, c.MaxCost, c.OnFailure,
	}
}
