package recipe

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"agentlightning/algorithm"
	"agentlightning/algorithm/sft"
	"agentlightning/dataset"
	"agentlightning/learner"
)

// imitation is what sft and dpo have in common.
type imitation struct {
	// Data is a file of training data, in one of the forms of agl dataset export.
	Data            string
	Steps           int
	Batch           int
	LearningRate    rate
	MaxGradNorm     float64
	CheckpointEvery int
}

func newImitation() imitation { return imitation{Batch: 16} }

func (s *imitation) check() error {
	switch {
	case s.Data == "":
		return errors.New("data: must be set, to a file of training data")
	case s.Batch < 1:
		return fmt.Errorf("batch: %d: must be at least 1", s.Batch)
	}
	return nil
}

// build makes the algorithm that trains on units, each of one or more rows that
// stay together.
func (s *imitation) build(p Parts, units [][]learner.Row, preference *sft.Preference) (Built, error) {
	if len(units) == 0 {
		return Built{}, fmt.Errorf("data: %s: there is nothing in it to train on", s.Data)
	}
	first, last := 0.0, 0.0
	a, err := sft.New(sft.Config{
		Learner: p.Policy.Learner, Preference: preference, Steps: s.Steps, LearningRate: s.LearningRate.schedule(),
		MaxGradNorm: s.MaxGradNorm, Seed: p.Seed, Checkpoints: p.Checkpoints, CheckpointEvery: s.CheckpointEvery,
		Rows: func(step int, _ *rand.Rand) []learner.Row { return batch(units, step, s.Batch, p.Seed) },
		OnStep: func(step sft.Step) {
			if last = step.Metrics["loss"]; first == 0 {
				first = last
			}
			p.Report(Progress{step.Number, step.Of, fmt.Sprintf("loss %.4f (at first %.4f)", last, first)})
		},
	})
	return Built{Algorithm: a}, err
}

// batch returns the rows of a step: passes over the data follow one another, each
// in an order of its own.
func batch(units [][]learner.Row, step, size int, seed int64) []learner.Row {
	var rows []learner.Row
	var order []int
	for i := (step - 1) * size; i < step*size; i++ {
		if order == nil || i%len(units) == 0 {
			order = algorithm.Order(len(units), seed, i/len(units))
		}
		rows = append(rows, units[order[i%len(units)]]...)
	}
	return rows
}

// sftSettings are those of supervised fine-tuning.
type sftSettings struct {
	imitation
	// Form is conversations or rows; by default as the name of the file ends.
	Form string
}

// Forms of data for sft.
const (
	formConversations = "conversations" // messages, a conversation a line
	formRows          = "rows"          // token ids, a JSON object a line or Parquet
)

// Build implements [AlgorithmSettings].
func (s *sftSettings) Build(p Parts) (Built, error) {
	if err := s.check(); err != nil {
		return Built{}, err
	}
	units, err := s.read(p)
	if err != nil {
		return Built{}, fmt.Errorf("data: %w", err)
	}
	return s.build(p, units, nil)
}

func (s *sftSettings) read(p Parts) (units [][]learner.Row, err error) {
	path := p.Path(s.Data)
	parquet := filepath.Ext(path) == ".parquet"
	form := s.Form
	switch {
	case form == "" && parquet:
		form = formRows
	case form == "":
		form = formConversations
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var rows []dataset.Row
	switch {
	case form == formRows && parquet:
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if rows, err = dataset.ReadParquet(f, info.Size(), path); err != nil {
			return nil, err
		}
	case form == formRows:
		if rows, err = dataset.ReadRows(f, path); err != nil {
			return nil, err
		}
	case form == formConversations && !parquet:
		return conversations(f, path, p.Policy)
	default:
		return nil, fmt.Errorf("%s: form %q: must be %s, or %s for lines of JSON", path, form, formRows, formConversations)
	}
	for i := range rows {
		units = append(units, []learner.Row{rows[i].Learner()})
	}
	return units, nil
}

func conversations(f *os.File, path string, policy *Policy) ([][]learner.Row, error) {
	if policy.Render == nil {
		return nil, fmt.Errorf("%s: this learner takes token ids only, form %s", path, formRows)
	}
	all, err := dataset.ReadConversations(f, path)
	if err != nil {
		return nil, err
	}
	var units [][]learner.Row
	for i, c := range all {
		ids, mask, err := policy.Render(c.Messages)
		if err != nil {
			return nil, &algorithm.LineError{File: path, Line: i + 1, Err: err}
		}
		units = append(units, []learner.Row{{IDs: ids, Mask: mask}})
	}
	return units, nil
}

// dpoSettings are those of direct preference optimisation.
type dpoSettings struct {
	imitation
	Beta float64
}

// Build implements [AlgorithmSettings].
func (s *dpoSettings) Build(p Parts) (Built, error) {
	if err := s.check(); err != nil {
		return Built{}, err
	}
	if p.Policy.Freeze == nil || p.Policy.Render == nil {
		return Built{}, errors.New("dpo: this learner cannot keep the policy of the beginning as a reference")
	}
	units, err := s.read(p)
	if err != nil {
		return Built{}, fmt.Errorf("data: %w", err)
	}
	return s.build(p, units, &sft.Preference{Beta: s.Beta, Reference: p.Policy.Freeze()})
}

func (s *dpoSettings) read(p Parts) (units [][]learner.Row, err error) {
	path := p.Path(s.Data)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	pairs, err := dataset.ReadPreferences(f, path)
	if err != nil {
		return nil, err
	}
	for i, pair := range pairs {
		var unit []learner.Row
		prompt, _, err := p.Policy.Render(pair.Prompt)
		if err != nil {
			return nil, &algorithm.LineError{File: path, Line: i + 1, Err: err}
		}
		for _, rest := range [][]json.RawMessage{pair.Chosen, pair.Rejected} {
			ids, mask, err := p.Policy.Render(slices.Concat(pair.Prompt, rest))
			if err != nil {
				return nil, &algorithm.LineError{File: path, Line: i + 1, Err: err}
			}
			clear(mask[:len(prompt)]) // what the assistant said before is no choice
			unit = append(unit, learner.Row{IDs: ids, Mask: mask})
		}
		units = append(units, unit)
	}
	return units, nil
}
