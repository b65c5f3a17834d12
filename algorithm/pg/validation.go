package pg

import (
	"context"
	"encoding/json"
	"fmt"

	agl "agentlightning"
	"agentlightning/algorithm"
)

// validates reports whether a step is followed by a validation.
func (t *training) validates(step int) bool {
	return len(t.env.Val) > 0 && (step == 0 || step == t.Steps || t.ValidateEvery > 0 && step%t.ValidateEvery == 0)
}

// validate lets agents work on the validation tasks with the weights of a step.
func (t *training) validate(ctx context.Context, s *Step) error {
	if len(t.Validation) == 0 {
		requests := make([]request, len(t.env.Val))
		for i, task := range t.env.Val {
			requests[i] = request{task: task, asked: asked{Step: s.Number, Group: i}}
		}
		var err error
		if t.Validation, err = t.enqueue(ctx, s.Number, "validation", agl.ModeVal, requests); err != nil {
			return err
		}
		if err := t.mark(ctx, s.Number); err != nil {
			return err
		}
	}
	outcomes, err := t.collect(ctx, s.Number, t.Validation)
	if err != nil {
		return fmt.Errorf("validation: %w", err)
	}
	if len(outcomes) != len(t.env.Val) {
		return fmt.Errorf("validation: it began with %d tasks, now there are %d: resume it with those that it began with", len(outcomes), len(t.env.Val))
	}
	s.count(outcomes)
	accuracy, rewarded := algorithm.MeanReward(outcomes)
	s.Metrics["validation_failed"] = float64(len(outcomes) - rewarded)
	describeValidation(outcomes, s.Metrics)
	if rewarded == 0 {
		return fmt.Errorf("validation: %w: %s", ErrNoRewards, s.LastFailure)
	}
	s.Accuracy = &accuracy
	s.Metrics["accuracy"] = accuracy
	t.bySource(s, outcomes)
	return nil
}

// bySource splits the result by where the tasks are from.
func (t *training) bySource(s *Step, outcomes []algorithm.Outcome) {
	parts := map[string][]algorithm.Outcome{}
	for i, task := range t.env.Val {
		var of struct {
			Source string `json:"data_source"`
		}
		if json.Unmarshal(task, &of) == nil && of.Source != "" {
			parts[of.Source] = append(parts[of.Source], outcomes[i])
		}
	}
	for source, part := range parts {
		mean, rewarded := algorithm.MeanReward(part)
		s.Metrics["val/"+source+"/n_rollouts"] = float64(len(part))
		s.Metrics["val/"+source+"/n_rollouts_w_reward"] = float64(rewarded)
		if rewarded == 0 {
			continue
		}
		if s.Sources == nil {
			s.Sources = map[string]float64{}
		}
		s.Sources[source] = mean
		s.Metrics["val/"+source+"/reward"] = mean
	}
}
