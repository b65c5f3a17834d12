package apo

import (
	"errors"
	"fmt"
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

// Instruction is what a model is told: a chat of two texts, of which System may
// be empty. Both are f-strings as [agl.PromptTemplate] reads them, so that {{
// and }} stand for braces, and between them use each of these placeholders:
//
//	{prompt}       the template in hand
//	{experiments}  in GradientPrompts, what came of it: Experiment filled in for
//	               each rollout, with an empty line between two
//	{critique}     in EditPrompts, the answer to a gradient prompt
type Instruction struct {
	System, User string
	// Experiment is how GradientPrompts tell of a rollout, an f-string too; empty
	// means as in the first of those that come with the package. It may use
	//
	//	{number}    the place among the experiments, from 0
	//	{status}    how the rollout ended, such as succeeded
	//	{reward}    its final reward, none when there was none
	//	{messages}  its model calls as JSON
	//	{spans}     the spans of all its attempts as JSON, one a line
	//	{feedback}  what the spans say in words, a line that begins with "- " for
	//	            each, see [prompt.Feedback]
	Experiment string
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
	for i, in := range c.GradientPrompts {
		if err := in.validate(promptPlaceholder, experimentsPlaceholder); err != nil {
			return fmt.Errorf("apo: GradientPrompts[%d]%w", i, err)
		}
	}
	for i, in := range c.EditPrompts {
		if err := in.validate(promptPlaceholder, critiquePlaceholder); err != nil {
			return fmt.Errorf("apo: EditPrompts[%d]%w", i, err)
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
