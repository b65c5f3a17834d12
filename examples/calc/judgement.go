package main

import (
	"context"
	"fmt"
	"io"
	"time"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/examples/calc/problem"
	"agentlightning/examples/internal/lesson"
)

// judgement is the evaluation of a model that is not trained here.
type judgement struct {
	options
	plan      plan
	data      problem.Dataset
	resources agl.NamedResources
	out       io.Writer
}

func (j *judgement) Run(ctx context.Context, env algorithm.Env) error {
	started := time.Now()
	if _, err := env.Store.AddResources(ctx, j.resources); err != nil {
		return err
	}
	fmt.Fprintf(j.out, "%s at %s works on %d problems\n", j.model, j.endpoint, len(j.data.Validation)+len(j.data.Test))
	outcomes, err := lesson.Evaluate(ctx, env, j.plan.limits(), "", "judgement", j.data.Validation)
	if err != nil {
		return err
	}
	r := report{Seed: j.Seed}
	r.Rollouts = len(j.data.Validation) + len(j.data.Test)
	if r.After, err = lesson.Accuracy(outcomes); err != nil {
		return fmt.Errorf("validation: %w", err)
	}
	tests, err := lesson.Evaluate(ctx, env, j.plan.limits(), "", "judgement", j.data.Test)
	if err != nil {
		return err
	}
	f, err := figures(j.data.Test, tests)
	if err != nil {
		return fmt.Errorf("test: %w", err)
	}
	r.Before, r.Test, r.TestSeen, r.Seconds = r.After, f.Unseen, f.Seen, time.Since(started).Seconds()
	for _, o := range append(outcomes, tests...) {
		if o.Reward == nil {
			r.FailedRollouts++
		}
	}
	fmt.Fprintf(j.out, "validation %.1f%%  test, known templates %.1f%%  test, other templates %.1f%%  failed %d  %.0f s\n",
		100*r.After, 100*r.TestSeen, 100*r.Test, r.FailedRollouts, r.Seconds)
	for _, id := range []int{0, len(j.data.Test) / 2, len(j.data.Test) - 1} {
		p := j.data.Test[id]
		fmt.Fprintf(j.out, "\n%s  (right: %d)\n  %s\n", p.Question, p.Answer, lesson.OneLine(f.Talks[p.ID].Lines))
	}
	return lesson.Write(j.Report, &r)
}
