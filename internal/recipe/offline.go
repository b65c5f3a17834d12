package recipe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	agl "agentlightning"
	"agentlightning/adapter/credit"
	"agentlightning/algorithm"
	"agentlightning/algorithm/pg"
	"agentlightning/rl"
)

// offlineName is the algorithm that learns by policy gradients from rollouts that
// are stored, and runs no agent.
const offlineName = "offline"

// offlineSettings are its settings.
type offlineSettings struct {
	// Method is a preset of policy gradients.
	Method string
	// Run takes the rollouts of one run, Mode those of one mode; RewardSet says
	// which rewards count.
	Run       string
	Mode      string
	RewardSet string

	Steps          int
	Tasks          int // groups a step
	LearningRate   rate
	Epochs         int
	Minibatch      int
	MaxGradNorm    float64
	ShuffleRewards bool
	// Credit is a rule as agl credit preview takes it.
	Credit string
	// Correction is for the policy that sampled being another one; unset weighs
	// tokens, capped at 2.
	Correction rl.Correction
}

func newOffline() *offlineSettings {
	return &offlineSettings{Method: pg.GRPO, Mode: string(agl.ModeTrain), Tasks: 16, Epochs: 1, Credit: credit.Identical{}.String()}
}

// Build implements [AlgorithmSettings].
func (s *offlineSettings) Build(p Parts) (Built, error) {
	if modes := []string{"", string(agl.ModeTrain), string(agl.ModeVal), string(agl.ModeTest)}; !slices.Contains(modes, s.Mode) {
		return Built{}, fmt.Errorf("mode: %q: must be one of %s, or empty for any", s.Mode, strings.Join(modes[1:], ", "))
	}
	m, err := pg.Preset(s.Method)
	if err != nil {
		return Built{}, fmt.Errorf("method: %w", err)
	}
	if m.Credit, err = rule(s.Credit); err != nil {
		return Built{}, fmt.Errorf("credit: %w", err)
	}
	m.Resample = 0 // of dapo: there is nothing to ask for again
	m.Correction = s.Correction
	a, err := pg.New(pg.Config{
		Learner: p.Policy.Learner, Method: m, Steps: s.Steps, Tasks: s.Tasks, LearningRate: s.LearningRate.schedule(),
		Epochs: s.Epochs, Minibatch: s.Minibatch, MaxGradNorm: s.MaxGradNorm, ShuffleRewards: s.ShuffleRewards,
		Stored:      &algorithm.Stored{RunID: s.Run, Mode: agl.Mode(s.Mode), RewardSet: cmp.Or(s.RewardSet, agl.DefaultRewardSet)},
		Checkpoints: p.Checkpoints, Seed: p.Seed,
		OnStep: func(step pg.Step) { p.Report(Progress{step.Number, step.Of, stepText(step, nil, 0)}) },
	})
	return Built{Algorithm: a}, err
}
