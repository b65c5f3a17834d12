// Command debug tries an agent out before anything learns: step does one rollout
// by hand, hooks looks on from outside, and dev runs the agent over its tasks.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"agentlightning/agent"
	"agentlightning/algorithm"
	"agentlightning/algorithm/baseline"
	"agentlightning/emit"
	"agentlightning/examples/internal/lesson"
	"agentlightning/runner"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/trainer"
)

const usage = `usage: debug step|hooks|dev

  step    do one rollout by hand, and see why another one fails
  hooks   look on from outside while the agent works
  dev     run the agent over its tasks, without learning
`

func main() { lesson.MainOf(mainStatus) }

func mainStatus(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return lesson.Choose(ctx, "debug", "way", usage, map[string]lesson.Way{"step": step, "hooks": hooks, "dev": dev}, args, stdout, stderr)
}

// step does rollouts one by one, without a queue: a place for a debugger.
func step(ctx context.Context, out io.Writer) (err error) {
	s := engine.New(memory.New(), engine.Config{})
	defer func() { err = errors.Join(err, s.Close()) }()
	r, err := runner.New(runner.Config{Store: s, Agent: adder})
	if err != nil {
		return err
	}

	done, err := r.Step(ctx, runner.Task{Input: json.RawMessage(`{"text":"2 + 3","answer":5}`), Resources: instruction()})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "rollout %s in attempt %d\n", done.Status, done.Attempt.SequenceID)
	page, err := s.QuerySpans(ctx, store.SpanQuery{RolloutID: done.RolloutID})
	if err != nil {
		return err
	}
	for i := range page.Items {
		span := &page.Items[i]
		fmt.Fprintf(out, "  %d %s %s\n", span.SequenceID, span.Name, span.Attributes.AppendJSON(nil))
	}

	// Unlike a runner that serves a queue, Step returns why the agent failed. The
	// agent is given the resources that were published last.
	_, err = r.Step(ctx, runner.Task{Input: json.RawMessage(`{"text":"2 + x","answer":5}`)})
	failed, ok := errors.AsType[*runner.AttemptError](err)
	switch {
	case err == nil:
		return errors.New("the agent was to fail, and did not")
	case !ok:
		return err
	}
	fmt.Fprintf(out, "failed by the %s: %v\n", failed.Reason, failed.Err)
	return nil
}

// hooks looks on without a line in the agent.
func hooks(ctx context.Context, out io.Writer) error {
	_, err := try(ctx, agent.Hook{
		OnRolloutStart: func(_ context.Context, c *agent.Call) error {
			fmt.Fprintf(out, "rollout starts: %s\n", c.Rollout.Input)
			return nil
		},
		OnTraceStart: func(context.Context, *agent.Call) error {
			fmt.Fprintln(out, "  trace starts")
			return nil
		},
		OnTraceEnd: func(ctx context.Context, _ *agent.Call) error {
			fmt.Fprintln(out, "  trace ends")
			return emit.Message(ctx, "seen by a hook") // hooks record spans as agents do
		},
		OnRolloutEnd: func(_ context.Context, _ *agent.Call, o agent.Outcome) error {
			fmt.Fprintf(out, "rollout ends: %d spans, ", len(o.Spans))
			printEnd(out, o.Reward, o.Err)
			return nil
		},
	})
	return err
}

// dev shows how each task ended.
func dev(ctx context.Context, out io.Writer) error {
	results, err := try(ctx)
	for _, r := range results {
		fmt.Fprintf(out, "task %d %s: %d spans, ", r.Index, r.Rollout.Status, len(r.Spans))
		printEnd(out, r.Reward, r.Failure)
	}
	return err
}

// try runs the agent over its tasks once.
func try(ctx context.Context, hooks ...agent.Hook) (results []baseline.Result, err error) {
	s := engine.New(memory.New(), engine.Config{})
	defer func() { err = errors.Join(err, s.Close()) }()
	tasks, err := algorithm.Tasks(sums())
	if err != nil {
		return nil, err
	}
	return trainer.Dev(ctx, trainer.Config{Agent: adder, Store: s, InitialResources: instruction(), Hooks: hooks}, tasks, nil)
}

// printEnd prints a reward, or why there is none.
func printEnd(out io.Writer, reward *float64, why any) {
	if reward == nil {
		fmt.Fprintf(out, "no reward: %v\n", why)
		return
	}
	fmt.Fprintf(out, "reward %v\n", *reward)
}
