package pg

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/learner"
	"agentlightning/rl"
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

	// Steps is the number of updates; must be at least 1, with Follow also 0 for
	// no end.
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
	// Resources are published when the run begins or goes on, with the weights in
	// place; empty leaves what the store has as the latest.
	Resources agl.NamedResources
	// Publish takes the place of Resources: it makes the weights of the learner,
	// those after so many steps, available, and returns what leads to them; nothing
	// leaves what the store has. Until it is called nobody should be able to sample
	// from a learner that is yet to go back to its checkpoint.
	Publish func(ctx context.Context, step int) (agl.NamedResources, error)
	// PublishEvery is the number of steps between further publications; 0 means
	// none, with Follow 1.
	PublishEvery int
	// Stall is how long to wait without any rollout finishing; 0 means 5 minutes,
	// with Follow for ever.
	Stall time.Duration

	// Async lets agents work while the policy is updated.
	Async Async
	// Follow makes the run learn from what others report; nil means not. Tasks,
	// GroupSize and Rollout have no meaning then and must not be set.
	Follow *Follow

	// Stored makes the run learn from rollouts that are in the store already, with
	// the rewards of the set that it names; nil means not. A step draws Tasks groups
	// of them. Nothing is asked for, so GroupSize, Rollout, Async and Follow must
	// not be set. Without a Correction of the method the one that weighs tokens is
	// taken, capped at 2: these rollouts were sampled by another policy.
	Stored *algorithm.Stored

	// ValidateEvery is the number of steps between validations on the
	// validation tasks; the state before the first step and after the last one
	// are validated, too. 0 means only these two.
	ValidateEvery int
	// EarlyStop ends the run when validations do not get better.
	EarlyStop EarlyStop
	// RestoreBest goes back to the weights with the best validation when the run
	// ends, and publishes them.
	RestoreBest bool
	// Checkpoints is the folder for checkpoints, one folder a run below it;
	// empty writes none, and the run cannot be resumed.
	Checkpoints string
	// Seed is where every random choice comes from.
	Seed int64
	// ShuffleRewards permutes the rewards of each step among its rollouts, those on
	// the way together with the final one: a control that must not learn anything.
	ShuffleRewards bool

	// OnStep is called after each step and after the validation before the
	// first one (Number 0); nil means not at all.
	OnStep func(Step)
	// OnProgress is called while rollouts of a step are waited for.
	OnProgress func(step, finished, of int)
}

// EarlyStop ends a run that does not get better. The zero value never does.
type EarlyStop struct {
	// Patience is how many validations in a row may bring no gain before the run
	// ends; 0 is no end.
	Patience int `json:"patience,omitempty"`
	// MinGain is by how much a validation must exceed the best one so far to count
	// as a gain, in the unit of the reward.
	MinGain float64 `json:"min_gain,omitempty"`
}

func (c Config) withDefaults() Config {
	if c.Follow != nil {
		c.Follow = c.Follow.withDefaults()
		if c.PublishEvery == 0 {
			c.PublishEvery = 1
		}
		return c
	}
	if c.Stored != nil {
		return c.storedDefaults()
	}
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
	case c.Steps < 0 || c.Steps == 0 && c.Follow == nil:
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
	if err := c.validateRun(); err != nil {
		return fmt.Errorf("pg: %w", err)
	}
	if err := c.options(1).Validate(); err != nil {
		return fmt.Errorf("pg: %w", err)
	}
	if checker, ok := c.Learner.(learner.Checker); ok {
		if err := checker.Check(c.options(1)); err != nil {
			return fmt.Errorf("pg: the learner (%T): %w", c.Learner, err)
		}
	}
	return nil
}

// validateRun returns an error when what is said of the course of the run does
// not fit together.
func (c *Config) validateRun() error {
	if err := c.validateStored(); err != nil {
		return err
	}
	rollout := c.Rollout
	switch {
	case len(c.Resources) > 0 && c.Publish != nil:
		return errors.New("Resources: Publish takes their place; set one of them")
	case c.PublishEvery < 0:
		return fmt.Errorf("PublishEvery: %d: must not be negative", c.PublishEvery)
	case c.PublishEvery > 0 && c.Publish == nil && len(c.Resources) == 0:
		return fmt.Errorf("PublishEvery: %d: there is nothing to publish; set Publish or Resources", c.PublishEvery)
	case c.EarlyStop.Patience < 0:
		return fmt.Errorf("EarlyStop.Patience: %d: must not be negative", c.EarlyStop.Patience)
	case !(c.EarlyStop.MinGain >= 0) || math.IsInf(c.EarlyStop.MinGain, 0):
		return fmt.Errorf("EarlyStop.MinGain: %v: must be a number from 0", c.EarlyStop.MinGain)
	case c.EarlyStop.MinGain > 0 && c.EarlyStop.Patience == 0:
		return fmt.Errorf("EarlyStop.MinGain: %v: without Patience nothing stops early", c.EarlyStop.MinGain)
	case c.EarlyStop.Patience > 0 && c.ValidateEvery == 0:
		return fmt.Errorf("EarlyStop.Patience: %d: without ValidateEvery there is nothing to stop by", c.EarlyStop.Patience)
	case c.RestoreBest && c.Checkpoints == "":
		return errors.New("RestoreBest: without Checkpoints no weights are kept to go back to")
	case c.Async.Groups < 0 || c.Async.MaxStaleness < 0:
		return fmt.Errorf("Async: %+v: must not be negative", c.Async)
	case c.Async.Groups == 0 && c.Async.MaxStaleness > 0:
		return fmt.Errorf("Async.MaxStaleness: %d: without Async.Groups nothing is ever stale", c.Async.MaxStaleness)
	case c.Async.Groups > 0 && c.Async.Groups <= c.Tasks:
		return fmt.Errorf("Async.Groups: %d: must exceed Tasks, %d, or nobody works during an update", c.Async.Groups, c.Tasks)
	case c.Async.Groups > 0 && (c.Method.Refill > 0 || c.Method.Resample > 0):
		return errors.New("Async: Method.Refill and Method.Resample wait for more rollouts of a step; with Async none waits")
	case c.Follow == nil:
		return nil
	case c.Tasks > 0 || c.GroupSize > 0 || rollout.MaxAttempts != 0 || rollout.TimeoutSeconds != nil ||
		rollout.UnresponsiveSeconds != nil || rollout.RetryCondition != nil || c.Async != (Async{}):
		return errors.New("Follow: Tasks, GroupSize, Rollout and Async are for rollouts that are asked for; leave them out")
	case c.Method.Refill > 0 || c.Method.Resample > 0 || c.Method.Advantages.Estimator == rl.ReMax:
		return errors.New("Follow: Method.Refill, Method.Resample and remax ask for rollouts; use another method")
	case c.Steps == 0 && c.LearningRate.Final != 0:
		return fmt.Errorf("LearningRate.Final: %v: without Steps no step is the last one", c.LearningRate.Final)
	}
	return c.Follow.validate()
}

// summary is what the run keeps of its configuration.
type summary struct {
	Steps            int               `json:"steps"`
	Tasks            int               `json:"tasks"`
	GroupSize        int               `json:"group_size"`
	LearningRate     learner.Schedule  `json:"learning_rate"`
	Epochs           int               `json:"epochs"`
	Minibatch        int               `json:"minibatch"`
	WholeMinibatches bool              `json:"whole_minibatches"`
	Method           methodSummary     `json:"method"`
	ValidateEvery    int               `json:"validate_every"`
	ShuffleRewards   bool              `json:"shuffle_rewards"`
	PublishEvery     int               `json:"publish_every,omitempty"`
	EarlyStop        EarlyStop         `json:"early_stop,omitzero"`
	RestoreBest      bool              `json:"restore_best,omitempty"`
	Async            Async             `json:"async,omitzero"`
	Follow           *Follow           `json:"follow,omitempty"`
	Stored           *algorithm.Stored `json:"stored,omitempty"`
}

func (c Config) summary() summary {
	return summary{
		c.Steps, c.Tasks, c.GroupSize, c.LearningRate, c.Epochs, c.Minibatch, c.WholeMinibatches,
		c.Method.summary(), c.ValidateEvery, c.ShuffleRewards, c.PublishEvery, c.EarlyStop, c.RestoreBest, c.Async, c.Follow, c.Stored,
	}
}
