package pg

import (
	"errors"
	"fmt"
	"time"

	agl "agentlightning"
	"agentlightning/learner"
)

// Config says how to train.
type Config struct {
	// Learner is the policy; required. What it updates must be what the
	// resources of the rollouts lead to.
	Learner learner.Learner
	// Method is how rewards become an update; the zero value is GRPO's estimator
	// with PPO's clipped loss and the mean over tokens. See [Preset].
	Method Method
	// Reference is the policy that KL terms hold on to, such as what
	// [agentlightning/learner/native.Model.Freeze] returned before training.
	Reference learner.Scorer

	// Steps is the number of updates; must be at least 1.
	Steps int
	// Tasks is how many tasks a step draws; 0 means 16.
	Tasks int
	// GroupSize is how many rollouts each task gets; 0 means 8, at least 2.
	GroupSize int

	// LearningRate is the step size over the run.
	LearningRate learner.Schedule
	// Epochs is the number of passes over the rows of a step; 0 means 1.
	Epochs int
	// Minibatch is the number of rows of one optimiser step; 0 means all.
	Minibatch int
	// WholeMinibatches leaves out rows, those of groups with equal rewards first,
	// so that every optimiser step has Minibatch of them.
	WholeMinibatches bool
	// MaxGradNorm bounds the gradient; 0 means the learner's default.
	MaxGradNorm float64

	// Rollout holds the limits and the retry rule of every rollout.
	Rollout agl.RolloutConfig
	// Resources are published when the run begins; empty leaves what the store
	// has as the latest.
	Resources agl.NamedResources
	// Stall is how long to wait without any rollout finishing; 0 means 5 minutes.
	Stall time.Duration

	// ValidateEvery is the number of steps between validations on the
	// validation tasks; the state before the first step and after the last one
	// are validated, too. 0 means only these two.
	ValidateEvery int
	// Checkpoints is the folder for checkpoints, one folder a run below it;
	// empty writes none, and the run cannot be resumed.
	Checkpoints string
	// Seed is where every random choice comes from.
	Seed int64
	// ShuffleRewards permutes the rewards of each step among its rollouts: a
	// control that must not learn anything.
	ShuffleRewards bool

	// OnStep is called after each step and after the validation before the
	// first one (Number 0); nil means not at all.
	OnStep func(Step)
	// OnProgress is called while rollouts of a step are waited for.
	OnProgress func(step, finished, of int)
}

// Step is what one step did.
type Step struct {
	Number, Of int
	// Reward is the mean reward of the rollouts trained on; nil before the
	// first step and when none was rewarded.
	Reward *float64
	// Accuracy is the mean reward on the validation tasks; nil when they were
	// not run.
	Accuracy *float64
	Rollouts int // asked for, validation included
	Failed   int // of these, failed or not rewarded
	// LastFailure is why the last of them failed; empty when none did.
	LastFailure string
	Tokens      int // sampled, as far as they were captured
	Metrics     map[string]float64
	Elapsed     time.Duration
}

func (c Config) withDefaults() Config {
	if c.Tasks == 0 {
		c.Tasks = 16
	}
	if c.GroupSize == 0 {
		c.GroupSize = 8
	}
	return c
}

// Validate returns an error naming the field that is out of range.
func (c Config) Validate() error {
	switch {
	case c.Learner == nil:
		return errors.New("pg: Learner: must be set")
	case c.Steps < 1:
		return fmt.Errorf("pg: Steps: %d: must be at least 1", c.Steps)
	case c.Tasks < 0:
		return fmt.Errorf("pg: Tasks: %d: must not be negative", c.Tasks)
	case c.GroupSize < 0 || c.GroupSize == 1 && c.Method.grouped():
		return fmt.Errorf("pg: GroupSize: %d: must be at least 2, since a group is compared within itself", c.GroupSize)
	case c.Epochs < 0:
		return fmt.Errorf("pg: Epochs: %d: must not be negative", c.Epochs)
	case c.Minibatch < 0:
		return fmt.Errorf("pg: Minibatch: %d: must not be negative", c.Minibatch)
	case !(c.MaxGradNorm >= 0):
		return fmt.Errorf("pg: MaxGradNorm: %v: must not be negative", c.MaxGradNorm)
	case c.WholeMinibatches && c.Minibatch < 1:
		return fmt.Errorf("pg: WholeMinibatches: Minibatch is %d: must be at least 1", c.Minibatch)
	case c.ValidateEvery < 0:
		return fmt.Errorf("pg: ValidateEvery: %d: must not be negative", c.ValidateEvery)
	}
	if err := c.LearningRate.Validate(); err != nil {
		return fmt.Errorf("pg: LearningRate.%w", err)
	}
	if err := c.Method.validate(&c); err != nil {
		return fmt.Errorf("pg: Method.%w", err)
	}
	return nil
}

// summary is what the run keeps of its configuration.
type summary struct {
	Steps            int              `json:"steps"`
	Tasks            int              `json:"tasks"`
	GroupSize        int              `json:"group_size"`
	LearningRate     learner.Schedule `json:"learning_rate"`
	Epochs           int              `json:"epochs"`
	Minibatch        int              `json:"minibatch"`
	WholeMinibatches bool             `json:"whole_minibatches"`
	Method           methodSummary    `json:"method"`
	ValidateEvery    int              `json:"validate_every"`
	ShuffleRewards   bool             `json:"shuffle_rewards"`
}

func (c Config) summary() summary {
	return summary{
		c.Steps, c.Tasks, c.GroupSize, c.LearningRate, c.Epochs, c.Minibatch, c.WholeMinibatches,
		c.Method.summary(), c.ValidateEvery, c.ShuffleRewards,
	}
}
