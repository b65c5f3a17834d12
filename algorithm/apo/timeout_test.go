package apo_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/algorithm/apo"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/trainer"
)

// Rollouts that do not finish in time are left out; others that fail count as 0.
func TestTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := engine.New(memory.New(), engine.Config{})
		defer s.Close()
		a, err := apo.New(apo.Config{
			Completer: &growing{}, GradientBatch: 1, BeamWidth: 1, BranchFactor: 1, Rounds: 1, Timeout: time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		started := time.Now()
		err = trainer.Fit(t.Context(), trainer.Config{
			Agent: agent.WithPrompt(func(ctx context.Context, task task, _ agl.PromptTemplate) (float64, error) {
				switch task.Question {
				case "hangs":
					<-ctx.Done()
					return 0, ctx.Err()
				case "fails":
					return 0, context.DeadlineExceeded
				}
				return 1, nil
			}),
			Store: s, Algorithm: a, InitialResources: initial("Q: {question}"), Runners: 8,
		}, tasks(t, "t0"), tasks(t, "good", "hangs", "fails"))
		if err != nil {
			t.Fatal(err)
		}
		best, err := a.Best()
		if err != nil || best.Version != "v0" || *best.Score != 0.5 {
			t.Errorf("Best() = %+v, %v, want v0 with 0.5", best, err)
		}
		// Four evaluations on the validation tasks, each of which hangs.
		if took := time.Since(started); took < 4*time.Minute || took > 5*time.Minute {
			t.Errorf("took %v, want the time-out four times", took)
		}
	})
}
