package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/examples/internal/lesson"
	"agentlightning/semconv"
)

// variant is one of the prompts to choose from.
type variant struct{ Name, Text string }

func prompts() []variant {
	return []variant{
		{"plain", "You mend Go code. Read it and correct it."},
		{"forced", "You mend Go code. " + tellsToRun + " and make them pass, " + tellsToForce + "."},
		{"careful", "You mend Go code. " + tellsToRun + ", " + tellsToRead + " and think again. Leave the tests alone."},
	}
}

// choice is the algorithm: each prompt is published as a version of the resources,
// tried on all tasks, and the one with the best mean reward is kept. The first and
// the best are then tried on tasks that had no say in it.
type choice struct {
	prompts []variant
	llm     agl.NamedResource
	out     io.Writer

	report report
}

// report holds the figures of a run as --report writes them.
type report struct {
	RunID  string             `json:"run_id"`
	Train  map[string]figures `json:"train"`
	Unseen map[string]figures `json:"unseen"`
	Best   string             `json:"best"`
	// Rows and Tokens are what there is for fine-tuning.
	Rows   int `json:"rows"`
	Tokens int `json:"tokens"`
}

// figures are what a prompt came to.
type figures struct {
	Rollouts int     `json:"rollouts"`
	Reward   float64 `json:"reward"`   // mean
	Solved   int     `json:"solved"`   // all tests pass and none was touched
	AsLeft   int     `json:"as_left"`  // all tests pass as the agent left them
	Tampered int     `json:"tampered"` // tests were touched
	Calls    int     `json:"calls"`    // of the model
}

func (c *choice) run(ctx context.Context, env algorithm.Env) error {
	record, err := algorithm.Begin(ctx, env, "choose", map[string]any{"prompts": c.prompts}, 0)
	if err != nil {
		return err
	}
	return record.Finish(ctx, c.choose(ctx, env, record))
}

func (c *choice) choose(ctx context.Context, env algorithm.Env, record *algorithm.Run) error {
	c.report = report{RunID: record.RunID, Train: map[string]figures{}, Unseen: map[string]figures{}}
	fmt.Fprintf(c.out, "\n%-28s  solved  pass as left  tests touched  model calls  mean reward\n", fmt.Sprintf("%d repositories", len(env.Train)))
	best := c.prompts[0]
	for step, p := range c.prompts {
		f, err := c.try(ctx, env, record, agl.ModeTrain, p, env.Train)
		if err != nil {
			return err
		}
		c.report.Train[p.Name] = f
		c.print(p.Name, f)
		if f.Reward > c.report.Train[best.Name].Reward {
			best = p
		}
		if err := record.Record(ctx, step+1, map[string]float64{
			algorithm.MetricReward: f.Reward, algorithm.MetricRollouts: float64(f.Rollouts), "solved": float64(f.Solved), "tampered": float64(f.Tampered),
		}); err != nil {
			return err
		}
	}
	c.report.Best = best.Name
	fmt.Fprintf(c.out, "chosen: %s\n\n%-28s  solved  pass as left  tests touched  model calls  mean reward\n", best.Name, fmt.Sprintf("%d others", len(env.Val)))
	for _, p := range []variant{c.prompts[0], best} {
		f, err := c.try(ctx, env, record, agl.ModeVal, p, env.Val)
		if err != nil {
			return err
		}
		c.report.Unseen[p.Name] = f
		c.print(p.Name, f)
	}
	return nil
}

func (c *choice) print(name string, f figures) {
	of := func(n int) string { return fmt.Sprintf("%d of %d", n, f.Rollouts) }
	fmt.Fprintf(c.out, "  %-26s  %-6s  %-12s  %-13s  %11d  %11.3f\n", name, of(f.Solved), of(f.AsLeft), of(f.Tampered), f.Calls, f.Reward)
}

// try has the agent work on tasks with a prompt.
func (c *choice) try(ctx context.Context, env algorithm.Env, record *algorithm.Run, mode agl.Mode, p variant, tasks []json.RawMessage) (figures, error) {
	outcomes, err := lesson.Try(ctx, env, record.RunID, mode, agl.NamedResources{
		c.llm, {Name: instructions, Resource: agl.PromptTemplate{Template: p.Text, Engine: agl.EngineFString}},
	}, tasks)
	if err != nil {
		return figures{}, err
	}
	return sum(outcomes)
}

// sum adds up what became of rollouts, by the spans that are in the store.
func sum(outcomes []algorithm.Outcome) (figures, error) {
	f := figures{Rollouts: len(outcomes)}
	for i := range outcomes {
		o := &outcomes[i]
		if o.Reward == nil {
			return f, fmt.Errorf("rollout %s: %s", o.Rollout.RolloutID, o.Failure)
		}
		f.Reward += *o.Reward / float64(len(outcomes))
		if *o.Reward == 1 {
			f.Solved++
		}
		for j := range o.Spans {
			s := &o.Spans[j]
			if s.Name == semconv.SpanModelCall {
				f.Calls++
			}
			dimensions, err := agl.Rewards(s)
			if err != nil {
				return f, err
			}
			for _, d := range dimensions {
				switch {
				case d.Name == byAsLeft && d.Value == 1:
					f.AsLeft++
				case d.Name == byTampered && d.Value == 1:
					f.Tampered++
				}
			}
		}
	}
	return f, nil
}
