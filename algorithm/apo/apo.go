// Package apo optimises one prompt template by textual gradients and beam search.
//
// In each round every prompt of the beam is run on a few training tasks, a model
// criticises what came of it, and another rewrites the prompt accordingly. Old
// and new prompts are ranked on a batch of validation tasks, the best stay, and
// the first among them is scored on all validation tasks. The method is that of
// ProTeGi (arXiv:2305.03495) without its choice by bandits.
//
// The order of calls, the names of versions (v0, v1 …) and the scores are those
// of the Python implementation. As there, a rollout without a reward counts as 0,
// because a prompt may be why an agent fails, and one that failed after it was
// rewarded counts with its reward. In addition a run can be resumed at any point,
// an edit that breaks the template is not run, braces that are not placeholders
// stay literal, and resources other than the template are published with it.
//
// Package [agentlightning/algorithm/gepa] optimises several templates together
// and is the better choice for most purposes.
package apo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/algorithm"
	"agentlightning/algorithm/internal/journal"
	"agentlightning/algorithm/prompt"
	"agentlightning/algorithm/stage"
	"agentlightning/store"
)

// Name is the name of the algorithm in its runs.
const Name = "apo"

// ErrNoPrompt is returned by [APO.Best] before a run has scored a prompt.
var ErrNoPrompt = errors.New("apo: no prompt has been scored yet")

// Prompt is a version of the template.
type Prompt struct {
	Version string `json:"version"`
	// Parent is the version that it is an edit of; empty for the initial one.
	Parent   string             `json:"parent,omitempty"`
	Template agl.PromptTemplate `json:"template"`
	// Score is the mean reward on the last batch that ranked it, or on all
	// validation tasks for what [APO.Best] returns; nil before.
	Score *float64 `json:"score"`
}

// APO is an [algorithm.Algorithm]. Run may be called once at a time.
type APO struct {
	cfg  Config
	best *Prompt
}

var _ algorithm.Algorithm = (*APO)(nil)

// New returns the algorithm.
func New(c Config) (*APO, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &APO{cfg: c.withDefaults()}, nil
}

// Best returns the best prompt of the last Run, [ErrNoPrompt] when there is none.
func (a *APO) Best() (Prompt, error) {
	if a.best == nil {
		return Prompt{}, ErrNoPrompt
	}
	return *a.best, nil
}

// Run searches, and leaves the best prompt as the latest resources of the store.
func (a *APO) Run(ctx context.Context, env algorithm.Env) error {
	a.best = nil
	s := &search{Config: a.cfg, env: env}
	if err := s.check(); err != nil {
		return err
	}
	run, err := algorithm.Begin(ctx, env, Name, a.cfg.summary(), a.cfg.Seed)
	if err != nil {
		return err
	}
	s.run, s.env.Logger = run, run.Logger
	if err = s.search(ctx); err != nil {
		err = fmt.Errorf("apo: %w", err)
	}
	a.best = s.state.Best
	return run.Finish(ctx, err)
}

// search is one execution.
type search struct {
	Config
	env      algorithm.Env
	run      *algorithm.Run
	journal  *journal.Journal
	original agl.PromptTemplate
	state    state
	asked    int // evaluations of the round in hand
	rollouts int // of these
}

// state is what a round begins with.
type state struct {
	Beam     []Prompt `json:"beam"`
	Prompts  []Prompt `json:"prompts"` // all that were made, each with its last score
	Versions int      `json:"versions"`
	Best     *Prompt  `json:"best"` // with its score on all validation tasks
	Latest   string   `json:"latest"`
}

// check finds the template, and what else must be there.
func (s *search) check() error {
	switch {
	case len(s.env.Train) == 0:
		return errors.New("apo: there are no training tasks; critiques are written from them")
	case len(s.env.Val) == 0:
		return errors.New("apo: there are no validation tasks; prompts are ranked by them")
	}
	var names []string
	for _, r := range s.env.InitialResources {
		if _, ok := r.Resource.(agl.PromptTemplate); ok {
			names = append(names, r.Name)
		}
	}
	switch {
	case len(names) == 0:
		return errors.New("apo: there is no prompt template among the initial resources")
	case s.Template == "" && len(names) > 1:
		return fmt.Errorf("apo: Template: the initial resources have %d prompt templates (%s); name the one to improve, or use gepa, which improves them together", len(names), strings.Join(names, ", "))
	case s.Template == "":
		s.Template = names[0]
	case !slices.Contains(names, s.Template):
		return fmt.Errorf("apo: Template: %q is not a prompt template of the initial resources; those are %s", s.Template, strings.Join(names, ", "))
	}
	s.original = s.env.InitialResources.Get(s.Template).(agl.PromptTemplate)
	return nil
}

func (s *search) search(ctx context.Context) error {
	var err error
	if s.journal, err = journal.Open(ctx, s.run, s.env.Store); err != nil {
		return err
	}
	resumed, err := s.journal.State(&s.state)
	if err != nil {
		return err
	}
	if !resumed {
		if err := s.begin(ctx); err != nil {
			return err
		}
	}
	perRound := s.BeamWidth * s.BranchFactor
	train, stopTrain := from(len(s.env.Train), s.GradientBatch, 2*s.Seed, perRound*(s.journal.Step()-1))
	defer stopTrain()
	val, stopVal := from(len(s.env.Val), s.ValBatch, 2*s.Seed+1, s.journal.Step()-1)
	defer stopVal()
	for s.journal.Step() <= s.Rounds {
		if err := s.round(ctx, train, val); err != nil {
			return fmt.Errorf("round %d of %d: %w", s.journal.Step(), s.Rounds, err)
		}
	}
	if s.state.Best != nil && s.state.Latest != s.state.Best.Version {
		return s.publish(ctx, *s.state.Best)
	}
	return nil
}

// from returns the batches that follow after some others.
func from(n, size int, seed int64, after int) (next func() []int, stop func()) {
	pull, stop := iter.Pull(algorithm.Batches(n, size, seed))
	for range after {
		pull()
	}
	return func() []int {
		batch, _ := pull() // without end
		return batch
	}, stop
}

// begin makes the initial prompt version 0, and scores it.
func (s *search) begin(ctx context.Context) error {
	seed := s.version(s.original, "")
	s.state.Beam = []Prompt{seed}
	best := seed
	if !s.SkipInitialValidation {
		e, err := s.evaluate(ctx, seed, s.env.Val, agl.ModeVal)
		if err != nil {
			return fmt.Errorf("initial validation: %w", err)
		}
		best.Score = &e.mean
		s.state.Best = &best
		s.score(best.Version, e.mean)
	}
	return s.commit(ctx, best)
}

func (s *search) version(t agl.PromptTemplate, parent string) Prompt {
	p := Prompt{Version: fmt.Sprintf("v%d", s.state.Versions), Parent: parent, Template: t}
	s.state.Versions++
	s.state.Prompts = append(s.state.Prompts, p)
	return p
}

// score notes what a version was worth last.
func (s *search) score(version string, mean float64) {
	for i := range s.state.Prompts {
		if s.state.Prompts[i].Version == version {
			s.state.Prompts[i].Score = &mean
		}
	}
}

// commit ends a round. The leader comes with its score on all validation tasks,
// without one when they were not run.
func (s *search) commit(ctx context.Context, leader Prompt) error {
	step, score := s.journal.Step(), leader.Score
	values := map[string]float64{"rollouts": float64(s.rollouts), "versions": float64(s.state.Versions)}
	if score != nil {
		values["score"] = *score
	}
	if s.state.Best != nil {
		values["best_score"] = *s.state.Best.Score
	}
	if err := s.run.Record(ctx, step, values); err != nil {
		return err
	}
	s.asked, s.rollouts = 0, 0
	if err := s.journal.Commit(ctx, s.state, score); err != nil {
		return err
	}
	if s.OnRound != nil && score != nil {
		s.OnRound(Round{step, s.Rounds, *s.state.Best, leader, s.state.Versions})
	}
	return nil
}

func (s *search) round(ctx context.Context, train, val func() []int) error {
	step := s.journal.Step()
	r := rand.New(rand.NewPCG(uint64(s.Seed), uint64(step)))
	candidates := slices.Clone(s.state.Beam)
	for _, parent := range s.parents(r) {
		for range s.BranchFactor {
			child, err := s.branch(ctx, r, parent, train())
			if err != nil {
				return err
			}
			if child != nil {
				candidates = append(candidates, *child)
			}
		}
	}
	batch := pick(s.env.Val, val())
	for i := range candidates {
		e, err := s.evaluate(ctx, candidates[i], batch, agl.ModeVal)
		if err != nil {
			return err
		}
		candidates[i].Score = &e.mean
		s.score(candidates[i].Version, e.mean)
		s.env.Logger.InfoContext(ctx, "candidate scored", "round", step, "prompt", candidates[i].Version, "score", e.mean)
	}
	slices.SortStableFunc(candidates, func(a, b Prompt) int {
		switch {
		case *a.Score > *b.Score:
			return -1
		case *a.Score < *b.Score:
			return 1
		}
		return 0
	})
	s.state.Beam = candidates[:min(s.BeamWidth, len(candidates))]
	leader := s.state.Beam[0]
	e, err := s.evaluate(ctx, leader, s.env.Val, agl.ModeVal)
	if err != nil {
		return err
	}
	if s.state.Best == nil || e.mean > *s.state.Best.Score {
		best := leader
		best.Score = &e.mean
		s.state.Best = &best
		s.env.Logger.InfoContext(ctx, "best prompt updated", "round", step, "prompt", best.Version, "score", e.mean)
	} else {
		s.env.Logger.WarnContext(ctx, "best prompt not updated", "round", step, "prompt", leader.Version, "score", e.mean, "best_score", *s.state.Best.Score)
	}
	leader.Score = &e.mean
	s.score(leader.Version, e.mean)
	return s.commit(ctx, leader)
}

// parents returns as many prompts of the beam as it is wide.
func (s *search) parents(r *rand.Rand) []Prompt {
	out := make([]Prompt, s.BeamWidth)
	if n := len(s.state.Beam); n < s.BeamWidth {
		for i := range out {
			out[i] = s.state.Beam[i%n]
		}
		return out
	}
	for i, j := range r.Perm(len(s.state.Beam)) {
		out[i] = s.state.Beam[j]
	}
	return out
}

// branch makes a child of a prompt; nil when the edit cannot be used.
func (s *search) branch(ctx context.Context, r *rand.Rand, parent Prompt, batch []int) (*Prompt, error) {
	e, err := s.evaluate(ctx, parent, pick(s.env.Train, batch), agl.ModeTrain)
	if err != nil {
		return nil, err
	}
	text := prompt.Text(parent.Template)
	in := s.GradientPrompts[r.IntN(len(s.GradientPrompts))]
	r.Shuffle(len(e.experiments), func(i, j int) {
		e.experiments[i], e.experiments[j] = e.experiments[j], e.experiments[i]
	})
	critique, err := s.complete(ctx, "gradient", s.GradientModel, func() ([]prompt.Message, error) { return in.gradient(text, e.experiments) })
	if err != nil {
		return nil, err
	}
	edit := s.EditPrompts[r.IntN(len(s.EditPrompts))]
	if critique == "" { // as the Python implementation does: the same text once more
		s.env.Logger.ErrorContext(ctx, "the critique is empty; the prompt stays as it is", "prompt", parent.Version)
		child := s.version(parent.Template, parent.Version)
		return &child, nil
	}
	edited, err := s.complete(ctx, "edit", s.EditModel, func() ([]prompt.Message, error) { return edit.edit(text, critique) })
	if err != nil {
		return nil, err
	}
	revised, err := prompt.Revise(s.original, edited)
	if err != nil {
		s.env.Logger.ErrorContext(ctx, "edit left out", "prompt", parent.Version, "err", err)
		return nil, nil
	}
	child := s.version(revised, parent.Version)
	s.env.Logger.InfoContext(ctx, "prompt created", "prompt", child.Version, "parent", parent.Version)
	return &child, nil
}

func pick(tasks []json.RawMessage, indices []int) []json.RawMessage {
	out := make([]json.RawMessage, len(indices))
	for i, j := range indices {
		out[i] = tasks[j]
	}
	return out
}

// complete asks a model, unless its answer is recorded.
func (s *search) complete(ctx context.Context, purpose, model string, chat func() ([]prompt.Message, error)) (string, error) {
	var answer prompt.Answer
	err := s.run.Stage(ctx, purpose, func(ctx context.Context) (err error) {
		answer, err = journal.Do(ctx, s.journal, purpose, func(ctx context.Context) (prompt.Answer, error) {
			messages, err := chat()
			if err != nil {
				return prompt.Answer{}, err
			}
			return s.Completer.Complete(ctx, prompt.Request{Model: model, Temperature: *s.Temperature, Messages: messages, Purpose: purpose})
		})
		return err
	})
	if err != nil {
		return "", fmt.Errorf("%s: %w", purpose, err)
	}
	return answer.Text, nil
}

// publish stores a version of the template, beside the other initial resources.
func (s *search) publish(ctx context.Context, p Prompt) error {
	resources := slices.Clone(s.env.InitialResources)
	for i := range resources {
		if resources[i].Name == s.Template {
			resources[i].Resource = p.Template
		}
	}
	err := s.run.Stage(ctx, stage.Publish, func(ctx context.Context) error {
		_, err := s.env.Store.UpdateResources(ctx, p.Version, resources)
		return err
	})
	if err != nil {
		return fmt.Errorf("publish prompt %s: %w", p.Version, err)
	}
	return nil
}

// evaluation is what came of a prompt.
type evaluation struct {
	mean        float64
	experiments []experiment
}

// evaluate runs a prompt on tasks.
func (s *search) evaluate(ctx context.Context, p Prompt, tasks []json.RawMessage, mode agl.Mode) (evaluation, error) {
	key := fmt.Sprintf("%d %s %s", s.asked, mode, p.Version)
	s.asked++
	s.rollouts += len(tasks)
	s.state.Latest = p.Version
	if !s.journal.Recorded() {
		s.env.Logger.InfoContext(ctx, "evaluating prompt", "prompt", p.Version, "tasks", len(tasks), "mode", string(mode))
		if err := s.publish(ctx, p); err != nil {
			return evaluation{}, err
		}
	}
	requests := make([]journal.Request, len(tasks))
	for i, task := range tasks {
		requests[i] = journal.Request{Input: task, Mode: mode, ResourcesID: p.Version, Config: s.Rollout, Seed: s.Seed}
	}
	ids, err := s.journal.Ask(ctx, key, requests)
	if err != nil {
		return evaluation{}, fmt.Errorf("evaluate prompt %s: %w", p.Version, err)
	}
	name := stage.Collect
	if mode == agl.ModeVal {
		name = stage.Validate
	}
	var finished []string
	err = s.run.Stage(ctx, name, func(ctx context.Context) (err error) {
		finished, err = s.journal.Within(ctx, key+" finished", ids, s.Timeout)
		return err
	})
	if err != nil {
		return evaluation{}, fmt.Errorf("evaluate prompt %s: %w", p.Version, err)
	}
	if left := len(ids) - len(finished); left > 0 {
		s.env.Logger.WarnContext(ctx, "rollouts left out: the time is over", "prompt", p.Version, "open", left, "of", len(ids), "timeout", s.Timeout)
	}
	return s.read(ctx, p, finished)
}

// read makes experiments of rollouts that have finished.
func (s *search) read(ctx context.Context, p Prompt, ids []string) (evaluation, error) {
	page, err := s.env.Store.QueryRollouts(ctx, store.RolloutQuery{RolloutIDIn: ids})
	if err != nil {
		return evaluation{}, fmt.Errorf("read the rollouts of prompt %s: %w", p.Version, err)
	}
	status := map[string]agl.RolloutStatus{}
	for _, r := range page.Items {
		status[r.RolloutID] = r.Status
	}
	var out evaluation
	unrewarded := 0
	for _, id := range ids {
		spans, err := s.env.Store.QuerySpans(ctx, store.SpanQuery{RolloutID: id, Paging: store.Paging{SortBy: "sequence_id"}})
		if err != nil {
			return evaluation{}, fmt.Errorf("read the spans of rollout %s: %w", id, err)
		}
		e := experiment{status: string(status[id]), spans: spans.Items, feedback: prompt.Feedback(spans.Items)}
		if e.messages, err = adapter.Messages(spans.Items); err != nil {
			e.messages = []adapter.Conversation{}
			s.env.Logger.WarnContext(ctx, "model calls of a rollout cannot be read", "rollout_id", id, "err", err)
		}
		if e.reward, err = agl.FinalReward(spans.Items); err != nil {
			s.env.Logger.WarnContext(ctx, "reward cannot be read", "rollout_id", id, "err", err)
		}
		if e.reward != nil {
			out.mean += *e.reward
		} else {
			unrewarded++
		}
		out.experiments = append(out.experiments, e)
	}
	if unrewarded > 0 {
		s.env.Logger.WarnContext(ctx, "rollouts without a reward count as 0", "prompt", p.Version, "unrewarded", unrewarded, "of", len(ids))
	}
	out.mean /= float64(max(1, len(ids)))
	return out, nil
}
