package runner_test

import (
	"context"
	"slices"
	"testing"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/runner"
	"agentlightning/store"
)

// TestGiveBack: a rollout whose agent is stopped with its runner is done by the
// next runner, however few attempts it was allowed, and is never seen as failed.
func TestGiveBack(t *testing.T) {
	silent := []agl.AttemptStatus{agl.AttemptUnresponsive}
	for name, tt := range map[string]struct {
		config *agl.RolloutConfig
		most   int // attempts allowed afterwards
	}{
		"no retries":            {nil, 2},
		"retries of failures":   {&agl.RolloutConfig{MaxAttempts: 3, RetryCondition: []agl.AttemptStatus{agl.AttemptFailed}}, 4},
		"retries of silence":    {&agl.RolloutConfig{MaxAttempts: 2, RetryCondition: silent}, 2},
		"no attempt of its own": {&agl.RolloutConfig{MaxAttempts: 1, RetryCondition: silent}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bench) {
				started := make(chan struct{})
				stop := b.start(runner.Config{GiveBack: true, Agent: agent.New(func(ctx context.Context, _ task, _ *agent.Call) (float64, error) {
					close(started)
					<-ctx.Done()
					return 0, ctx.Err()
				})})
				id := b.enqueue(tt.config, 1)[0]
				<-started
				stop()
				r, err := b.store.Rollout(b.Context(), id)
				if err != nil || r.Status != agl.RolloutRequeuing || r.Attempt.Status != agl.AttemptUnresponsive || r.Config.MaxAttempts != tt.most {
					b.Fatalf("rollout is %s with attempt %s of %d, %v, want requeuing of %d", r.Status, r.Attempt.Status, r.Config.MaxAttempts, err, tt.most)
				}
				if reason, _, _ := failure(b, *r.Attempt); reason != "stopped" {
					b.Errorf("reason %q, want stopped", reason)
				}
				defer b.start(runner.Config{Agent: good})()
				if r := b.finish(id)[0]; r.Status != agl.RolloutSucceeded || r.Attempt.SequenceID != 2 {
					b.Errorf("rollout %s in attempt %d, want the second to succeed", r.Status, r.Attempt.SequenceID)
				}
			})
		})
	}
}

var good = agent.New(func(context.Context, task, *agent.Call) (float64, error) { return 1, nil })

// TestReclaim: what a runner was doing that died is given back by the next one
// with its name, and what others do is left alone.
func TestReclaim(t *testing.T) {
	bubble(t, func(b *bench) {
		ids := b.enqueue(nil, 1, 2, 3)
		slices.Sort(ids)
		for i, worker := range []string{"mine", "other"} {
			if _, err := b.store.DequeueRollouts(b.Context(), store.DequeueRequest{WorkerID: &worker, Limit: i + 1}); err != nil {
				b.Fatal(err)
			}
		}
		defer b.start(runner.Config{Agent: good, WorkerID: "mine", Reclaim: true, GiveBack: true})()
		page, err := b.store.QueryRollouts(b.Context(), store.RolloutQuery{})
		if err != nil {
			b.Fatal(err)
		}
		for _, r := range page.Items {
			if r.Attempt != nil && *r.Attempt.WorkerID == "mine" {
				if done := b.finish(r.RolloutID)[0]; done.Status != agl.RolloutSucceeded || done.Attempt.SequenceID != 2 {
					b.Errorf("what it left is %s in attempt %d, want success in the second", done.Status, done.Attempt.SequenceID)
				}
			} else if now, err := b.store.Rollout(b.Context(), r.RolloutID); err != nil || now.Status != agl.RolloutPreparing || now.Attempt.SequenceID != 1 {
				b.Errorf("what another runner does is %s, %v, want it left alone", now.Status, err)
			}
		}
	})
}
