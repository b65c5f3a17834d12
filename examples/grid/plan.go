package main

import (
	agl "agentlightning"
	"agentlightning/learner"
	"agentlightning/learner/native"
	"agentlightning/rl"
)

// plan holds the sizes and rates of the example, the same for every rule and
// every seed.
type plan struct {
	train, validation int // tasks

	warmupSteps, warmupRows int
	warmupRate              learner.Schedule
	care                    float64 // of demonstrations, see package world

	steps, tasks, group, epochs, minibatch int
	rate                                   learner.Schedule
	clip                                   rl.Clip
	validateEvery                          int

	model native.Config // without the seed
}

// tuned is the plan that the example runs. It was chosen with seeds from 101 on.
func tuned() plan {
	return plan{
		train: 1500, validation: 150,
		warmupSteps: 300, warmupRows: 64, warmupRate: learner.Schedule{Peak: 4e-3, Final: 4e-4, Warmup: 20},
		care:  0.4,
		steps: 50, tasks: 12, group: 8, epochs: 2, minibatch: 128,
		rate: learner.Schedule{Peak: 2e-3, Final: 5e-4, Warmup: 5}, clip: rl.Clip{Low: 0.2, High: 0.3}, validateEvery: 5,
		model: native.Config{Dim: 32, Layers: 2, Heads: 2, Hidden: 128, Context: 24},
	}
}

// limits are those of every rollout.
func limits() agl.RolloutConfig {
	return agl.RolloutConfig{
		TimeoutSeconds: new(60.0), MaxAttempts: 3,
		RetryCondition: []agl.AttemptStatus{agl.AttemptFailed, agl.AttemptTimeout},
	}
}
