// Command first-algorithm is an algorithm of one's own in thirty lines: it finds
// the best of some prompts and spends little on the bad ones.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/algorithm"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/trainer"
)

// halving is the algorithm: it tries all prompts on two tasks, the better half on
// four, and so on until one is left (successive halving, arXiv:1502.07943).
func halving(prompts []string, out io.Writer) algorithm.Func {
	return func(ctx context.Context, env algorithm.Env) error {
		for n := min(2, len(env.Train)); len(prompts) > 1; n = min(2*n, len(env.Train)) {
			mean := map[string]float64{}
			for _, p := range prompts {
				// Publish what the rollouts are to be given …
				version, err := env.Store.AddResources(ctx, agl.NamedResources{
					{Name: "prompt", Resource: agl.PromptTemplate{Template: p, Engine: agl.EngineFString}},
				})
				if err != nil {
					return err
				}
				// … ask for rollouts …
				var asked []store.EnqueueRequest
				for _, task := range env.Train[:n] {
					asked = append(asked, store.EnqueueRequest{Input: task, Mode: agl.ModeTrain, ResourcesID: &version.ResourcesID})
				}
				ids, err := algorithm.Ask(ctx, env.Store, asked)
				if err != nil {
					return err
				}
				// … and read what became of them. One that failed has no reward; that is not 0.
				outcomes, err := algorithm.Collect(ctx, env.Store, ids, algorithm.Collecting{})
				if err != nil {
					return err
				}
				m, rewarded := algorithm.MeanReward(outcomes)
				mean[p] = m
				fmt.Fprintf(out, "%-22q %.2f over %d of %d\n", p, m, rewarded, n)
			}
			slices.SortStableFunc(prompts, func(a, b string) int { return int(100 * (mean[b] - mean[a])) })
			prompts = prompts[:(len(prompts)+1)/2]
		}
		fmt.Fprintf(out, "best: %q\n", prompts[0])
		return nil
	}
}

// sum is a task.
type sum struct{ A, B int }

// adder stands for an agent whose model does as its prompt says, and whose tool
// breaks on large numbers.
var adder = agent.WithPrompt(func(_ context.Context, s sum, p agl.PromptTemplate) (float64, error) {
	answer := s.A
	if strings.Contains(p.Template, "Add") {
		answer += s.B
	}
	if strings.Contains(p.Template, "tool") && s.A > 90 {
		return 0, errors.New("the tool is broken")
	}
	if strings.Contains(p.Template, "carefully") || answer < 10 {
		if answer == s.A+s.B {
			return 1, nil
		}
	}
	return 0, nil
})

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "first-algorithm:", err)
		os.Exit(1)
	}
}

// run wires the parts together: an agent, an algorithm, a store between them.
func run(ctx context.Context, out io.Writer) (err error) {
	s := engine.New(memory.New(), engine.Config{})
	defer func() { err = errors.Join(err, s.Close()) }()
	tasks, err := algorithm.Tasks([]sum{{1, 2}, {95, 5}, {3, 0}, {40, 2}, {7, 8}, {20, 20}, {4, 4}, {60, 1}})
	if err != nil {
		return err
	}
	prompts := []string{"Answer.", "Add.", "Add with the tool.", "Add carefully."}
	return trainer.Fit(ctx, trainer.Config{
		Agent: adder, Algorithm: halving(prompts, out), Store: s, Runners: 2,
	}, tasks, nil)
}
