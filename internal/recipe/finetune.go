package recipe

import (
	"fmt"
	"time"

	agl "agentlightning"
	"agentlightning/algorithm/finetune"
	"agentlightning/learner"
	"agentlightning/learner/openai"
)

// finetuneSettings are those of reward-ranked fine-tuning by a service.
type finetuneSettings struct {
	// Tuner is the service.
	Tuner openai.Config
	// Base is how the proxy calls the model of the beginning.
	Base       base
	Iterations int
	Tasks      int // an iteration; 0 means all
	Rollouts   int // of each task
	Select     selection
	Retries    int
	Stall      time.Duration
}

// base is a model backend.
type base struct{ Name, Endpoint, Target, APIKeyEnv, Kind, APIVersion string }

// Build implements [AlgorithmSettings].
func (s *finetuneSettings) Build(p Parts) (Built, error) {
	config := s.Tuner
	config.LookupEnv, config.Logger = p.Environ, p.Logger
	tuner, err := openai.New(config)
	if err != nil {
		return Built{}, fmt.Errorf("tuner: %w", err)
	}
	a, err := finetune.New(finetune.Config{
		Tuner: tuner,
		Base: agl.Model{
			Name: s.Base.Name, Endpoint: s.Base.Endpoint, Target: s.Base.Target, APIKeyEnv: s.Base.APIKeyEnv,
			Kind: agl.BackendKind(s.Base.Kind), APIVersion: s.Base.APIVersion,
		},
		Proxy: p.Server + "/v1", Iterations: s.Iterations, Tasks: s.Tasks, Rollouts: s.Rollouts, Selection: s.Select.dataset(),
		Retries: s.Retries, Rollout: &p.Rollout, Stall: s.Stall, Seed: p.Seed,
		OnStep: func(step finetune.Step) {
			text := step.Model
			if step.Accuracy != nil {
				text += fmt.Sprintf("  validation %.3f", *step.Accuracy)
			}
			if step.Failed > 0 {
				text += fmt.Sprintf("  %d of %d rollouts failed", step.Failed, step.Rollouts)
			}
			p.Report(Progress{step.Number, step.Of, text})
		},
		OnTuning: func(step int, t learner.TuningProgress) {
			p.Report(Progress{max(step-1, 0), s.Iterations, fmt.Sprintf("job %s %s", t.Status, firstLine(t.Message))})
		},
	})
	return Built{Algorithm: a}, err
}
