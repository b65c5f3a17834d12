package runner_test

import (
	"encoding/json"
	"testing"
	"time"

	"agentlightning/runner"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// BenchmarkRollout is what everything around an agent costs, on the memory
// store in one process.
func BenchmarkRollout(b *testing.B) {
	s := engine.New(memory.New(), engine.Config{HealthScanInterval: 10 * time.Second})
	defer s.Close()
	reqs := make([]store.EnqueueRequest, b.N)
	for i := range reqs {
		reqs[i].Input = json.RawMessage(`{"n":1}`)
	}
	if _, err := s.EnqueueRollouts(b.Context(), reqs); err != nil {
		b.Fatal(err)
	}
	r, err := runner.New(runner.Config{Store: s, Agent: rewardAgent(1), MaxRollouts: b.N, Concurrency: 16})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	if err := r.Run(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rollouts/s")
}
