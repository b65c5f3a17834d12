// Package learner is the contract to whatever updates the weights of a policy.
//
// An algorithm turns what agents did into a [Batch] of token sequences with a
// mask and an advantage on every sampled token, and hands it to a [Learner].
// The built-in one is in learner/native; others stand in front of engines and
// services that exist. Losses are described in package rl; this package holds
// no arithmetic.
//
// What only some learners can do is an interface of its own, found by
// assertion: [Scorer], [Critic] and [Checker].
package learner

import (
	"context"
	"errors"
	"fmt"
	"math"

	"agentlightning/rl"
)

// Objective says what an update minimises.
type Objective string

const (
	// Imitation is the negative log-likelihood of the masked tokens
	// (supervised fine-tuning).
	Imitation Objective = "imitation"
	// PolicyGradient is [Options.Loss] over the masked tokens.
	PolicyGradient Objective = "policy_gradient"
	// Preference is direct preference optimisation ([rl.DPO]) over pairs of rows:
	// a chosen answer, then the rejected one, each with its Reference.
	Preference Objective = "preference"
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

	// The rest is read by policy gradients only, Reference by preferences too, and
	// only where Mask is not 0.

	// Logprobs are what ratios are taken against: log-probabilities under the
	// policy that sampled the tokens, or, when Correction makes up for the
	// difference, under the weights before the update.
	Logprobs []float32
	// Advantages weigh each masked token.
	Advantages []float32
	// Correction multiplies the surrogate of each token; nil means 1.
	Correction []float32
	// Reference are log-probabilities under the reference policy; needed when
	// the loss has a KL term.
	Reference []float32
	// Rollout names the rollout that the row is of; needed by [rl.RolloutMean].
	Rollout string
	// Returns are what a critic should have said, Values what it said before the
	// update; needed when Options.Critic trains one.
	Returns, Values []float32
}

// Options tell how one update walks over its batch. The zero value of a field
// means the learner's documented default. A learner that cannot honour a field
// returns [ErrInvalid]; it never ignores one.
type Options struct {
	Objective    Objective
	LearningRate float64 // step size of the optimiser; must be > 0
	Epochs       int     // passes over the rows; 0 means 1
	Minibatch    int     // rows an optimiser step; 0 means all rows at once
	// Loss is that of policy gradients; the zero value is PPO's clipped loss with
	// the mean over tokens. Weights are shares of the whole batch; every optimiser
	// step divides by those of its rows ([rl.Loss.Shares], [rl.Loss.Divisor]).
	Loss   rl.Loss
	Critic CriticOptions
	// Beta is how closely preferences hold on to the reference; must be > 0 for
	// [Preference], usually 0.1.
	Beta        float64
	MaxGradNorm float64 // gradients are scaled down to this norm; 0 means 1
	Seed        int64   // order of rows within the epochs
}

// CriticOptions train a critic beside the policy, on the rows' Returns.
type CriticOptions struct {
	LearningRate float64 // 0 trains none
	Clip         float64 // see [rl.ValueLoss]; 0 means no clip
}

// Batch is the input of one update.
type Batch struct {
	Rows    []Row
	Options Options
	// Trained, when it is set, is told what the policy in training thought of the
	// tokens of a row: the log-probability, in nats, of every masked token, one
	// entry a token and 0 off the mask, under the weights by which the update took
	// its first gradient of the row. For the rows of the first optimiser step these
	// are the weights before the update; for others, those that the optimiser steps
	// before have made of them. It is called at most once a row, by one goroutine,
	// before Update returns, and says nothing when Update fails. The slice must not
	// be kept. A learner that does not know them never calls it.
	Trained func(row int, logprobs []float32)
}

// ErrInvalid is returned for a batch or option that a learner cannot honour.
var ErrInvalid = errors.New("invalid batch")

// Validate returns an error naming the option that is out of range.
func (o Options) Validate() error {
	if err := o.validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// Validate returns an error naming the first row or option that is out of range.
func (b Batch) Validate() error {
	if err := b.Options.Validate(); err != nil {
		return err
	}
	if b.Options.Objective == Preference && len(b.Rows)%2 != 0 {
		return fmt.Errorf("%w: %d rows: preferences come in pairs, the chosen answer first", ErrInvalid, len(b.Rows))
	}
	for i, r := range b.Rows {
		if err := r.validate(b.Options); err != nil {
			return fmt.Errorf("%w: row %d: %w", ErrInvalid, i, err)
		}
	}
	return nil
}

func (r *Row) validate(o Options) error {
	n := len(r.IDs)
	if len(r.Mask) != n {
		return fmt.Errorf("%d mask entries for %d tokens", len(r.Mask), n)
	}
	if o.Objective == Imitation {
		return nil
	}
	policy := o.Objective == PolicyGradient
	for _, c := range []struct {
		name   string
		values []float32
		needed bool
	}{
		{"logprobs", r.Logprobs, policy},
		{"advantages", r.Advantages, policy},
		{"corrections", r.Correction, policy && r.Correction != nil},
		{"reference logprobs", r.Reference, !policy || o.Loss.KL.Coefficient != 0},
		{"returns", r.Returns, o.Critic.LearningRate > 0},
		{"values", r.Values, o.Critic.LearningRate > 0},
	} {
		if !c.needed {
			continue
		}
		if len(c.values) != n {
			return fmt.Errorf("%d %s for %d tokens", len(c.values), c.name, n)
		}
		for t, v := range c.values {
			if r.Mask[t] != 0 && (math.IsNaN(float64(v)) || math.IsInf(float64(v), 0)) {
				return fmt.Errorf("token %d: %s are %v: must be finite", t, c.name, v)
			}
		}
	}
	if o.Loss.Aggregation == rl.RolloutMean && r.Rollout == "" {
		return errors.New("no rollout, which the aggregation rollout_mean needs")
	}
	return nil
}

func (o Options) validate() error {
	switch o.Objective {
	case Imitation, Preference:
		if o.Loss != (rl.Loss{}) {
			return fmt.Errorf("loss %+v: %s has none to choose", o.Loss, o.Objective)
		}
		if o.Critic != (CriticOptions{}) {
			return fmt.Errorf("critic %+v: %s has no returns to learn from", o.Critic, o.Objective)
		}
	case PolicyGradient:
		if err := o.Loss.Validate(); err != nil {
			return err
		}
	default:
		return fmt.Errorf("objective %q: must be %s, %s or %s", o.Objective, Imitation, PolicyGradient, Preference)
	}
	switch {
	case o.Objective == Preference && !(o.Beta > 0):
		return fmt.Errorf("beta %v: must be greater than 0", o.Beta)
	case o.Objective != Preference && o.Beta != 0:
		return fmt.Errorf("beta %v: only preferences have it", o.Beta)
	case o.Objective == Preference && o.Minibatch%2 != 0:
		return fmt.Errorf("minibatch %d: must be even, since preferences come in pairs", o.Minibatch)
	case !(o.LearningRate > 0): // also what is no number
		return fmt.Errorf("learning rate %v: must be greater than 0", o.LearningRate)
	case o.Epochs < 0:
		return fmt.Errorf("epochs %d: must not be negative", o.Epochs)
	case o.Minibatch < 0:
		return fmt.Errorf("minibatch %d: must not be negative", o.Minibatch)
	case !(o.Critic.LearningRate >= 0):
		return fmt.Errorf("critic's learning rate %v: must not be negative", o.Critic.LearningRate)
	case !(o.Critic.Clip >= 0):
		return fmt.Errorf("critic's clip %v: must not be negative", o.Critic.Clip)
	case o.Critic.Clip > 0 && o.Critic.LearningRate == 0:
		return fmt.Errorf("critic's clip %v: there is no critic without a learning rate of its own", o.Critic.Clip)
	case !(o.MaxGradNorm >= 0):
		return fmt.Errorf("largest gradient norm %v: must not be negative", o.MaxGradNorm)
	}
	return nil
}

// Metrics describe one update, averaged over its optimiser steps and weighted
// by masked tokens. Names follow the field: loss, grad_norm, entropy, tokens,
// rows, seconds, and for policy gradients clip_fraction, approx_kl (the k3
// estimate), ratio_mean, with a dual clip dual_clip_fraction, with a KL term
// reference_kl, with a critic value_loss; for preferences margin (see
// [rl.PairLoss]) and preferred (the share of pairs with a margin above 0).
// Without a masked token there are no averages.
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

// Scorer tells what a policy thinks of tokens. A learner that is one can make up
// for captured log-probabilities that are not its own ([rl.Correction]); a
// frozen policy that is one can be a reference for a KL term.
type Scorer interface {
	// Score returns the log-probability of every masked token of each row, one
	// entry a token, 0 off the mask. Only IDs and Mask are read.
	Score(ctx context.Context, rows []Row) ([][]float32, error)
}

// Critic tells how much reward a policy may still expect before each token.
type Critic interface {
	// Values returns the value before every masked token of each row, one entry a
	// token, 0 off the mask. Only IDs and Mask are read.
	Values(ctx context.Context, rows []Row) ([][]float32, error)
}

// Checker tells before a run whether a learner honours options, so that nothing
// is paid for an update that will be refused. The error is one of [ErrInvalid].
type Checker interface {
	Check(o Options) error
}
