package storetest

import (
	agl "agentlightning"
	"agentlightning/store"
)

func wholeTests() []test {
	return []test{
		{"statistics count", "", func(f *fixture) {
			before := must(f.Statistics(f.Context()))(f)
			if before.Name == "" {
				f.Error("the name of the store is empty")
			}
			a := f.claimed(agl.RolloutConfig{}).Attempt
			f.startAttempt(a.RolloutID)
			f.addSpans(newSpan(a, 1), newSpan(a, 2), newSpan(a, 3))
			f.addResources(prompt("x"))
			f.beat("w")
			got := must(f.Statistics(f.Context()))(f)
			equal(f, "rollouts", got.TotalRollouts-before.TotalRollouts, 1)
			equal(f, "attempts", got.TotalAttempts-before.TotalAttempts, 2)
			equal(f, "spans", got.TotalSpans-before.TotalSpans, 3)
			equal(f, "resources", got.TotalResources-before.TotalResources, 1)
			equal(f, "workers", got.TotalWorkers-before.TotalWorkers, 1)
			f.pass(1)
			if later := must(f.Statistics(f.Context()))(f); later.Uptime <= got.Uptime {
				f.Errorf("uptime = %v, want more than %v", later.Uptime, got.Uptime)
			}
		}},
		{"a closed store says so", "", func(f *fixture) {
			s := f.reopen(0)
			f.ok(s.Close())
			f.ok(s.Close())
			_, err := s.Rollout(f.Context(), "ro-x")
			f.refused(err, store.ErrClosed, "")
			_, err = s.EnqueueRollouts(f.Context(), []store.EnqueueRequest{{}})
			f.refused(err, store.ErrClosed, "")
			_, err = s.WaitForRollouts(f.Context(), []string{"ro-x"}, forever)
			f.refused(err, store.ErrClosed, "")
		}},
	}
}
