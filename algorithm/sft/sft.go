// Package sft is supervised fine-tuning: a policy learns to say what
// demonstrations say.
//
// It trains on rows that its caller makes, step by step. Each execution is a
// run in the store, with the metrics of its steps and checkpoints, from which
// it goes on after an interruption.
package sft

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"agentlightning/algorithm"
	"agentlightning/learner"
)

// Name is the name of the algorithm in its runs.
const Name = "sft"

// Config says what to train on and how.
type Config struct {
	// Learner is the policy; required.
	Learner learner.Learner
	// Rows makes the batch of a step, counted from 1. It must depend on nothing
	// but its arguments, so that a resumed run sees the same batches; required.
	Rows func(step int, random *rand.Rand) []learner.Row
	// Steps is the number of updates; must be at least 1.
	Steps int
	// LearningRate is the step size over the run.
	LearningRate learner.Schedule
	// MaxGradNorm bounds the gradient; 0 means the learner's default.
	MaxGradNorm float64
	// Seed is where every random choice comes from.
	Seed int64
	// Checkpoints is the folder for checkpoints, one folder a run below it;
	// empty writes none.
	Checkpoints string
	// CheckpointEvery is the number of steps between checkpoints; 0 means only
	// after the last step.
	CheckpointEvery int
	// OnStep is called after each step; nil means not at all.
	OnStep func(Step)
}

// Step is what one update did.
type Step struct {
	Number, Of int
	Metrics    learner.Metrics
	Elapsed    time.Duration
}

// Validate returns an error naming the field that is out of range.
func (c Config) Validate() error {
	switch {
	case c.Learner == nil:
		return errors.New("sft: Learner: must be set")
	case c.Rows == nil:
		return errors.New("sft: Rows: must be set")
	case c.Steps < 1:
		return fmt.Errorf("sft: Steps: %d: must be at least 1", c.Steps)
	case !(c.LearningRate.Peak > 0):
		return fmt.Errorf("sft: LearningRate.Peak: %v: must be greater than 0", c.LearningRate.Peak)
	}
	return nil
}

// summary is what the run keeps of its configuration.
type summary struct {
	Steps        int              `json:"steps"`
	LearningRate learner.Schedule `json:"learning_rate"`
	MaxGradNorm  float64          `json:"max_grad_norm"`
}

// New returns the algorithm.
func New(c Config) (algorithm.Algorithm, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return algorithm.Func(c.run), nil
}

func (c Config) run(ctx context.Context, env algorithm.Env) error {
	run, err := algorithm.Begin(ctx, env, Name, summary{c.Steps, c.LearningRate, c.MaxGradNorm}, c.Seed)
	if err != nil {
		return err
	}
	return run.Finish(ctx, c.train(ctx, run))
}

func (c Config) train(ctx context.Context, run *algorithm.Run) error {
	first := 1
	latest, ok, err := run.Latest(ctx)
	if err != nil {
		return err
	}
	if ok {
		if err := c.Learner.Load(ctx, latest.Path); err != nil {
			return fmt.Errorf("sft: resume from step %d: %w", latest.Step, err)
		}
		first = latest.Step + 1
	}
	kept := learner.Checkpoints{Dir: filepath.Join(c.Checkpoints, run.RunID)}
	for step := first; step <= c.Steps; step++ {
		started := time.Now()
		rows := c.Rows(step, rand.New(rand.NewPCG(uint64(c.Seed), uint64(step))))
		metrics, err := c.Learner.Update(ctx, learner.Batch{Rows: rows, Options: learner.Options{
			Objective: learner.Imitation, LearningRate: c.LearningRate.At(step, c.Steps),
			MaxGradNorm: c.MaxGradNorm, Seed: c.Seed + int64(step),
		}})
		if err != nil {
			return fmt.Errorf("sft: step %d: %w", step, err)
		}
		metrics["seconds"] = time.Since(started).Seconds()
		if err := run.Record(ctx, step, metrics); err != nil {
			return fmt.Errorf("sft: %w", err)
		}
		if c.Checkpoints != "" && (step == c.Steps || c.CheckpointEvery > 0 && step%c.CheckpointEvery == 0) {
			path, err := kept.Save(ctx, c.Learner, step, nil)
			if err != nil {
				return fmt.Errorf("sft: %w", err)
			}
			if err := run.Checkpoint(ctx, step, path, nil, struct{}{}); err != nil {
				return fmt.Errorf("sft: %w", err)
			}
		}
		if c.OnStep != nil {
			c.OnStep(Step{step, c.Steps, metrics, time.Since(started)})
		}
	}
	return nil
}
