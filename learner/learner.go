// Package learner is the contract to whatever updates the weights of a policy.
//
// An algorithm turns what agents did into a [Batch] of token sequences with a
// mask and an advantage on every sampled token, and hands it to a [Learner].
// The built-in one is in learner/native; others stand in front of engines and
// services that exist. The package holds no arithmetic: losses and advantages
// are described in package rl.
package learner

import (
	"context"
	"errors"
	"fmt"
)

// Objective says what an update minimises.
type Objective string

const (
	// Imitation is the negative log-likelihood of the masked tokens
	// (supervised fine-tuning). Advantages and Logprobs are not used.
	Imitation Objective = "imitation"
	// PolicyGradient is the clipped importance-weighted policy-gradient
	// objective over the masked tokens.
	PolicyGradient Objective = "policy_gradient"
)

// Row is one training sequence: everything the model saw and said, in order.
// The slices have one entry a token and equal length.
type Row struct {
	// IDs are the engine's own token ids, prompts and completions together.
	IDs []int32
	// Mask is the weight of a token in the loss: greater than 0, usually 1, where
	// the token was sampled by the policy (or is a target of
	// imitation), 0 elsewhere. Mask[0] is ignored: nothing predicts it.
	Mask []float32
	// Logprobs are the log-probabilities under the policy that sampled the
	// tokens. Read only where Mask is not 0 and the objective needs them.
	Logprobs []float32
	// Advantages weigh each masked token. Read only by policy gradients.
	Advantages []float32
}

// Options tell how one update walks over its batch. The zero value of a field
// means the learner's documented default.
type Options struct {
	Objective    Objective
	LearningRate float64 // step size of the optimiser; must be > 0
	Epochs       int     // passes over the rows; 0 means 1
	Minibatch    int     // rows an optimiser step; 0 means all rows at once
	ClipLow      float64 // lower clip: ratio is kept above 1-ClipLow; 0 means 0.2
	ClipHigh     float64 // upper clip: ratio is kept below 1+ClipHigh; 0 means ClipLow
	MaxGradNorm  float64 // gradients are scaled down to this norm; 0 means 1
	Seed         int64   // order of rows within the epochs
}

// Batch is the input of one update.
type Batch struct {
	Rows    []Row
	Options Options
}

// ErrInvalid is returned for a batch or option that a learner cannot honour.
var ErrInvalid = errors.New("invalid batch")

// Validate returns an error naming the first row or option that is out of range.
func (b Batch) Validate() error {
	if err := b.Options.validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	for i, r := range b.Rows {
		n := len(r.IDs)
		if len(r.Mask) != n {
			return fmt.Errorf("%w: row %d: %d mask entries for %d tokens", ErrInvalid, i, len(r.Mask), n)
		}
		if b.Options.Objective == PolicyGradient && (len(r.Logprobs) != n || len(r.Advantages) != n) {
			return fmt.Errorf("%w: row %d: %d logprobs and %d advantages for %d tokens",
				ErrInvalid, i, len(r.Logprobs), len(r.Advantages), n)
		}
	}
	return nil
}

func (o Options) validate() error {
	switch o.Objective {
	case Imitation, PolicyGradient:
	default:
		return fmt.Errorf("objective %q: must be %s or %s", o.Objective, Imitation, PolicyGradient)
	}
	switch {
	case !(o.LearningRate > 0): // also what is no number
		return fmt.Errorf("learning rate %v: must be greater than 0", o.LearningRate)
	case o.Epochs < 0:
		return fmt.Errorf("epochs %d: must not be negative", o.Epochs)
	case o.Minibatch < 0:
		return fmt.Errorf("minibatch %d: must not be negative", o.Minibatch)
	case !(o.ClipLow >= 0 && o.ClipLow <= 1):
		return fmt.Errorf("lower clip %v: must be between 0 and 1", o.ClipLow)
	case !(o.ClipHigh >= 0):
		return fmt.Errorf("upper clip %v: must not be negative", o.ClipHigh)
	case !(o.MaxGradNorm >= 0):
		return fmt.Errorf("largest gradient norm %v: must not be negative", o.MaxGradNorm)
	}
	return nil
}

// Metrics describe one update, averaged over its optimiser steps and weighted
// by masked tokens. Names follow the field: loss, grad_norm, entropy, tokens,
// rows, seconds, and for policy gradients clip_fraction, approx_kl (the k3
// estimate) and ratio_mean. Without a masked token there are no averages.
type Metrics map[string]float64

// Learner updates the weights of one policy. Methods are safe for concurrent
// use; updates are applied one after another.
type Learner interface {
	// Update applies one batch and makes the new weights the ones that are
	// sampled from. An empty batch is a no-op. On an error, or when ctx ends
	// before the update is complete, the weights are those of before the call.
	Update(ctx context.Context, b Batch) (Metrics, error)
	// Version counts the updates that are visible to sampling.
	Version() int64
	// Save writes a checkpoint (weights and optimiser state) into the folder
	// dir, which is created; it is complete or absent, never half there.
	Save(ctx context.Context, dir string) error
	// Load replaces weights and optimiser state by those of a checkpoint.
	Load(ctx context.Context, dir string) error
	// Close releases what the learner holds.
	Close() error
}
