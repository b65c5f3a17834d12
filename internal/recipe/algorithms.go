package recipe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	agl "agentlightning"
	"agentlightning/adapter/credit"
	"agentlightning/adapter/credit/expr"
	"agentlightning/algorithm"
	"agentlightning/algorithm/apo"
	"agentlightning/algorithm/baseline"
	"agentlightning/algorithm/finetune"
	"agentlightning/algorithm/gepa"
	"agentlightning/algorithm/pg"
	"agentlightning/algorithm/sft"
	"agentlightning/algorithm/stage"
	"agentlightning/learner"
	"agentlightning/rl"
	"agentlightning/semconv"
	"agentlightning/store"
)

// algorithms are those that come with the project; each preset of policy
// gradients is one.
func algorithms() []AlgorithmKind {
	out := []AlgorithmKind{
		{baselineName, baselineName, true, false, false, func() AlgorithmSettings { return &baselineSettings{Epochs: 1} }},
		{gepa.Name, gepa.Name, true, false, false, func() AlgorithmSettings { return newGEPA() }},
		{apo.Name, apo.Name, true, false, false, func() AlgorithmSettings { return newAPO() }},
		{finetune.Name, finetune.Name, true, false, false, func() AlgorithmSettings {
			return &finetuneSettings{Base: base{Name: "policy"}, Iterations: 3, Rollouts: 1, Stall: 5 * time.Minute}
		}},
		{"sft", sft.Name, false, true, false, func() AlgorithmSettings { return &sftSettings{imitation: newImitation()} }},
		{"dpo", sft.NamePreference, false, true, false, func() AlgorithmSettings { return &dpoSettings{imitation: newImitation(), Beta: 0.1} }},
		{offlineName, pg.Name, false, true, false, func() AlgorithmSettings { return newOffline() }},
	}
	for _, preset := range pg.Presets() {
		out = append(out, AlgorithmKind{preset, pg.Name, true, true, false, func() AlgorithmSettings { return newPG(preset) }})
	}
	out = append(out, AlgorithmKind{"follow", pg.Name, false, true, true, func() AlgorithmSettings { return newFollow() }})
	return out
}

const baselineName = "baseline"

// baselineSettings run every task and learn nothing.
type baselineSettings struct{ Epochs int }

// Build implements [AlgorithmSettings].
func (s *baselineSettings) Build(p Parts) (Built, error) {
	if s.Epochs < 1 {
		return Built{}, fmt.Errorf("epochs: %d: must be at least 1", s.Epochs)
	}
	done := 0
	moved := func() {} // tells the stage, once there is one
	b := baseline.New(baseline.Config{Epochs: s.Epochs, MaxQueue: 64, OnResult: func(r baseline.Result) {
		done++
		text := string(r.Rollout.Status)
		if r.Reward != nil {
			text += fmt.Sprintf(", reward %.4g", *r.Reward)
		}
		if r.Failure != "" {
			text += ": " + firstLine(r.Failure)
		}
		moved()
		p.Report(Progress{Step: done, Text: text})
	}})
	return Built{Algorithm: algorithm.Func(func(ctx context.Context, env algorithm.Env) error {
		// It keeps no run of its own, so that one is kept here.
		run, err := algorithm.Begin(ctx, env, baselineName, map[string]int{"epochs": s.Epochs}, p.Seed)
		if err != nil {
			return err
		}
		env.Store, env.Logger = ofRun{env.Store, run.RunID}, run.Logger
		err = run.Stage(ctx, stage.Collect, func(ctx context.Context) error {
			moved = func() { stage.Progress(ctx, "%d rollouts finished", done) }
			return b.Run(ctx, env)
		})
		outcomes := make([]algorithm.Outcome, 0, done)
		for _, r := range b.Report() {
			outcomes = append(outcomes, r.Outcome)
		}
		if mean, n := algorithm.MeanReward(outcomes); n > 0 {
			err = errors.Join(err, run.Record(ctx, 0, map[string]float64{
				algorithm.MetricReward: mean, algorithm.MetricRollouts: float64(len(outcomes)), algorithm.MetricFailed: float64(len(outcomes) - n),
			}))
		}
		return run.Finish(ctx, err)
	})}, nil
}

// ofRun is a store whose rollouts belong to a run, for an algorithm that knows
// of none.
type ofRun struct {
	store.Store
	runID string
}

// EnqueueRollouts implements [store.RolloutStore].
func (s ofRun) EnqueueRollouts(ctx context.Context, reqs []store.EnqueueRequest) ([]agl.Rollout, error) {
	metadata, err := json.Marshal(map[string]string{semconv.MetadataRunID: s.runID})
	if err != nil {
		return nil, err
	}
	reqs = slices.Clone(reqs)
	for i := range reqs {
		reqs[i].Metadata = metadata
	}
	return s.Store.EnqueueRollouts(ctx, reqs)
}

// rate is a learning rate over the steps of a run.
type rate struct {
	Peak, Final float64
	Warmup      int
}

// ShortKey lets a rate be written as one number.
func (rate) ShortKey() string { return "peak" }

func (r rate) schedule() learner.Schedule { return learner.Schedule(r) }

// pgSettings are those of policy gradients.
type pgSettings struct {
	Steps            int
	Tasks            int // a step
	GroupSize        int
	LearningRate     rate
	Epochs           int
	Minibatch        int
	WholeMinibatches bool
	MaxGradNorm      float64
	ValidateEvery    int
	EarlyStop        pg.EarlyStop
	RestoreBest      bool
	ShuffleRewards   bool
	Stall            time.Duration
	Async            pg.Async

	// Credit is a rule as agl credit preview takes it.
	Credit     string
	Advantages rl.AdvantageConfig
	Critic     *pg.Critic
	Correction rl.Correction
	RewardKL   rl.KL
	Loss       rl.Loss
	Overlong   pg.Overlong
	Refill     int
	Resample   int
}

func newPG(preset string) *pgSettings {
	m, err := pg.Preset(preset)
	if err != nil { // the names are those of pg.Presets
		m = pg.Method{}
	}
	return &pgSettings{
		Tasks: 16, GroupSize: 8, Epochs: 1, Stall: 5 * time.Minute, Credit: credit.Identical{}.String(),
		Advantages: m.Advantages, Critic: m.Critic, Correction: m.Correction, RewardKL: m.RewardKL, Loss: m.Loss,
		Overlong: m.Overlong, Refill: m.Refill, Resample: m.Resample,
	}
}

// followSettings are those of policy gradients on what agents in use report.
type followSettings struct {
	pgSettings
	pg.Follow
	PublishEvery int // in steps
}

// newFollow begins with REINFORCE++, which compares a rollout with all others:
// agents in use seldom get a task twice.
func newFollow() *followSettings {
	s := &followSettings{pgSettings: *newPG(pg.ReinforcePP), Follow: pg.Follow{Rollouts: 64, Window: 24 * time.Hour}, PublishEvery: 1}
	s.Tasks, s.GroupSize, s.Stall = 0, 0, 0
	return s
}

// Build implements [AlgorithmSettings].
func (s *followSettings) Build(p Parts) (Built, error) {
	return s.build(p, func(c *pg.Config) {
		c.Follow, c.PublishEvery, c.Rollout = &s.Follow, s.PublishEvery, agl.RolloutConfig{}
	})
}

// Build implements [AlgorithmSettings].
func (s *pgSettings) Build(p Parts) (Built, error) { return s.build(p, func(*pg.Config) {}) }

func (s *pgSettings) build(p Parts, change func(*pg.Config)) (Built, error) {
	m := pg.Method{
		Advantages: s.Advantages, Critic: s.Critic, Correction: s.Correction, RewardKL: s.RewardKL, Loss: s.Loss,
		Overlong: s.Overlong, Refill: s.Refill, Resample: s.Resample,
	}
	var err error
	if m.Credit, err = rule(s.Credit); err != nil {
		return Built{}, fmt.Errorf("credit: %w", err)
	}
	var reference learner.Scorer
	if m.Loss.KL.Coefficient != 0 || m.RewardKL.Coefficient != 0 {
		if p.Policy.Freeze == nil {
			return Built{}, errors.New("loss.kl and reward_kl: this learner cannot keep the policy of the beginning as a reference")
		}
		reference = p.Policy.Freeze()
	}
	failed := 0
	var best *float64
	c := pg.Config{
		Learner: p.Policy.Learner, Method: m, Reference: reference,
		Steps: s.Steps, Tasks: s.Tasks, GroupSize: s.GroupSize, LearningRate: s.LearningRate.schedule(),
		Epochs: s.Epochs, Minibatch: s.Minibatch, WholeMinibatches: s.WholeMinibatches, MaxGradNorm: s.MaxGradNorm,
		Rollout: p.Rollout, Stall: s.Stall, ValidateEvery: s.ValidateEvery, EarlyStop: s.EarlyStop, RestoreBest: s.RestoreBest, Async: s.Async,
		Publish:     func(ctx context.Context, _ int) (agl.NamedResources, error) { return p.Resources, p.Offer(ctx) },
		Checkpoints: p.Checkpoints, Seed: p.Seed, ShuffleRewards: s.ShuffleRewards,
		OnStep: func(step pg.Step) {
			failed += step.Failed
			if step.Accuracy != nil && (best == nil || *step.Accuracy > *best) {
				best = step.Accuracy
			}
			p.Report(Progress{step.Number, step.Of, stepText(step, best, failed)})
		},
	}
	change(&c)
	a, err := pg.New(c)
	if err != nil {
		return Built{}, err
	}
	return Built{Algorithm: a, Offers: true}, nil
}

func stepText(s pg.Step, best *float64, failed int) string {
	var parts []string
	if s.Reward != nil {
		parts = append(parts, fmt.Sprintf("reward %.3f", *s.Reward))
	}
	if s.Accuracy != nil {
		parts = append(parts, fmt.Sprintf("validation %.3f (best %.3f)", *s.Accuracy, *best))
	}
	if failed > 0 {
		parts = append(parts, fmt.Sprintf("%d failed, the last for: %s", failed, firstLine(s.LastFailure)))
	}
	return strings.Join(parts, "  ")
}

// rule reads a rule of credit, an expression behind cel:.
func rule(text string) (credit.Rule, error) {
	if expression, ok := strings.CutPrefix(text, "cel:"); ok {
		return expr.New(expression)
	}
	return credit.Parse(text)
}

// gepaSettings are those of the search by reflection.
type gepaSettings struct {
	completer
	Model       string
	Temperature float64
	Components  []string
	Objectives  []string
	Minibatch   int
	Repeats     int
	MaxMerges   int
	Perfect     *float64

	MaxEvaluations int
	MaxTokens      int64
	MaxCost        float64
	Price          price
	MaxFailures    int
	OnFailure      string
	Stall          time.Duration
}

// price is what a million tokens cost.
type price struct{ Input, Output float64 }

func newGEPA() *gepaSettings {
	return &gepaSettings{
		completer: newCompleter(), Temperature: 1, Minibatch: 3, Repeats: 1, MaxMerges: 5, MaxFailures: 5,
		OnFailure: string(gepa.DropFailures), Stall: 5 * time.Minute,
	}
}

func (s *gepaSettings) config() (gepa.Config, error) {
	merges := s.MaxMerges
	if merges == 0 {
		merges = -1 // none; 0 is the default in Go
	}
	switch {
	case s.Model == "":
		return gepa.Config{}, errors.New("model: must be set, to the model that rewrites prompts")
	case s.Minibatch < 1:
		return gepa.Config{}, fmt.Errorf("minibatch: %d: must be at least 1", s.Minibatch)
	case s.Repeats < 1:
		return gepa.Config{}, fmt.Errorf("repeats: %d: must be at least 1", s.Repeats)
	case s.MaxMerges < 0:
		return gepa.Config{}, fmt.Errorf("max_merges: %d: must not be negative", s.MaxMerges)
	case s.MaxFailures < 1:
		return gepa.Config{}, fmt.Errorf("max_failures: %d: must be at least 1", s.MaxFailures)
	case !(s.Price.Input >= 0 && s.Price.Output >= 0):
		return gepa.Config{}, fmt.Errorf("price: %v and %v: must not be negative", s.Price.Input, s.Price.Output)
	case s.MaxCost > 0 && s.Price == (price{}):
		return gepa.Config{}, fmt.Errorf("max_cost: %v: nothing would come near it without a price", s.MaxCost)
	}
	return gepa.Config{
		Model: s.Model, Temperature: &s.Temperature, Components: s.Components, Objectives: s.Objectives,
		Minibatch: s.Minibatch, Repeats: s.Repeats, MaxMerges: merges, Perfect: s.Perfect,
		MaxEvaluations: s.MaxEvaluations, MaxTokens: s.MaxTokens, MaxCost: s.MaxCost, MaxFailures: s.MaxFailures,
		OnFailure: gepa.Failures(s.OnFailure), Stall: s.Stall,
	}, nil
}

func (s *gepaSettings) plan(val int) (string, error) {
	c, err := s.config()
	if err != nil {
		return "", err
	}
	plan, err := c.Plan(val)
	return plan.String(), err
}

// Build implements [AlgorithmSettings].
func (s *gepaSettings) Build(p Parts) (Built, error) {
	c, err := s.config()
	if err != nil {
		return Built{}, err
	}
	s.completer.price = s.Price
	if c.Completer, err = p.Completer(s.completer, s.Model); err != nil {
		return Built{}, err
	}
	c.Rollout, c.Seed = &p.Rollout, p.Seed
	c.OnIteration = func(it gepa.Iteration) {
		what := "merge of " + numbers(it.Parents)
		if it.Component != "" {
			what = fmt.Sprintf("rewrite of %q", it.Component)
		}
		result := "accepted"
		if it.Accepted == nil {
			result = "not accepted: " + it.Reason
		}
		p.Report(Progress{it.Spent.Evaluations, s.MaxEvaluations, fmt.Sprintf("best %.3f  %d rollouts  %d calls  iteration %d, %s, %s",
			it.Best, it.Spent.Evaluations, it.Spent.Calls, it.Number, what, result)})
	}
	g, err := gepa.New(c)
	if err != nil {
		return Built{}, err
	}
	return Built{Algorithm: g, Prompts: func() (map[string]agl.PromptTemplate, error) {
		r, ok := g.Result()
		if !ok {
			return nil, errors.New("gepa: nothing was scored")
		}
		return r.Best.Templates, nil
	}}, nil
}

func numbers(of []int) string {
	out := make([]string, len(of))
	for i, n := range of {
		out[i] = strconv.Itoa(n)
	}
	return strings.Join(out, " and ")
}

// apoSettings are those of textual gradients and beam search.
type apoSettings struct {
	completer
	GradientModel, EditModel string
	Temperature              float64
	Template                 string
	GradientBatch            int
	ValBatch                 int
	BeamWidth                int
	BranchFactor             int
	Rounds                   int
	SkipInitialValidation    bool
	Timeout                  time.Duration
}

func newAPO() *apoSettings {
	return &apoSettings{
		completer: newCompleter(), GradientModel: "gpt-5-mini", EditModel: "gpt-4.1-mini", Temperature: 1,
		GradientBatch: 4, ValBatch: 16, BeamWidth: 4, BranchFactor: 4, Rounds: 3, Timeout: time.Hour,
	}
}

// Build implements [AlgorithmSettings].
func (s *apoSettings) Build(p Parts) (Built, error) {
	for name, value := range map[string]int{
		"gradient_batch": s.GradientBatch, "val_batch": s.ValBatch, "beam_width": s.BeamWidth, "branch_factor": s.BranchFactor, "rounds": s.Rounds,
	} {
		if value < 1 {
			return Built{}, fmt.Errorf("%s: %d: must be at least 1", name, value)
		}
	}
	c := apo.Config{
		GradientModel: s.GradientModel, EditModel: s.EditModel, Temperature: &s.Temperature, Template: s.Template,
		GradientBatch: s.GradientBatch, ValBatch: s.ValBatch, BeamWidth: s.BeamWidth, BranchFactor: s.BranchFactor,
		Rounds: s.Rounds, SkipInitialValidation: s.SkipInitialValidation, Timeout: s.Timeout, Rollout: &p.Rollout, Seed: p.Seed,
		OnRound: func(r apo.Round) {
			p.Report(Progress{r.Number, r.Of, fmt.Sprintf("best %s %.3f  leader %s %.3f  %d prompts", r.Best.Version, *r.Best.Score, r.Leader.Version, *r.Leader.Score, r.Prompts)})
		},
	}
	var err error
	if c.Completer, err = p.Completer(s.completer, s.GradientModel, s.EditModel); err != nil {
		return Built{}, err
	}
	a, err := apo.New(c)
	if err != nil {
		return Built{}, err
	}
	return Built{Algorithm: a, Prompts: func() (map[string]agl.PromptTemplate, error) {
		best, err := a.Best()
		if err != nil {
			return nil, err
		}
		name := s.Template
		if name == "" {
			i := slices.IndexFunc(p.Resources, func(r agl.NamedResource) bool { return r.Resource.Kind() == agl.KindPromptTemplate })
			name = p.Resources[i].Name // there is one, or Run would have failed
		}
		return map[string]agl.PromptTemplate{name: best.Template}, nil
	}}, nil
}

// firstLine is what fits into a line of progress.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	if runes := []rune(line); len(runes) > 100 {
		return string(runes[:99]) + "…"
	}
	return line
}

func (s *gepaSettings) rewriters() (completer, []string) { return s.completer, []string{s.Model} }

func (s *apoSettings) rewriters() (completer, []string) {
	return s.completer, []string{s.GradientModel, s.EditModel}
}
