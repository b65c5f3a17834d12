package lesson

import (
	"encoding/json"
	"fmt"
	"os"

	"agentlightning/algorithm"
)

// Report holds the figures of a training as --report writes them. Accuracies are
// mean rewards on the validation tasks, sampled greedily.
type Report struct {
	Before          float64 `json:"before"` // validation after the warm-up
	After           float64 `json:"after"`  // validation at the end
	Seconds         float64 `json:"seconds"`
	Steps           int     `json:"steps"`
	Rollouts        int     `json:"rollouts"`
	FailedRollouts  int     `json:"failed_rollouts"`
	TokensPerSecond float64 `json:"tokens_per_second"` // sampled, while rollouts ran
	Curve           []Point `json:"curve"`

	tokens, waited float64
}

// Point is one step of the curve; what was not measured is null.
type Point struct {
	Step     int      `json:"step"`
	Reward   *float64 `json:"reward"`
	Accuracy *float64 `json:"accuracy"`
}

// AddStep adds a step of the training by the metrics that its run recorded.
func (r *Report) AddStep(step int, metrics map[string]float64) {
	p := Point{Step: step}
	if v, ok := metrics[algorithm.MetricReward]; ok {
		p.Reward = &v
	}
	if v, ok := metrics[algorithm.MetricValidationReward]; ok {
		p.Accuracy = &v
		if step == 0 {
			r.Before = v
		}
		r.After = v
	}
	r.Steps = step
	r.Rollouts += int(metrics[algorithm.MetricRollouts])
	r.FailedRollouts += int(metrics[algorithm.MetricFailed])
	r.Seconds += metrics[algorithm.MetricStepSeconds]
	r.tokens += metrics[algorithm.MetricSampledTokens]
	r.waited += metrics[algorithm.MetricRolloutSeconds]
	if r.waited > 0 {
		r.TokensPerSecond = r.tokens / r.waited
	}
	r.Curve = append(r.Curve, p)
}

// Write writes any report as JSON to a file; without a name it does nothing.
func Write(file string, report any) error {
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
