package command

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"agentlightning/learner"
	"agentlightning/rl"
)

// Options are the options of an update as the trainer's file has them, defaults
// filled in.
type Options struct {
	// Objective is imitation or policy_gradient.
	Objective    learner.Objective `json:"objective"`
	LearningRate float64           `json:"learning_rate"`
	Epochs       int               `json:"epochs"`    // passes over the rows
	Minibatch    int               `json:"minibatch"` // rows of one optimiser step; 0 means all
	MaxGradNorm  float64           `json:"max_grad_norm"`
	Loss         rl.Loss           `json:"loss"`
	Seed         int64             `json:"seed"`
}

// options refuses what the trainer does not read and what its files do not hold.
func (c *Config) options(b learner.Batch) (Options, error) {
	o := b.Options
	switch {
	case o.Objective == learner.Preference:
		return Options{}, fmt.Errorf("%w: objective %s: the trainer's rows are not paired; train on 'agl dataset export --form preferences'", learner.ErrInvalid, o.Objective)
	case o.Critic != (learner.CriticOptions{}):
		return Options{}, fmt.Errorf("%w: critic: a trainer that runs once an update has none of ours; choose a method without one, such as grpo", learner.ErrInvalid)
	case o.Loss.KL.Coefficient != 0:
		return Options{}, fmt.Errorf("%w: loss.kl: the trainer's rows hold no log-probabilities of a reference; set its own in its command", learner.ErrInvalid)
	}
	for i := range b.Rows {
		if b.Rows[i].Correction != nil {
			return Options{}, fmt.Errorf("%w: row %d: correction: the trainer's rows do not hold it; leave corrections to the trainer", learner.ErrInvalid, i)
		}
	}
	out := Options{
		Objective: o.Objective, LearningRate: o.LearningRate, Epochs: cmp.Or(o.Epochs, 1), Minibatch: o.Minibatch,
		MaxGradNorm: cmp.Or(o.MaxGradNorm, 1), Loss: o.Loss, Seed: o.Seed,
	}
	// What is left at its default need not be read.
	set := map[string]bool{
		"learning_rate": true, "epochs": o.Epochs > 1, "minibatch": o.Minibatch > 0,
		"max_grad_norm": o.MaxGradNorm != 0, "seed": o.Seed != 0,
	}
	text, err := json.Marshal(o.Loss)
	if err != nil {
		return Options{}, err
	}
	var loss map[string]json.RawMessage
	if err := json.Unmarshal(text, &loss); err != nil {
		return Options{}, err
	}
	for name := range loss { // members at their default are left out
		set["loss."+name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if set[name] && !c.honours(name) {
			return Options{}, fmt.Errorf("%w: %s is set, which the trainer is not said to read; make it, and name it in Honours", learner.ErrInvalid, name)
		}
	}
	return out, nil
}

func (c *Config) honours(name string) bool {
	return slices.ContainsFunc(c.Honours, func(h string) bool {
		return h == "*" || h == name || strings.HasPrefix(name, h+".")
	})
}
