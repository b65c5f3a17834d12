// Command sft trains the agent of examples/grid by reward-ranked fine-tuning: let
// it walk, keep the walks that were rewarded, imitate them, repeat; see the README
// in this folder.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/dataset"
	"agentlightning/examples/grid/walker"
	"agentlightning/examples/grid/world"
	"agentlightning/examples/internal/lesson"
	"agentlightning/learner"
	"agentlightning/learner/native"
	"agentlightning/trainer"
)

// modelName is the name under which the proxy knows the model in training.
const modelName = "sft-policy"

// plan holds the sizes and rates of the example.
type plan struct {
	train, validation int // tasks

	warmupSteps, warmupRows int
	warmupRate              learner.Schedule
	care                    float64 // of demonstrations, see package world

	// A round lets so many tasks be tried by a group each, keeps what is chosen,
	// and makes so many updates of so many rows.
	rounds, tasks, group int
	keep                 dataset.Selection
	updates, rows        int
	rate                 float64

	model native.Config // without the seed
}

// tuned is the plan that the example runs. It was chosen with seed 101.
func tuned() plan {
	return plan{
		train: 1500, validation: 150,
		warmupSteps: 300, warmupRows: 64, warmupRate: learner.Schedule{Peak: 4e-3, Final: 4e-4, Warmup: 20}, care: 0.4,
		rounds: 12, tasks: 64, group: 4, keep: dataset.Selection{Min: new(1.0)}, updates: 20, rows: 128, rate: 1e-3,
		model: native.Config{Dim: 32, Layers: 2, Heads: 2, Hidden: 128, Context: 24},
	}
}

func main() { os.Exit(mainStatus(os.Args[1:], tuned(), os.Stdout, os.Stderr)) }

func mainStatus(args []string, how plan, stdout, stderr io.Writer) int {
	return lesson.Main("sft", "interrupted", stderr, func(ctx context.Context) error {
		var o lesson.Options
		f := flag.NewFlagSet("sft", flag.ContinueOnError)
		o.Register(f, "")
		err := o.Parse(f, args, stdout, "Trains a small model on the best of what it does itself.\n\n"+
			"  go run ./examples/sft\n  go run ./examples/sft --shuffle-rewards")
		if err != nil {
			return err
		}
		return run(ctx, o, how, stdout, stderr)
	})
}

// report holds the figures of a run as --report writes them. A step is a round.
type report struct {
	Seed           int64 `json:"seed"`
	ShuffleRewards bool  `json:"shuffle_rewards"`
	lesson.Report
	// Kept is how many walks were imitated in each round.
	Kept []int `json:"kept"`
}

// run is the whole example in one process.
func run(ctx context.Context, o lesson.Options, how plan, stdout, stderr io.Writer) (err error) {
	if o.Steps > 0 {
		how.rounds = o.Steps
	}
	train, validation, err := world.Generate(uint64(o.Seed), how.train, how.validation)
	if err != nil {
		return err
	}
	logger := o.Logger(stderr)
	site, err := lesson.OpenOver(ctx, &o, stdout, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, site.Close()) }()
	how.model.Seed = o.Seed
	model, err := site.StartPolicy(ctx, modelName, how.model, walker.Tokenizer())
	if err != nil {
		return err
	}
	e := &experiment{
		Options: o, plan: how, train: train, validation: validation, model: model, out: stdout, show: lesson.NewDisplay(stdout),
		resources: agl.NamedResources{lesson.Resource("main_llm", site.URL, modelName)},
	}
	defer e.show.Close()
	tasks, err := algorithm.Tasks(train)
	if err != nil {
		return err
	}
	agent := &walker.Walker{Client: lesson.Client(o.Agents), Retries: 2}
	err = trainer.Fit(ctx, trainer.Config{
		Agent: agent.Agent(), Algorithm: e, Store: site.Store, Concurrency: o.Agents, Logger: logger,
	}, tasks, nil)
	if err != nil {
		return err
	}
	r := &e.figures
	fmt.Fprintf(stdout, "\nout of the house with the key, of %d validation tasks: %.1f%% before, %.1f%% after; %d rollouts (%d failed), %.0f s\n",
		how.validation, 100*r.Before, 100*r.After, r.Rollouts, r.FailedRollouts, r.Seconds)
	return lesson.Write(o.Report, r)
}
