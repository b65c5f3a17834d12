// Command charts has an agent that reads charts: pictures go to a model through
// the proxy, in two APIs, and prompts and sizes of pictures are compared by how
// far off the answers are. Its model is a script that looks at the pixels; see the
// README in this folder.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"

	"agentlightning/algorithm"
	"agentlightning/examples/internal/lesson"
	"agentlightning/trainer"
)

const (
	trainTasks      = 24
	validationTasks = 24
	agentsAtOnce    = 4

	// exampleScale is the size of the picture in the README.
	exampleScale = 4
)

func main() { os.Exit(mainStatus(os.Args[1:], os.Stdout, os.Stderr)) }

func mainStatus(args []string, stdout, stderr io.Writer) int {
	return lesson.Main("charts", "interrupted", stderr, func(ctx context.Context) error {
		o, err := parseOptions(args, stdout)
		if err != nil {
			return err
		}
		if o.picture != "" {
			return drawFirst(o)
		}
		return run(ctx, o, stdout)
	})
}

// options are what the command line says.
type options struct {
	lesson.ScriptedOptions

	seed    int64
	picture string
}

func parseOptions(args []string, help io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("charts", flag.ContinueOnError)
	o.Register(f)
	f.Int64Var(&o.seed, "seed", 1, "where the charts come from; the same seed repeats a run")
	f.StringVar(&o.picture, "picture", "", "draw the first chart into this `FILE` and do nothing else")
	err := o.Parse(f, args, help, "Compares how a chart is best shown and asked about. The model is a script.\n\n  go run ./examples/charts")
	return o, err
}

// drawn are the tasks of a seed, those for validation behind the others.
func drawn(seed int64) []task {
	return tasks(rand.New(rand.NewPCG(uint64(seed), 0xc4a7)), trainTasks+validationTasks)
}

func drawFirst(o options) error {
	first := drawn(o.seed)[0]
	file, err := first.Chart.Draw(exampleScale)
	if err != nil {
		return err
	}
	return os.WriteFile(o.picture, file, 0o644)
}

func run(ctx context.Context, o options, out io.Writer) (err error) {
	fmt.Fprintln(out, "The model is a script that measures pixels: this shows how pictures are sent, recorded and judged, not what models see.")
	script := &lesson.Script{Name: scriptedModel, Answer: answer, ImageTokens: imageTokens}
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
	all, err := algorithm.Tasks(drawn(o.seed))
	if err != nil {
		return err
	}
	c := &comparison{llm: lesson.Resource("main_llm", site.URL, scriptedModel), out: out, report: report{Seed: o.seed}}
	r := &reader{http: lesson.Client(agentsAtOnce)}
	if err := trainer.Fit(ctx, trainer.Config{
		Agent: r.agent(), Algorithm: algorithm.Func(c.run), Store: site.Store, Concurrency: agentsAtOnce,
	}, all[:trainTasks], all[trainTasks:]); err != nil {
		return err
	}
	i := c.report.Images
	fmt.Fprintf(out, "\nOf %d calls in these %d rollouts, %d triplets have the picture that was shown.\n"+
		"For training they are %d rows with %d pictures.\n", i.Calls, i.Rollouts, i.Triplets, i.Rows, i.Pictures)
	return lesson.Write(o.Report, &c.report)
}
