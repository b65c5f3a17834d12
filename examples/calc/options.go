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
	"agentlightning/examples/internal/lesson"
)

// The roles that a process can take.
const (
	roleAll       = "all"       // server, model, training and agents in one process
	roleAlgorithm = "algorithm" // model and training against a server
	roleRunner    = "runner"    // agents against a server
)

// options are what the command line says.
type options struct {
	lesson.Options

	role     string
	server   string
	token    string
	resume   bool
	endpoint string
	model    string
	folder   string
	problems string
	method   string
	credit   string
}

func parseOptions(args []string, help io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("calc", flag.ContinueOnError)
	o.Register(f, "calc.db")
	f.StringVar(&o.role, "role", roleAll, "`ROLE` of this process: all, algorithm or runner; the last two need --server")
	f.StringVar(&o.server, "server", "", "`URL` of a server started with 'agl serve'")
	f.StringVar(&o.token, "token", "", "the server's token, when it has one")
	f.BoolVar(&o.resume, "resume", false, "go on with the run that was interrupted last")
	f.StringVar(&o.endpoint, "model-endpoint", "", "evaluate the model at this OpenAI-compatible `URL` instead of training one")
	f.StringVar(&o.model, "model", "", "`NAME` of the model at --model-endpoint")
	f.StringVar(&o.folder, "data", "calc-data", "`FOLDER` for checkpoints and the problems as JSONL")
	f.StringVar(&o.problems, "problems", "", "`FOLDER` with train.jsonl, validation.jsonl and test.jsonl to use instead of generated problems")
	f.StringVar(&o.method, "method", "", "train with this `PRESET` as published ("+strings.Join(pg.Presets(), ", ")+"), rather than what the example is tuned for")
	f.StringVar(&o.credit, "credit", "", "`RULE` that says which call earned what: "+credit.Syntax+"; empty means identical")
	err := o.Parse(f, args, help, "Trains a small model to use a calculator, and shows it getting better.\n\n"+
		"  go run ./examples/calc\n  go run ./examples/calc --resume\n"+
		"  go run ./examples/calc --model-endpoint http://127.0.0.1:8000/v1 --model NAME")
	if err != nil {
		return o, err
	}
	return o, o.validate()
}

func (o *options) validate() error {
	o.server = strings.TrimSuffix(o.server, "/")
	switch {
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
	}
	if o.credit != "" {
		if _, err := credit.Parse(o.credit); err != nil {
			return fmt.Errorf("--credit: %w", err)
		}
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
