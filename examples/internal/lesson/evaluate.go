package lesson

import (
	"context"
	"encoding/json"
	"fmt"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/store"
)

// Evaluate lets agents work on tasks, one rollout each, sampled greedily, and
// returns the outcomes in the order of the tasks. The rollouts carry the run, if
// any, and when it was.
func Evaluate[T any](ctx context.Context, env algorithm.Env, limits agl.RolloutConfig, runID, when string, tasks []T) ([]algorithm.Outcome, error) {
	list, err := algorithm.Tasks(tasks)
	if err != nil {
		return nil, err
	}
	marks := map[string]string{"example.when": when}
	if runID != "" {
		marks["agl.run_id"] = runID
	}
	metadata, err := json.Marshal(marks)
	if err != nil {
		return nil, err
	}
	requests := make([]store.EnqueueRequest, len(list))
	for i, task := range list {
		requests[i] = store.EnqueueRequest{Input: task, Mode: agl.ModeTest, Config: &limits, Metadata: metadata}
	}
	ids, err := algorithm.Ask(ctx, env.Store, requests)
	if err != nil {
		return nil, err
	}
	return algorithm.Collect(ctx, env.Store, ids, algorithm.Collecting{})
}

// Accuracy is the mean reward of the rollouts that were rewarded; those that
// failed say nothing about the model.
func Accuracy(outcomes []algorithm.Outcome) (float64, error) {
	mean, n := algorithm.MeanReward(outcomes)
	if n == 0 && len(outcomes) > 0 {
		return 0, fmt.Errorf("none of %d rollouts was rewarded: %s", len(outcomes), outcomes[0].Failure)
	}
	return mean, nil
}
