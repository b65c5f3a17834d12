// Package sft trains on rows that are there already: by supervised fine-tuning a
// policy learns to say what demonstrations say, by direct preference optimisation
// (DPO, arXiv:2305.18290) to prefer one answer of a pair to the other.
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
	"agentlightning/algorithm/stage"
	"agentlightning/learner"
)

// Names of the algorithm in its runs.
const (
	Name           = "sft"
	NamePreference = "dpo"
)

// Preference makes pairs of the rows: a chosen answer, then the rejected one.
type Preference struct {
	// Beta is how closely the policy holds on to the reference; must be > 0.
	Beta float64
	// Reference is the policy before training, such as what
	// [agentlightning/learner/native.Model.Freeze] returned; required.
	Reference learner.Scorer
}

// Config says what to train on and how.
type Config struct {
	// Learner is the policy; required.
	Learner learner.Learner
	// Rows makes the batch of a step, counted from 1. It must depend on nothing
	// but its arguments, so that a resumed run sees the same batches; required.
	Rows func(step int, random *rand.Rand) []learner.Row
	// Source says what the rows were made of, such as an [algorithm.Stored], for
	// those who read the run; nil says nothing.
	Source any
	// Preference trains on pairs by DPO; nil is supervised fine-tuning.
	Preference *Preference
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
	case c.Preference != nil && c.Preference.Reference == nil:
		return errors.New("sft: Preference.Reference: must be set")
	case c.Preference != nil && !(c.Preference.Beta > 0):
		return fmt.Errorf("sft: Preference.Beta: %v: must be greater than 0", c.Preference.Beta)
	case c.Steps < 1:
		return fmt.Errorf("sft: Steps: %d: must be at least 1", c.Steps)
	case !(c.MaxGradNorm >= 0):
		return fmt.Errorf("sft: MaxGradNorm: %v: must not be negative", c.MaxGradNorm)
	case c.CheckpointEvery < 0:
		return fmt.Errorf("sft: CheckpointEvery: %d: must not be negative", c.CheckpointEvery)
	case c.CheckpointEvery > 0 && c.Checkpoints == "":
		return fmt.Errorf("sft: CheckpointEvery: %d: there is no folder Checkpoints to write to", c.CheckpointEvery)
	}
	if err := c.LearningRate.Validate(); err != nil {
		return fmt.Errorf("sft: LearningRate.%w", err)
	}
	return nil
}

// summary is what the run keeps of its configuration.
type summary struct {
	Steps        int              `json:"steps"`
	LearningRate learner.Schedule `json:"learning_rate"`
	MaxGradNorm  float64          `json:"max_grad_norm"`
	Beta         float64          `json:"beta,omitempty"` // of preferences
	Source       any              `json:"source,omitempty"`
}

// New returns the algorithm.
func New(c Config) (algorithm.Algorithm, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return algorithm.Func(c.run), nil
}

func (c Config) run(ctx context.Context, env algorithm.Env) error {
	name, kept := Name, summary{Steps: c.Steps, LearningRate: c.LearningRate, MaxGradNorm: c.MaxGradNorm, Source: c.Source}
	if c.Preference != nil {
		name, kept.Beta = NamePreference, c.Preference.Beta
	}
	run, err := algorithm.Begin(ctx, env, name, kept, c.Seed)
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
		batch := learner.Batch{Rows: rows, Options: learner.Options{
			Objective: learner.Imitation, LearningRate: c.LearningRate.At(step, c.Steps),
			MaxGradNorm: c.MaxGradNorm, Seed: c.Seed + int64(step),
		}}
		var metrics learner.Metrics
		err := run.Stage(ctx, stage.Update, func(ctx context.Context) (err error) {
			if err := c.Preference.prepare(ctx, &batch); err != nil {
				return err
			}
			metrics, err = c.Learner.Update(ctx, batch)
			return err
		})
		if err != nil {
			return fmt.Errorf("sft: step %d: %w", step, err)
		}
		metrics["seconds"] = time.Since(started).Seconds()
		if err := run.Record(ctx, step, metrics); err != nil {
			return fmt.Errorf("sft: %w", err)
		}
		if c.Checkpoints != "" && (step == c.Steps || c.CheckpointEvery > 0 && step%c.CheckpointEvery == 0) {
			err := run.Stage(ctx, stage.Checkpoint, func(ctx context.Context) error {
				path, err := kept.Save(ctx, c.Learner, step, nil)
				if err != nil {
					return err
				}
				return run.Checkpoint(ctx, step, path, nil, struct{}{})
			})
			if err != nil {
				return fmt.Errorf("sft: %w", err)
			}
		}
		if c.OnStep != nil {
			c.OnStep(Step{step, c.Steps, metrics, time.Since(started)})
		}
	}
	return nil
}

// prepare makes preferences of a batch.
func (p *Preference) prepare(ctx context.Context, b *learner.Batch) error {
	if p == nil {
		return nil
	}
	b.Options.Objective, b.Options.Beta = learner.Preference, p.Beta
	reference, err := p.Reference.Score(ctx, b.Rows)
	if err != nil {
		return fmt.Errorf("score the rows by the reference: %w", err)
	}
	for i := range b.Rows {
		b.Rows[i].Reference = reference[i]
	}
	return nil
}
