package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	agl "agentlightning"
	"agentlightning/examples/calc/calculator"
	"agentlightning/examples/internal/lesson"
	"agentlightning/execution"
	"agentlightning/store/memory"
	"agentlightning/store/sqlite"
	"agentlightning/trainer"
)

// serverWait is how long a process waits for its server to be started.
const serverWait = 2 * time.Minute

func run(ctx context.Context, o options, how plan, stdout, stderr io.Writer) error {
	if o.Steps > 0 {
		how.steps = o.Steps
	}
	logger := o.Logger(stderr)
	switch {
	case o.endpoint != "":
		return judge(ctx, o, how, stdout, logger)
	case o.role == roleRunner:
		return runRunner(ctx, o, stdout, logger)
	case o.role == roleAlgorithm:
		return runAlgorithm(ctx, o, how, stdout, logger)
	}
	return runAll(ctx, o, how, stdout, logger)
}

// runAll is the whole example in one process.
func runAll(ctx context.Context, o options, how plan, stdout io.Writer, logger *slog.Logger) (err error) {
	backend, err := sqlite.Open(ctx, sqlite.Config{Path: o.DB, Logger: logger})
	if err != nil {
		return err
	}
	s, err := lesson.OpenSite(ctx, o.Port, backend, nil, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	fmt.Fprintf(stdout, "server and dashboard on %s, data in %s and %s\n", s.URL, o.DB, o.folder)
	if !o.resume {
		if err := s.AbandonOpenWork(ctx); err != nil {
			return err
		}
	}
	tools, err := startCalculator(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tools.Close()) }()
	e, finish, err := newExperiment(ctx, o, how, s.URL, stdout, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, finish()) }()
	train, val, err := e.tasks()
	if err != nil {
		return err
	}
	worker := newSolver(o, tools)
	worker.proxy = s.URL + "/v1"
	err = trainer.Fit(ctx, trainer.Config{
		Agent: worker.agent(), Algorithm: e, Store: s.Store,
		Concurrency: o.Agents, Logger: logger,
	}, train, val)
	if err != nil {
		return err
	}
	return e.print(stdout)
}

// runAlgorithm offers a model to a server and trains it with whatever runners
// work there.
func runAlgorithm(ctx context.Context, o options, how plan, stdout io.Writer, logger *slog.Logger) (err error) {
	fmt.Fprintf(stdout, "algorithm of the server %s\n", o.server)
	if err := awaitServer(ctx, o.server); err != nil {
		return err
	}
	e, finish, err := newExperiment(ctx, o, how, o.server, stdout, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, finish()) }()
	train, val, err := e.tasks()
	if err != nil {
		return err
	}
	err = trainer.Fit(ctx, trainer.Config{
		Role: execution.RoleAlgorithm, ServerURL: o.server, Token: o.token,
		Algorithm: e, Logger: logger,
	}, train, val)
	if err != nil {
		return err
	}
	return e.print(stdout)
}

// runRunner lets agents work for a server until it is stopped.
func runRunner(ctx context.Context, o options, stdout io.Writer, logger *slog.Logger) (err error) {
	fmt.Fprintf(stdout, "runner of the server %s; stop it with Ctrl-C\n", o.server)
	tools, err := startCalculator(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tools.Close()) }()
	err = trainer.Fit(ctx, trainer.Config{
		Role: execution.RoleRunner, ServerURL: o.server, Token: o.token,
		Agent: newSolver(o, tools).agent(), Concurrency: o.Agents, Logger: logger,
	}, nil, nil)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// awaitServer waits until the server answers, so that processes can be started
// in any order.
func awaitServer(ctx context.Context, server string) error {
	ctx, cancel := context.WithTimeout(ctx, serverWait)
	defer cancel()
	pause := time.NewTicker(250 * time.Millisecond)
	defer pause.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/healthz", nil)
		if err != nil {
			return fmt.Errorf("--server %s: %w", server, err)
		}
		res, err := (&http.Client{}).Do(req)
		if err == nil {
			return res.Body.Close()
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return fmt.Errorf("no server answered within %v: %w; start one with 'go run ./cmd/agl serve'", serverWait, err)
		}
	}
}

func startCalculator(ctx context.Context) (*calculator.Client, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start the calculator: %w", err)
	}
	return calculator.Start(ctx, self, calculatorCommand)
}

func newSolver(o options, tools *calculator.Client) *solver {
	return &solver{tools: tools, retries: 2, http: lesson.Client(o.Agents)}
}

// newExperiment prepares the training: problems, model, and the way to it. The
// returned function releases what it holds.
func newExperiment(ctx context.Context, o options, how plan, server string, stdout io.Writer, logger *slog.Logger) (*experiment, func() error, error) {
	data, err := how.dataset(o.Seed, o.problems)
	if err != nil {
		return nil, nil, err
	}
	if err := writeProblems(filepath.Join(o.folder, "problems"), data); err != nil {
		return nil, nil, err
	}
	how.model.Seed = o.Seed
	p, err := lesson.StartPolicy(ctx, modelName, how.model, newTokenizer(), logger)
	if err != nil {
		return nil, nil, err
	}
	e := &experiment{
		options: o, plan: how, data: data, model: p.Model, tok: p.Model.Tokenizer(),
		resources: mainModel(server, modelName), show: lesson.NewDisplay(stdout),
		offer: func(ctx context.Context) error { return p.Offer(ctx, server, o.token) },
	}
	return e, func() error { e.show.Close(); return p.Close() }, nil
}

// judge lets a model of somebody else work on the validation and test problems.
func judge(ctx context.Context, o options, how plan, stdout io.Writer, logger *slog.Logger) (err error) {
	data, err := how.dataset(o.Seed, o.problems)
	if err != nil {
		return err
	}
	s, err := lesson.OpenSite(ctx, o.Port, memory.New(), []agl.Model{{Name: o.model, Endpoint: o.endpoint, APIKey: os.Getenv("OPENAI_API_KEY")}}, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	tools, err := startCalculator(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tools.Close()) }()
	// One call tells whether the model is there, before agents try again and again.
	probe := solver{tools: tools, http: &http.Client{}}
	if _, err := probe.solve(ctx, agl.LLM{Endpoint: s.URL + "/v1", Model: o.model}, data.Validation[0].Question, lesson.Sampling{}); err != nil {
		return fmt.Errorf("--model-endpoint %s: %w", o.endpoint, err)
	}
	e := &judgement{options: o, plan: how, data: data, resources: mainModel(s.URL, o.model), out: stdout}
	return trainer.Fit(ctx, trainer.Config{
		Agent: newSolver(o, tools).agent(), Algorithm: e, Store: s.Store,
		Concurrency: o.Agents, Logger: logger,
	}, nil, nil)
}

// modelName is the name under which the proxy knows the model in training.
const modelName = "calc-policy"

// mainModel leads agents to a model behind the proxy of a server.
func mainModel(server, model string) agl.NamedResources {
	return agl.NamedResources{lesson.Resource("main_llm", server, model)}
}
