package apo

import (
	"errors"
	"fmt"
	"strings"
	"text/template"
	"time"

	agl "agentlightning"
	"agentlightning/algorithm/prompt"
)

// Config says how to search.
type Config struct {
	// Completer is asked for critiques and edits; required.
	Completer prompt.Completer
	// GradientModel writes critiques; empty means "gpt-5-mini".
	GradientModel string
	// EditModel rewrites the prompt; empty means "gpt-4.1-mini".
	EditModel string
	// Temperature is that of both; nil means 1.
	Temperature *float64

	// Template is the name of the prompt template to improve among the initial
	// resources; empty means the only one.
	Template string
	// GradientBatch is how many training tasks are run for a critique; 0 means 4.
	GradientBatch int
	// ValBatch is how many validation tasks rank the candidates of a round; 0
	// means 16.
	ValBatch int
	// BeamWidth is how many prompts are kept; 0 means 4.
	BeamWidth int
	// BranchFactor is how many children each of them gets in a round; 0 means 4.
	BranchFactor int
	// Rounds is the number of rounds; 0 means 3.
	Rounds int
	// SkipInitialValidation leaves out the score of the initial prompt on all
	// validation tasks. The leader of the first round is then the best in any case.
	SkipInitialValidation bool
	// Timeout bounds the rollouts of one evaluation; 0 means an hour. Those that
	// have not finished by then do not count and go on.
	Timeout time.Duration
	// Rollout holds the limits and the retry rule of every rollout; nil means the
	// store's defaults.
	Rollout *agl.RolloutConfig

	// GradientPrompts and EditPrompts are what the models are told, one of them
	// for each call by chance; nil means those that come with the package.
	GradientPrompts, EditPrompts []Instruction
	// Seed is where every random choice comes from.
	Seed int64
	// OnRound is called after the initial validation, when there is one, and after
	// each round; nil means not at all.
	OnRound func(Round)
}

// Round is how the search stands after a round.
type Round struct {
	Number, Of int // 0 is the initial validation
	// Best is the best prompt so far, Leader the first of the round's beam, each
	// with its score on all validation tasks.
	Best, Leader Prompt
	Prompts      int // versions made so far
}

// Instruction is a chat as two texts of package text/template, of which System
// may be empty. They are given Prompt, the template in hand, and for gradients
// Experiments, a list of [Experiment], for edits Critique. The function json
// writes any value as JSON.
type Instruction struct{ System, User string }

// Experiment is a rollout as instructions are given it.
type Experiment struct {
	Status string `json:"status"`
	// Reward is nil when there was none.
	Reward *float64 `json:"final_reward"`
	// Spans are those of all attempts, Messages the model calls among them.
	Spans    []agl.Span `json:"spans"`
	Messages any        `json:"messages"`
	// Feedback is what the spans say in words, see [prompt.Feedback].
	Feedback []string `json:"feedback"`
}

func (c Config) withDefaults() Config {
	for _, d := range [...]struct {
		field *int
		value int
	}{{&c.GradientBatch, 4}, {&c.ValBatch, 16}, {&c.BeamWidth, 4}, {&c.BranchFactor, 4}, {&c.Rounds, 3}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.GradientModel == "" {
		c.GradientModel = "gpt-5-mini"
	}
	if c.EditModel == "" {
		c.EditModel = "gpt-4.1-mini"
	}
	if c.Temperature == nil {
		one := 1.0
		c.Temperature = &one
	}
	if c.Timeout == 0 {
		c.Timeout = time.Hour
	}
	if len(c.GradientPrompts) == 0 {
		c.GradientPrompts = gradientPrompts
	}
	if len(c.EditPrompts) == 0 {
		c.EditPrompts = editPrompts
	}
	return c
}

// Validate returns an error naming the field that is out of range.
func (c Config) Validate() error {
	if c.Completer == nil {
		return errors.New("apo: Completer: must be set")
	}
	for _, f := range [...]struct {
		name  string
		value int
	}{
		{"GradientBatch", c.GradientBatch},
		{"ValBatch", c.ValBatch},
		{"BeamWidth", c.BeamWidth},
		{"BranchFactor", c.BranchFactor},
		{"Rounds", c.Rounds},
	} {
		if f.value < 0 {
			return fmt.Errorf("apo: %s: %d: must not be negative", f.name, f.value)
		}
	}
	if c.Temperature != nil && !(*c.Temperature >= 0 && *c.Temperature <= 2) {
		return fmt.Errorf("apo: Temperature: %v: must be from 0 to 2", *c.Temperature)
	}
	if c.Timeout < 0 {
		return fmt.Errorf("apo: Timeout: %v: must not be negative", c.Timeout)
	}
	for name, list := range map[string][]Instruction{"GradientPrompts": c.GradientPrompts, "EditPrompts": c.EditPrompts} {
		for i, in := range list {
			if strings.TrimSpace(in.User) == "" {
				return fmt.Errorf("apo: %s[%d].User: must not be empty", name, i)
			}
			for _, text := range [...]string{in.System, in.User} {
				if _, err := template.New(name).Funcs(functions).Parse(text); err != nil {
					return fmt.Errorf("apo: %s[%d]: %w", name, i, err)
				}
			}
		}
	}
	return nil
}

// summary is what the run keeps of its configuration.
type summary struct {
	GradientModel string  `json:"gradient_model"`
	EditModel     string  `json:"apply_edit_model"`
	Temperature   float64 `json:"diversity_temperature"`
	Template      string  `json:"template"`
	GradientBatch int     `json:"gradient_batch_size"`
	ValBatch      int     `json:"val_batch_size"`
	BeamWidth     int     `json:"beam_width"`
	BranchFactor  int     `json:"branch_factor"`
	Rounds        int     `json:"beam_rounds"`
	Initial       bool    `json:"run_initial_validation"`
	Timeout       float64 `json:"rollout_batch_timeout"`
}

func (c Config) summary() summary {
	return summary{
		c.GradientModel, c.EditModel, *c.Temperature, c.Template, c.GradientBatch, c.ValBatch, c.BeamWidth,
		c.BranchFactor, c.Rounds, !c.SkipInitialValidation, c.Timeout.Seconds(),
	}
}
