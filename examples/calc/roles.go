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
	"agentlightning/execution"
	"agentlightning/internal/daemon"
	"agentlightning/llmproxy"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/store/sqlite"
	"agentlightning/trainer"
)

// scanInterval is how often attempts are checked for time-outs.
const scanInterval = time.Second

// serverWait is how long a process waits for its server to be started.
const serverWait = 2 * time.Minute

func run(ctx context.Context, o options, how plan, stdout, stderr io.Writer) error {
	if o.steps > 0 {
		how.steps = o.steps
	}
	logger := discard()
	if o.verbose {
		logger = slog.New(slog.NewTextHandler(stderr, nil))
	}
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

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// site is a server of this process.
type site struct {
	store  store.Store
	url    string
	stop   context.CancelFunc
	served chan error
}

// openSite starts a server over a backend; a port that is taken is replaced by
// a free one.
func openSite(ctx context.Context, o options, backend engine.Backend, models []agl.Model, logger *slog.Logger) (*site, error) {
	metrics, err := daemon.NewMetrics()
	if err != nil {
		return nil, err
	}
	st := engine.New(backend, engine.Config{HealthScanInterval: scanInterval, Logger: logger, OnChange: metrics.OnChange})
	config := daemon.Config{Store: st, Port: o.port, Proxy: llmproxy.Config{Static: models}, Logger: logger, Metrics: metrics}
	server, err := daemon.Listen(ctx, config)
	if err != nil {
		config.Port = 0
		server, err = daemon.Listen(ctx, config)
	}
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	// The server outlives the interrupt: agents that stop report to it.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &site{store: st, url: server.URL(), stop: stop, served: make(chan error, 1)}
	go func() { s.served <- server.Run(serving) }()
	return s, nil
}

func (s *site) close() error {
	s.stop()
	return errors.Join(<-s.served, s.store.Close())
}

// runAll is the whole example in one process.
func runAll(ctx context.Context, o options, how plan, stdout io.Writer, logger *slog.Logger) (err error) {
	backend, err := sqlite.Open(ctx, sqlite.Config{Path: o.db, Logger: logger})
	if err != nil {
		return err
	}
	s, err := openSite(ctx, o, backend, nil, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	fmt.Fprintf(stdout, "server and dashboard on %s, data in %s and %s\n", s.url, o.db, o.folder)
	if !o.resume {
		if err := abandonOpenWork(ctx, s.store); err != nil {
			return err
		}
	}
	tools, err := startCalculator(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tools.Close()) }()
	e, finish, err := newExperiment(ctx, o, how, s.url, stdout, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, finish()) }()
	train, val, err := e.tasks()
	if err != nil {
		return err
	}
	worker := newSolver(o, tools)
	worker.proxy = s.url + "/v1"
	err = trainer.Fit(ctx, trainer.Config{
		Agent: worker.agent(), Algorithm: e, Store: s.store,
		Concurrency: o.agents, Logger: logger,
	}, train, val)
	if err != nil {
		return err
	}
	return e.print(stdout)
}

// abandonOpenWork cancels what an earlier run left in the queue: its model is gone.
func abandonOpenWork(ctx context.Context, st store.Store) error {
	page, err := st.QueryRollouts(ctx, store.RolloutQuery{StatusIn: []agl.RolloutStatus{
		agl.RolloutQueuing, agl.RolloutRequeuing, agl.RolloutPreparing, agl.RolloutRunning,
	}})
	if err != nil {
		return err
	}
	for i := range page.Items {
		_, err := st.UpdateRollout(ctx, page.Items[i].RolloutID, store.RolloutUpdate{Status: store.To(agl.RolloutCancelled)})
		if err != nil {
			return err
		}
	}
	return nil
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
		Agent: newSolver(o, tools).agent(), Concurrency: o.agents, Logger: logger,
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
	return &solver{tools: tools, retries: 2, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * o.agents}}}
}

// newExperiment prepares the training: problems, model, and the way to it. The
// returned function releases what it holds.
func newExperiment(ctx context.Context, o options, how plan, server string, stdout io.Writer, logger *slog.Logger) (*experiment, func() error, error) {
	data, err := how.dataset(o.seed, o.problems)
	if err != nil {
		return nil, nil, err
	}
	if err := writeProblems(filepath.Join(o.folder, "problems"), data); err != nil {
		return nil, nil, err
	}
	how.model.Seed = o.seed
	p, err := startPolicy(ctx, how.model, logger)
	if err != nil {
		return nil, nil, err
	}
	e := &experiment{
		options: o, plan: how, data: data, model: p.model, tok: p.tok,
		resources: resources(server, modelName), show: newDisplay(stdout),
		offer: func(ctx context.Context) error { return p.offer(ctx, server, o.token) },
	}
	return e, func() error { e.show.close(); return p.close() }, nil
}

// judge lets a model of somebody else work on the validation and test problems.
func judge(ctx context.Context, o options, how plan, stdout io.Writer, logger *slog.Logger) (err error) {
	data, err := how.dataset(o.seed, o.problems)
	if err != nil {
		return err
	}
	s, err := openSite(ctx, o, memory.New(), []agl.Model{{Name: o.model, Endpoint: o.endpoint, APIKey: os.Getenv("OPENAI_API_KEY")}}, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	tools, err := startCalculator(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tools.Close()) }()
	// One call tells whether the model is there, before agents try again and again.
	probe := solver{tools: tools, http: &http.Client{}}
	if _, err := probe.solve(ctx, agl.LLM{Endpoint: s.url + "/v1", Model: o.model}, data.Validation[0].Question, sampling{}); err != nil {
		return fmt.Errorf("--model-endpoint %s: %w", o.endpoint, err)
	}
	e := &judgement{options: o, plan: how, data: data, resources: resources(s.url, o.model), out: stdout}
	return trainer.Fit(ctx, trainer.Config{
		Agent: newSolver(o, tools).agent(), Algorithm: e, Store: s.store,
		Concurrency: o.agents, Logger: logger,
	}, nil, nil)
}
