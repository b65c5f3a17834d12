package pg

import (
	"math"
	"slices"

	"agentlightning/algorithm"
)

// lifecycle tells how long rollouts waited in the queue, ran, and took in all, in
// seconds, under the names of the 1.0 trainer. One that was tried several times
// waited until its last attempt.
func lifecycle(outcomes []algorithm.Outcome, to map[string]float64) {
	var wait, run, total []float64
	missing := 0
	for i := range outcomes {
		r := &outcomes[i].Rollout
		if r.Attempt == nil || r.EndTime == nil {
			missing++
			continue
		}
		wait = append(wait, r.Attempt.StartTime-r.StartTime)
		run = append(run, *r.EndTime-r.Attempt.StartTime)
		total = append(total, *r.EndTime-r.StartTime)
	}
	for name, values := range map[string][]float64{
		"timing/rollout_queue_wait_s": wait, "timing/rollout_run_duration_s": run, "timing/rollout_total_s": total,
	} {
		for part, v := range spread(values) {
			to[name+"/"+part] = v
		}
	}
	to["timing/rollout_n_missing_running_ts"] = float64(missing)
}

// speeds adds how long the step took, and for how many tokens. Those that were
// trained on are counted by the learner, those sampled in all model calls by us.
func (s *Step) speeds() {
	m := s.Metrics
	seconds := s.Elapsed.Seconds()
	m["seconds"], m["perf/time_per_step"] = seconds, seconds
	if trained := m["tokens"]; trained > 0 {
		m["perf/throughput"] = trained / seconds
		m["timing_per_token_ms/update_actor"] = 1000 * m["seconds_update"] / trained
	}
	if s.Tokens > 0 {
		m["timing_per_token_ms/gen"] = 1000 * m["seconds_rollouts"] / float64(s.Tokens)
	}
}

// spread describes values by their mean, the percentiles 50 and 90 (linear
// between neighbours) and the largest; of none there is nothing to say.
func spread(values []float64) map[string]float64 {
	if len(values) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(values))
	sum := 0.0
	for _, v := range sorted {
		sum += v
	}
	percentile := func(share float64) float64 {
		at := share * float64(len(sorted)-1)
		below := math.Floor(at)
		low, high := sorted[int(below)], sorted[int(math.Ceil(at))]
		return low + (at-below)*(high-low)
	}
	return map[string]float64{
		"mean": sum / float64(len(sorted)), "p50": percentile(0.5), "p90": percentile(0.9), "max": sorted[len(sorted)-1],
	}
}
