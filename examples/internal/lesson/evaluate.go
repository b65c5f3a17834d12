package lesson

import (
	"context"
	"encoding/json"
	"fmt"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/semconv"
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

// Try publishes resources, lets the agent work on tasks with them, one rollout
// each, and returns the outcomes in the order of the tasks. The rollouts carry the
// run.
func Try(ctx context.Context, env algorithm.Env, runID string, mode agl.Mode, resources agl.NamedResources, tasks []json.RawMessage) ([]algorithm.Outcome, error) {
	version, err := env.Store.AddResources(ctx, resources)
	if err != nil {
		return nil, err
	}
	metadata, err := json.Marshal(map[string]string{semconv.MetadataRunID: runID})
	if err != nil {
		return nil, err
	}
	asked := make([]store.EnqueueRequest, len(tasks))
	for i, task := range tasks {
		asked[i] = store.EnqueueRequest{Input: task, Mode: mode, ResourcesID: &version.ResourcesID, Metadata: metadata}
	}
	ids, err := algorithm.Ask(ctx, env.Store, asked)
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
