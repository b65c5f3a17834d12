package main

import (
	"context"
	"fmt"
	"strconv"

	"agentlightning/algorithm"
	"agentlightning/examples/calc/problem"
	"agentlightning/examples/internal/lesson"
)

// wantedSamples is how many conversations are shown at the end.
const wantedSamples = 3

// figures reads the outcome of the test; problems and outcomes correspond.
func figures(problems []problem.Problem, outcomes []algorithm.Outcome) (*testFigures, error) {
	var parts [2][]algorithm.Outcome
	f := &testFigures{Talks: map[string]talk{}, Rollouts: len(outcomes)}
	for i, p := range problems {
		part := 0
		if p.Unseen {
			part = 1
		}
		parts[part] = append(parts[part], outcomes[i])
		if outcomes[i].Reward == nil {
			f.Failed++
		} else {
			f.Talks[p.ID] = talk{Right: *outcomes[i].Reward == 1, Lines: lesson.Conversation(outcomes[i].Spans, "")}
		}
	}
	for i, share := range []*float64{&f.Seen, &f.Unseen} {
		if len(parts[i]) == 0 {
			continue // people's own problems need not have both
		}
		var err error
		if *share, err = lesson.Accuracy(parts[i]); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// conclude fills the report from what the store knows, so that it is whole
// after an interruption, too.
func (e *experiment) conclude(ctx context.Context, env algorithm.Env, p progress, after *testFigures) error {
	r := &e.figures
	r.Seed, r.ShuffleRewards = e.Seed, e.Shuffle
	r.TestSeenBefore, r.TestBefore = p.Before.Seen, p.Before.Unseen
	r.TestSeen, r.Test = after.Seen, after.Unseen
	for _, f := range []*testFigures{p.Before, after} {
		r.Rollouts += f.Rollouts
		r.FailedRollouts += f.Failed
		r.Seconds += f.Seconds
	}
	e.samples = chooseSamples(e.data.Test, p.Before.Talks, after.Talks)
	warmup, err := env.Store.StepMetrics(ctx, p.Warmup, -1)
	if err != nil {
		return fmt.Errorf("metrics of the warm-up: %w", err)
	}
	for _, m := range warmup {
		r.Seconds += m.Values[algorithm.MetricStepSeconds]
	}
	return e.fillCurve(ctx, env, p.Training)
}

// chooseSamples takes a conversation of each of some kinds of problems: those
// that became right, if there are any.
func chooseSamples(problems []problem.Problem, before, after map[string]talk) []sample {
	var out []sample
	shown := map[problem.Kind]bool{}
	for _, improvedOnly := range []bool{true, false} {
		for _, p := range problems {
			b, a := before[p.ID], after[p.ID]
			if len(out) == wantedSamples || shown[p.Kind] || improvedOnly && (b.Right || !a.Right) {
				continue
			}
			shown[p.Kind] = true
			out = append(out, sample{Question: p.Question, Answer: strconv.Itoa(p.Answer), Before: b.Lines, After: a.Lines})
		}
	}
	return out
}

// fillCurve reads the curve from the metrics of the training.
func (e *experiment) fillCurve(ctx context.Context, env algorithm.Env, runID string) error {
	metrics, err := env.Store.StepMetrics(ctx, runID, -1)
	if err != nil {
		return fmt.Errorf("curve: %w", err)
	}
	for _, m := range metrics {
		e.figures.AddStep(m.Step, m.Values)
	}
	return nil
}
