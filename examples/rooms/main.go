// Command rooms improves the prompts of an agent that books meeting rooms, by GEPA
// and by APO. The models are scripts: it shows how the searches work, and says
// nothing about language models; see the README in this folder.
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

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/algorithm/apo"
	"agentlightning/algorithm/gepa"
	"agentlightning/examples/internal/lesson"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/store/sqlite"
	"agentlightning/trainer"
)

const scriptedModel = "scripted"

// Sizes of the searches: as many rollouts for GEPA as APO takes.
const (
	trainTasks      = 24
	validationTasks = 24
	agentsAtOnce    = 8
)

func main() { os.Exit(mainStatus(os.Args[1:], os.Stdout, os.Stderr)) }

func mainStatus(args []string, stdout, stderr io.Writer) int {
	return lesson.Main("rooms", "interrupted", stderr, func(ctx context.Context) error {
		o, err := parseOptions(args, stdout)
		if err != nil {
			return err
		}
		return run(ctx, o, stdout)
	})
}

// options are what the command line says.
type options struct {
	seed   int64
	method string
	report string
	db     string
}

func parseOptions(args []string, help io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("rooms", flag.ContinueOnError)
	f.Int64Var(&o.seed, "seed", 1, "where every random choice comes from; the same seed repeats a run")
	f.StringVar(&o.method, "method", "both", "`SEARCH`: gepa, apo or both")
	f.StringVar(&o.report, "report", "", "write the figures as JSON to this `FILE`")
	f.StringVar(&o.db, "db", "", "keep what was done in this database `FILE`")
	if err := lesson.ParseFlags(f, args, help, "Improves the prompts of an agent that books rooms. The models are scripts.\n\n  go run ./examples/rooms"); err != nil {
		return o, err
	}
	if o.method != "gepa" && o.method != "apo" && o.method != "both" {
		return o, fmt.Errorf("--method %s: must be gepa, apo or both", o.method)
	}
	return o, nil
}

// report holds the figures of a run as --report writes them.
type report struct {
	Seed    int64                   `json:"seed"`
	Methods map[string]methodReport `json:"methods"`
}

// methodReport is what one search came to: the mean reward on the validation
// tasks of the first prompts and of the best ones.
type methodReport struct {
	Before   float64           `json:"before"`
	After    float64           `json:"after"`
	Rollouts int               `json:"rollouts"`
	Prompts  map[string]string `json:"prompts"`
}

// initial are the prompts that the searches begin with.
var initial = map[string]string{
	choose: "You book meeting rooms.",
	reply:  "Be polite.",
}

func run(ctx context.Context, o options, out io.Writer) error {
	fmt.Fprintln(out, "Both models are scripts: this shows how the searches work, not what language models can do.")
	r := report{Seed: o.seed, Methods: map[string]methodReport{}}
	for _, search := range []struct {
		name string
		run  func(ctx context.Context, o options, out io.Writer) (methodReport, error)
	}{{"gepa", runGEPA}, {"apo", runAPO}} {
		if o.method != "both" && o.method != search.name {
			continue
		}
		fmt.Fprintf(out, "\n%s\n", search.name)
		figures, err := search.run(ctx, o, out)
		if err != nil {
			return fmt.Errorf("%s: %w", search.name, err)
		}
		r.Methods[search.name] = figures
		fmt.Fprintf(out, "  mean reward %.3f before, %.3f after, %d rollouts\n", figures.Before, figures.After, figures.Rollouts)
		for _, name := range []string{choose, reply} {
			fmt.Fprintf(out, "  %-7s %s\n", name+":", figures.Prompts[name])
		}
	}
	return lesson.Write(o.report, &r)
}

func runGEPA(ctx context.Context, o options, out io.Writer) (methodReport, error) {
	g, err := gepa.New(gepa.Config{
		Completer: newReviser(o.seed), Components: []string{choose, reply}, Minibatch: 4, MaxEvaluations: 400,
		Perfect: new(1.0), MaxFailures: 20, Seed: o.seed,
		OnIteration: func(i gepa.Iteration) {
			what := "rejected: " + i.Reason
			if i.Accepted != nil {
				score, _ := i.Accepted.Score()
				what = fmt.Sprintf("accepted as candidate %d, %.3f", i.Accepted.ID, score)
			}
			if i.Component == "" {
				i.Component = "merge"
			}
			fmt.Fprintf(out, "  iteration %2d  %-7s of %v  %s  best %.3f  %d rollouts\n", i.Number, i.Component, i.Parents, what, i.Best, i.Spent.Evaluations)
		},
	})
	if err != nil {
		return methodReport{}, err
	}
	rollouts, err := search(ctx, g, o)
	if err != nil {
		return methodReport{}, err
	}
	result, ok := g.Result()
	if !ok {
		return methodReport{}, errors.New("nothing was scored")
	}
	before, _ := result.Candidates[0].Score()
	figures := methodReport{Before: before, After: result.Score, Rollouts: rollouts, Prompts: map[string]string{}}
	for name, template := range result.Best.Templates {
		figures.Prompts[name] = template.Template
	}
	return figures, nil
}

func runAPO(ctx context.Context, o options, out io.Writer) (methodReport, error) {
	var figures methodReport
	a, err := apo.New(apo.Config{
		// APO improves one template; the other stays as it is. The script reads
		// instructions of this form only.
		Completer: newReviser(o.seed), Template: choose,
		EditPrompts:   []apo.Instruction{{User: "The prompt:\n\n{prompt}\n\nThe review:\n\n{critique}"}},
		GradientBatch: 4, ValBatch: 8, BeamWidth: 2, BranchFactor: 2, Rounds: 5, Seed: o.seed,
		OnRound: func(r apo.Round) {
			if r.Number == 0 {
				figures.Before = *r.Best.Score
			}
			fmt.Fprintf(out, "  round %d of %d  first in the beam is %s, %.3f  best %s, %.3f\n",
				r.Number, r.Of, r.Leader.Version, *r.Leader.Score, r.Best.Version, *r.Best.Score)
		},
	})
	if err != nil {
		return figures, err
	}
	if figures.Rollouts, err = search(ctx, a, o); err != nil {
		return figures, err
	}
	best, err := a.Best()
	if err != nil {
		return figures, err
	}
	figures.Prompts = map[string]string{choose: best.Template.Template, reply: initial[reply]}
	figures.After = *best.Score
	return figures, nil
}

func newReviser(seed int64) *reviser {
	return &reviser{rand.New(rand.NewPCG(uint64(seed), 0x5c))}
}

// search runs an algorithm on the agent, with the scripted assistant behind the
// proxy of a server of this process, and returns how many rollouts it took.
func search(ctx context.Context, a algorithm.Algorithm, o options) (rollouts int, err error) {
	model, err := (&lesson.Script{Name: scriptedModel, Answer: answer}).Serve(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, model.Close()) }()
	var backend engine.Backend = memory.New()
	if o.db != "" {
		if backend, err = sqlite.Open(ctx, sqlite.Config{Path: o.db}); err != nil {
			return 0, err
		}
	}
	site, err := lesson.OpenSite(ctx, 0, backend, []agl.Model{model.Model}, slog.New(slog.DiscardHandler))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, site.Close()) }()
	if err := site.AbandonOpenWork(ctx); err != nil { // of an earlier run
		return 0, err
	}
	before, err := stored(ctx, site.Store)
	if err != nil {
		return 0, err
	}
	tasks, err := algorithm.Tasks(wishes(uint64(o.seed), trainTasks+validationTasks))
	if err != nil {
		return 0, err
	}
	resources := agl.NamedResources{lesson.Resource("main_llm", site.URL, scriptedModel)}
	for _, name := range []string{choose, reply} {
		resources = append(resources, agl.NamedResource{Name: name, Resource: agl.PromptTemplate{Template: initial[name], Engine: agl.EngineFString}})
	}
	b := &booker{http: lesson.Client(agentsAtOnce)}
	err = trainer.Fit(ctx, trainer.Config{
		Agent: b.agent(), Algorithm: a, Store: site.Store, Concurrency: agentsAtOnce, InitialResources: resources,
	}, tasks[:trainTasks], tasks[trainTasks:])
	if err != nil {
		return 0, err
	}
	after, err := stored(ctx, site.Store)
	return after - before, err
}

// stored is how many rollouts there are.
func stored(ctx context.Context, s store.Store) (int, error) {
	page, err := s.QueryRollouts(ctx, store.RolloutQuery{Paging: store.Paging{Limit: 1}})
	return page.Total, err
}
