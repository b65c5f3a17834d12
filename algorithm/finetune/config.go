package finetune

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	agl "agentlightning"
	"agentlightning/dataset"
	"agentlightning/learner"
)

// Config says how to train.
type Config struct {
	// Tuner makes the models; required.
	Tuner learner.Tuner
	// Base is how the proxy calls the model that the first iteration runs with;
	// required. Its Name is what agents ask for, in all iterations; empty means
	// policy.
	Base agl.Model
	// Model is what the first job tunes, by the service's name; empty means what
	// the tuner was configured with.
	Model string
	// Resource is the name of the model among the published resources; empty means
	// main_llm.
	Resource string
	// Proxy is the address of the model proxy as agents reach it, with /v1; empty
	// leaves it to a server that the algorithm reaches over HTTP.
	Proxy string

	// Iterations is the number of models to make; 0 means 3.
	Iterations int
	// Tasks is how many tasks an iteration runs; 0 means all of them.
	Tasks int
	// Rollouts is how many rollouts each task gets; 0 means 1.
	Rollouts int
	// Selection chooses what is trained on; the zero value takes all that were
	// rewarded.
	Selection dataset.Selection
	// Retries is how many times an iteration begins a new job after the service
	// gave one up.
	Retries int

	// Rollout holds the limits and the retry rule of every rollout; nil means the
	// store's defaults.
	Rollout *agl.RolloutConfig
	// Stall is how long to wait without any rollout finishing; 0 means 5 minutes.
	Stall time.Duration
	// Seed is where every random choice comes from.
	Seed int64

	// OnStep is called after each iteration, and after the validation before the
	// first one (Number 0); nil means not at all.
	OnStep func(Step)
	// OnTuning is called with what the service says of a job.
	OnTuning func(step int, p learner.TuningProgress)
}

// Step is what one iteration did.
type Step struct {
	Number, Of int
	// Model is the service's name of the new model; empty before the first
	// iteration, when Config.Model is.
	Model string
	// Reward is the mean reward of the rollouts that ran with the model before;
	// nil before the first iteration.
	Reward *float64
	// Accuracy is the mean reward of the new model on the validation tasks; nil
	// when there are none.
	Accuracy *float64
	Rollouts int // asked for, validation included
	Failed   int // of these, failed or not rewarded
	Examples int // conversations that were trained on
	// TrainedTokens are those that the service bills, Cost what they cost when the
	// tuner knows a price.
	TrainedTokens int64
	Cost          float64
	Metrics       map[string]float64
}

func (c Config) withDefaults() Config {
	c.Base.Name = cmp.Or(c.Base.Name, "policy")
	c.Resource = cmp.Or(c.Resource, "main_llm")
	c.Iterations = cmp.Or(c.Iterations, 3)
	c.Rollouts = cmp.Or(c.Rollouts, 1)
	return c
}

// Validate returns an error naming the field that is out of range.
func (c Config) Validate() error {
	c = c.withDefaults()
	switch {
	case c.Tuner == nil:
		return errors.New("finetune: Tuner: must be set")
	case c.Iterations < 0:
		return fmt.Errorf("finetune: Iterations: %d: must not be negative", c.Iterations)
	case c.Tasks < 0:
		return fmt.Errorf("finetune: Tasks: %d: must not be negative", c.Tasks)
	case c.Rollouts < 0:
		return fmt.Errorf("finetune: Rollouts: %d: must not be negative", c.Rollouts)
	case c.Retries < 0:
		return fmt.Errorf("finetune: Retries: %d: must not be negative", c.Retries)
	case c.Selection.PerGroup && c.Rollouts == 1:
		return errors.New("finetune: Selection.PerGroup: with one rollout a task there is nothing to choose from")
	}
	if err := c.Base.Validate(); err != nil {
		return fmt.Errorf("finetune: Base: %w", err)
	}
	if err := c.Selection.Validate(); err != nil {
		return fmt.Errorf("finetune: Selection: %w", err)
	}
	return nil
}

// summary is what the run keeps of its configuration.
type summary struct {
	Model      string   `json:"model"`
	Iterations int      `json:"iterations"`
	Tasks      int      `json:"tasks"`
	Rollouts   int      `json:"rollouts"`
	MinReward  *float64 `json:"min_reward,omitempty"`
	Top        float64  `json:"top"`
	PerGroup   bool     `json:"per_group"`
}

func (c Config) summary() summary {
	return summary{c.Model, c.Iterations, c.Tasks, c.Rollouts, c.Selection.Min, c.Selection.Top, c.Selection.PerGroup}
}
