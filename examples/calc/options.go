package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"agentlightning/adapter/credit"
	"agentlightning/algorithm/pg"
)

// The roles that a process can take.
const (
	roleAll       = "all"       // server, model, training and agents in one process
	roleAlgorithm = "algorithm" // model and training against a server
	roleRunner    = "runner"    // agents against a server
)

// options are what the command line says.
type options struct {
	role     string
	server   string
	token    string
	seed     int64
	report   string
	resume   bool
	shuffle  bool
	endpoint string
	model    string
	db       string
	folder   string
	problems string
	method   string
	credit   string
	port     int
	agents   int
	steps    int
	verbose  bool
}

func parseOptions(args []string, help io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("calc", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.role, "role", roleAll, "`ROLE` of this process: all, algorithm or runner; the last two need --server")
	f.StringVar(&o.server, "server", "", "`URL` of a server started with 'agl serve'")
	f.StringVar(&o.token, "token", "", "the server's token, when it has one")
	f.Int64Var(&o.seed, "seed", 1, "where every random choice comes from; the same seed repeats a run")
	f.StringVar(&o.report, "report", "", "write the figures as JSON to this `FILE`")
	f.BoolVar(&o.resume, "resume", false, "go on with the run that was interrupted last")
	f.BoolVar(&o.shuffle, "shuffle-rewards", false, "permute the rewards of each step: a control that must not learn")
	f.StringVar(&o.endpoint, "model-endpoint", "", "evaluate the model at this OpenAI-compatible `URL` instead of training one")
	f.StringVar(&o.model, "model", "", "`NAME` of the model at --model-endpoint")
	f.StringVar(&o.db, "db", "calc.db", "database `FILE` of --role all")
	f.StringVar(&o.folder, "data", "calc-data", "`FOLDER` for checkpoints and the problems as JSONL")
	f.StringVar(&o.problems, "problems", "", "`FOLDER` with train.jsonl, validation.jsonl and test.jsonl to use instead of generated problems")
	f.IntVar(&o.port, "port", 4747, "port of the server of --role all; taken, the next free one is used")
	f.IntVar(&o.agents, "agents", 0, "how many agents work at once; 0 means 64")
	f.IntVar(&o.steps, "steps", 0, "training steps; 0 means what the example is tuned for")
	f.StringVar(&o.method, "method", "", "train with this `PRESET` as published ("+strings.Join(pg.Presets(), ", ")+"), rather than what the example is tuned for")
	f.StringVar(&o.credit, "credit", "", "`RULE` that says which call earned what: "+credit.Syntax+"; empty means identical")
	f.BoolVar(&o.verbose, "verbose", false, "log what the server and the runners do to standard error")
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(help, "Trains a small model to use a calculator, and shows it getting better.\n\n"+
			"  go run ./examples/calc\n  go run ./examples/calc --resume\n"+
			"  go run ./examples/calc --model-endpoint http://127.0.0.1:8000/v1 --model NAME\n\n")
		f.SetOutput(help)
		f.PrintDefaults()
		return o, err
	}
	if err != nil {
		return o, fmt.Errorf("%w; see --help", err)
	}
	return o, o.validate(f.Args())
}

func (o *options) validate(rest []string) error {
	o.server = strings.TrimSuffix(o.server, "/")
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q; see --help", rest[0])
	case o.role != roleAll && o.role != roleAlgorithm && o.role != roleRunner:
		return fmt.Errorf("--role %s: must be all, algorithm or runner", o.role)
	case o.role != roleAll && o.server == "":
		return fmt.Errorf("--role %s needs --server URL: start one with 'go run ./cmd/agl serve'", o.role)
	case o.role == roleAll && o.server != "":
		return errors.New("--server goes with --role algorithm or --role runner")
	case (o.endpoint == "") != (o.model == ""):
		return errors.New("--model-endpoint and --model go together")
	case o.endpoint != "" && o.role != roleAll:
		return errors.New("--model-endpoint evaluates in one process; leave --role out")
	case o.method != "" && !slices.Contains(pg.Presets(), o.method):
		return fmt.Errorf("--method %s: must be one of %v", o.method, pg.Presets())
	case o.agents < 0:
		return fmt.Errorf("--agents %d: must be at least 1", o.agents)
	case o.steps < 0:
		return fmt.Errorf("--steps %d: must be at least 1", o.steps)
	}
	if o.credit != "" {
		if _, err := credit.Parse(o.credit); err != nil {
			return fmt.Errorf("--credit: %w", err)
		}
	}
	if o.agents == 0 {
		o.agents = 64
	}
	return nil
}

// trainingMethod is what --method and --credit ask for, or the tuned one.
func (o *options) trainingMethod(tuned pg.Method) (pg.Method, error) {
	m := tuned
	var err error
	if o.method != "" {
		if m, err = pg.Preset(o.method); err != nil {
			return m, err
		}
	}
	if o.credit != "" {
		m.Credit, err = credit.Parse(o.credit)
	}
	return m, err
}
