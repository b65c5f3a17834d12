// Command coding-agent chooses the instructions of an agent that mends Go code: it
// reads and edits tiny repositories and runs their tests in a sandbox. Its model
// is a script; see the README in this folder.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/dataset"
	"agentlightning/examples/coding-agent/sandbox"
	"agentlightning/examples/internal/lesson"
	"agentlightning/trainer"
)

// agentsAtOnce is how many repositories are worked on at once: the compiler uses
// the other cores.
const agentsAtOnce = 2

func main() { os.Exit(mainStatus(os.Args[1:], os.Stdout, os.Stderr)) }

func mainStatus(args []string, stdout, stderr io.Writer) int {
	return lesson.Main("coding-agent", "interrupted", stderr, func(ctx context.Context) error {
		o, err := parseOptions(args, stdout)
		if err != nil {
			return err
		}
		return run(ctx, o, stdout)
	})
}

func parseOptions(args []string, help io.Writer) (lesson.ScriptedOptions, error) {
	var o lesson.ScriptedOptions
	f := flag.NewFlagSet("coding-agent", flag.ContinueOnError)
	o.Register(f)
	err := o.Parse(f, args, help, "Chooses the instructions of an agent that mends Go code. Its model is a script.\n\n  go run ./examples/coding-agent")
	return o, err
}

func run(ctx context.Context, o lesson.ScriptedOptions, out io.Writer) (err error) {
	fmt.Fprintln(out, "The model is a script: this shows how coding agents are run, judged and chosen, not what models can do.")
	workshop, err := sandbox.Open(ctx, sandbox.Limits{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, workshop.Close()) }()
	script := &lesson.Script{Name: scriptedModel, Answer: answer}
	model, err := script.Serve(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, model.Close()) }()
	site, err := lesson.OpenOver(ctx, &lesson.Options{DB: o.DB, Port: o.Port}, out, slog.New(slog.DiscardHandler), model.Model)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, site.Close()) }()

	known, err := jobs("clamp", "leap", "words", "roman", "mean")
	if err != nil {
		return err
	}
	unseen, err := jobs("stack", "brackets")
	if err != nil {
		return err
	}
	train, err := algorithm.Tasks(known)
	if err != nil {
		return err
	}
	val, err := algorithm.Tasks(unseen)
	if err != nil {
		return err
	}
	choose := &choice{prompts: prompts(), llm: lesson.Resource("main_llm", site.URL, scriptedModel), out: out}
	k := &coder{workshop: workshop, http: lesson.Client(agentsAtOnce)}
	if err := trainer.Fit(ctx, trainer.Config{
		Agent: k.agent(), Algorithm: algorithm.Func(choose.run), Store: site.Store, Concurrency: agentsAtOnce,
	}, train, val); err != nil {
		return err
	}
	if err := choose.lesson(ctx, site, out); err != nil {
		return err
	}
	return lesson.Write(o.Report, &choose.report)
}

// lesson shows what the rollouts of the best prompt are to a trainer.
func (c *choice) lesson(ctx context.Context, site *lesson.Site, out io.Writer) error {
	stored, err := dataset.Stored(ctx, site.Store, algorithm.Stored{RunID: c.report.RunID, Mode: agl.ModeTrain})
	if err != nil {
		return err
	}
	rows, err := dataset.Demonstrations(stored, dataset.Selection{Min: new(1.0)})
	if err != nil {
		return err
	}
	tokens := 0
	for _, row := range rows {
		for _, m := range row.Mask {
			if m > 0 {
				tokens++
			}
		}
	}
	c.report.Rows, c.report.Tokens = len(rows), tokens
	fmt.Fprintf(out, "\nOf %d rollouts in training, those with reward 1 are %d rows for fine-tuning, with %d sampled tokens.\n", len(stored), len(rows), tokens)
	return nil
}
