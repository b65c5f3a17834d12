package recipe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"agentlightning/algorithm"
	"agentlightning/algorithm/sft"
	"agentlightning/dataset"
	"agentlightning/learner"
	"agentlightning/store"
)

// imitation is what sft and dpo have in common.
type imitation struct {
	// Data is a file of training data, in one of the forms of agl dataset export.
	Data string
	// Stored takes rollouts of the store in place of a file.
	Stored          *algorithm.Stored
	Steps           int
	Batch           int
	LearningRate    rate
	MaxGradNorm     float64
	CheckpointEvery int
}

func newImitation() imitation { return imitation{Batch: 16} }

func (s *imitation) check() error {
	switch {
	case (s.Data == "") == (s.Stored == nil):
		return errors.New("data, stored: give one of them, a file of training data or what to take of the store")
	case s.Batch < 1:
		return fmt.Errorf("batch: %d: must be at least 1", s.Batch)
	}
	if s.Stored != nil {
		if err := s.Stored.Validate(); err != nil {
			return fmt.Errorf("stored: %w", err)
		}
	}
	return nil
}

// source is what the run keeps of where its rows are from.
func (s *imitation) source() any {
	if s.Stored != nil {
		return s.Stored
	}
	return map[string]string{"data": s.Data}
}

// build makes the algorithm. Rows are read now when they are in a file, so that
// a bad one is told of before anything runs, and by the run when they are in the
// store.
func (s *imitation) build(p Parts, rows []learner.Row, stored func(context.Context, store.Store) ([]learner.Row, error), preference *sft.Preference) (Built, error) {
	first, last := 0.0, 0.0
	trainer := func(rows []learner.Row) (algorithm.Algorithm, error) {
		if len(rows) == 0 {
			return nil, errors.New("there is nothing to train on in what was chosen")
		}
		return sft.New(sft.Config{
			Learner: p.Policy.Learner, Preference: preference, Steps: s.Steps, LearningRate: s.LearningRate.schedule(),
			MaxGradNorm: s.MaxGradNorm, Seed: p.Seed, Checkpoints: p.Checkpoints, CheckpointEvery: s.CheckpointEvery,
			Rows: sft.Draw(rows, s.Batch, preference != nil, p.Seed), Source: s.source(),
			OnStep: func(step sft.Step) {
				if last = step.Metrics["loss"]; first == 0 {
					first = last
				}
				p.Report(Progress{step.Number, step.Of, fmt.Sprintf("loss %.4f (at first %.4f)", last, first)})
			},
		})
	}
	if s.Stored == nil {
		a, err := trainer(rows)
		return Built{Algorithm: a}, err
	}
	if _, err := trainer(make([]learner.Row, 2)); err != nil { // the settings
		return Built{}, err
	}
	return Built{Algorithm: algorithm.Func(func(ctx context.Context, env algorithm.Env) error {
		rows, err := stored(ctx, env.Store)
		if err != nil {
			return fmt.Errorf("stored: %w", err)
		}
		a, err := trainer(rows)
		if err != nil {
			return err
		}
		return a.Run(ctx, env)
	})}, nil
}

// sftSettings are those of supervised fine-tuning.
type sftSettings struct {
	imitation
	// Form is conversations or rows; by default as the name of the file ends.
	Form string
	// Select chooses among stored rollouts.
	Select selection
}

// selection chooses rollouts by reward; see [dataset.Selection].
type selection struct {
	MinReward *float64
	Top       float64
	PerGroup  bool
}

func (s selection) dataset() dataset.Selection {
	return dataset.Selection{Min: s.MinReward, Top: s.Top, PerGroup: s.PerGroup}
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
	switch {
	case s.Stored == nil && s.Select != (selection{}):
		return Built{}, errors.New("select: nothing looks at it: it chooses among stored rollouts")
	case s.Stored != nil && s.Form != "":
		return Built{}, errors.New("form: nothing looks at it: it is that of a file")
	}
	var rows []learner.Row
	if s.Stored == nil {
		var err error
		if rows, err = s.read(p); err != nil {
			return Built{}, fmt.Errorf("data: %w", err)
		}
	} else if err := s.Select.dataset().Validate(); err != nil {
		return Built{}, fmt.Errorf("select: %w", err)
	}
	return s.build(p, rows, func(ctx context.Context, st store.Store) ([]learner.Row, error) {
		rollouts, err := dataset.Stored(ctx, st, *s.Stored)
		if err != nil {
			return nil, err
		}
		return dataset.Demonstrations(rollouts, s.Select.dataset())
	}, nil)
}

func (s *sftSettings) read(p Parts) (out []learner.Row, err error) {
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
		out = append(out, rows[i].Learner())
	}
	return out, nil
}

func conversations(f *os.File, path string, policy *Policy) ([]learner.Row, error) {
	if policy.Render == nil {
		return nil, fmt.Errorf("%s: this learner takes token ids only, form %s", path, formRows)
	}
	all, err := dataset.ReadConversations(f, path)
	if err != nil {
		return nil, err
	}
	var rows []learner.Row
	for i, c := range all {
		ids, mask, err := policy.Render(c.Messages)
		if err != nil {
			return nil, &algorithm.LineError{File: path, Line: i + 1, Err: err}
		}
		rows = append(rows, learner.Row{IDs: ids, Mask: mask})
	}
	return rows, nil
}

// dpoSettings are those of direct preference optimisation.
type dpoSettings struct {
	imitation
	Beta float64
	// Margin and Pairs choose pairs among stored rollouts; see
	// [dataset.Preferences].
	Margin float64
	Pairs  int
}

// Build implements [AlgorithmSettings].
func (s *dpoSettings) Build(p Parts) (Built, error) {
	if err := s.check(); err != nil {
		return Built{}, err
	}
	switch {
	case p.Policy.Freeze == nil:
		return Built{}, errors.New("dpo: this learner cannot keep the policy of the beginning as a reference")
	case s.Stored == nil && (s.Margin != 0 || s.Pairs != 0):
		return Built{}, errors.New("margin, pairs: nothing looks at them: they choose among stored rollouts")
	}
	which := dataset.Preferences{Margin: s.Margin, Most: s.Pairs}
	if _, err := which.Select(nil); err != nil {
		return Built{}, err
	}
	var rows []learner.Row
	if s.Stored == nil {
		var err error
		if rows, err = s.read(p); err != nil {
			return Built{}, fmt.Errorf("data: %w", err)
		}
	}
	return s.build(p, rows, func(ctx context.Context, st store.Store) ([]learner.Row, error) {
		rollouts, err := dataset.Stored(ctx, st, *s.Stored)
		if err != nil {
			return nil, err
		}
		rows, leftOut, err := dataset.Pairs(rollouts, which)
		if leftOut > 0 {
			p.Report(Progress{Of: s.Steps, Text: fmt.Sprintf("%d pairs left out: they do not go on from the same prompt", leftOut)})
		}
		return rows, err
	}, &sft.Preference{Beta: s.Beta, Reference: p.Policy.Freeze()})
}

func (s *dpoSettings) read(p Parts) (rows []learner.Row, err error) {
	path := p.Path(s.Data)
	if p.Policy.Render == nil {
		return nil, fmt.Errorf("%s: this learner takes token ids only; train it on stored rollouts", path)
	}
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
			rows = append(rows, learner.Row{IDs: ids, Mask: mask})
		}
	}
	return rows, nil
}
