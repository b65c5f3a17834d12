package recipe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/algorithm"
	"agentlightning/algorithm/prompt"
	"agentlightning/algorithm/stage"
	"agentlightning/execution"
	"agentlightning/internal/runlog"
	"agentlightning/store"
	"agentlightning/trainer"
)

// lastWords bounds how long it may take to say that a run has ended, and to
// withdraw its model from the proxy.
const lastWords = 5 * time.Second

// SequenceName is the name of the run that several stages are parts of.
const SequenceName = "sequence"

// Site is where a recipe is carried out.
type Site struct {
	// Store is that of the server at URL, which Token opens; nil while a recipe is
	// only checked.
	Store      store.Store
	URL, Token string
	// Own: the server is part of this process, and nobody else works for it
	// unless the agent is remote.
	Own bool
	// Models are the names of the backends that the proxy has.
	Models  []string
	Environ func(string) (string, bool)
	// Worker is what the runners are called in the store; empty for the default.
	Worker string
	Logger *slog.Logger
	// OnStage is told when a stage begins, OnProgress of its steps, OnWait of what
	// a run waits for; each may be nil.
	OnStage    func(name string, number, of int, runID string)
	OnProgress func(Progress)
	OnWait     func(stage.Status)
	OnStall    func(s stage.Status, ok bool)
}

// Outcome is what a stage came to.
type Outcome struct {
	Name string `json:"name"`
	// RunID is empty for a stage that has not begun.
	RunID string `json:"run_id"`
	Done  bool   `json:"done"`
	// Prompts are the best ones of a stage that improves prompts.
	Prompts agl.NamedResources `json:"prompts,omitempty"`
	// Resources is the id under which they are published.
	Resources string `json:"resources,omitempty"`
	// Weights is the folder of the last checkpoint of a stage that changes weights.
	Weights string `json:"weights,omitempty"`
}

// progress is what a sequence keeps to go on.
type progress struct {
	Stages []Outcome `json:"stages"`
}

// Begin makes the run of the recipe. Those of several stages are made when they
// begin.
func (r *Recipe) Begin(ctx context.Context, s store.RunStore) (string, error) {
	if !r.Sequence() {
		return r.create(ctx, s, r.stages[0])
	}
	run, err := s.CreateRun(ctx, agl.Run{Algorithm: SequenceName, Seed: r.Seed, Config: json.RawMessage("{}"), Status: agl.RunRunning})
	if err != nil {
		return "", fmt.Errorf("create run: %w", err)
	}
	var p progress
	for _, part := range r.stages {
		p.Stages = append(p.Stages, Outcome{Name: part.Name})
	}
	state, err := json.Marshal(p)
	if err != nil {
		return "", err
	}
	if err := s.PutCheckpoint(ctx, run.RunID, agl.Checkpoint{Time: run.StartTime, State: state}); err != nil {
		return "", fmt.Errorf("stages of run %s: %w", run.RunID, err)
	}
	return run.RunID, nil
}

func (r *Recipe) create(ctx context.Context, s store.RunStore, p part) (string, error) {
	run, err := s.CreateRun(ctx, agl.Run{Algorithm: p.kind.Run, Seed: r.seed(p), Config: json.RawMessage("{}"), Status: agl.RunRunning})
	if err != nil {
		return "", fmt.Errorf("create run: %w", err)
	}
	return run.RunID, nil
}

// Resumable returns an error that says why a run cannot be gone on with.
func (r *Recipe) Resumable(run agl.Run) error {
	want := SequenceName
	if !r.Sequence() {
		want = r.stages[0].kind.Run
	}
	switch {
	case run.Algorithm != want:
		return fmt.Errorf("run %s is one of %s, and the file describes one of %s", run.RunID, run.Algorithm, want)
	case run.Status == agl.RunSucceeded:
		return fmt.Errorf("run %s is complete; start another without --resume", run.RunID)
	}
	return nil
}

// Outcomes returns what the stages of a run came to so far.
func (r *Recipe) Outcomes(ctx context.Context, s store.RunStore, runID string) ([]Outcome, error) {
	if !r.Sequence() {
		return []Outcome{{Name: r.stages[0].Name, RunID: runID}}, nil
	}
	c, err := s.LatestCheckpoint(ctx, runID)
	if err != nil {
		return nil, fmt.Errorf("stages of run %s: %w", runID, err)
	}
	var p progress
	if err := json.Unmarshal(c.State, &p); err != nil {
		return nil, fmt.Errorf("stages of run %s: %w", runID, err)
	}
	same := len(p.Stages) == len(r.stages)
	for i := range p.Stages {
		same = same && p.Stages[i].Name == r.stages[i].Name
	}
	if !same {
		return nil, fmt.Errorf("run %s has other stages than the file; resume it with the file that it began with", runID)
	}
	return p.Stages, nil
}

// session is one execution of a recipe.
type session struct {
	*Recipe
	site      Site
	agent     agent.Agent
	policy    *Policy
	resources agl.NamedResources
	stages    []Outcome
	runID     string
	log       *runlog.Log // of the runs
}

// Run carries the recipe out as the run that [Recipe.Begin] made, from where
// that was interrupted. It returns what the stages came to, also when one failed.
func (r *Recipe) Run(ctx context.Context, site Site, runID string) (_ []Outcome, err error) {
	s := &session{Recipe: r, site: site, runID: runID}
	if s.stages, err = r.Outcomes(ctx, site.Store, runID); err != nil {
		return nil, err
	}
	s.site.Logger, s.log = runlog.Join(site.Logger)
	s.log.Open(site.Store, runID)
	defer s.log.End(ctx)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.settle(ctx, err))
		}
	}()
	done, err := s.open(ctx)
	if err != nil {
		return s.stages, err
	}
	defer func() { err = errors.Join(err, done()) }()
	return s.stages, s.carryOut(ctx)
}

// settle says of runs that are called running and are not what became of them: an
// error came before their algorithm began, or outside it.
func (s *session) settle(ctx context.Context, failure error) error {
	u := store.RunUpdate{Status: store.To(agl.RunFailed), Error: store.To(failure.Error())}
	if ctx.Err() != nil {
		u = store.RunUpdate{Status: store.To(agl.RunInterrupted)}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	ids := []string{s.runID}
	for _, o := range s.stages {
		if o.RunID != "" && o.RunID != s.runID {
			ids = append(ids, o.RunID)
		}
	}
	for _, id := range ids {
		run, err := s.site.Store.Run(ctx, id)
		if err != nil {
			return fmt.Errorf("end of run %s: %w", id, err)
		}
		if run.Status != agl.RunRunning {
			continue
		}
		s.log.Close(ctx, id, u.Status.Value, failure)
		if _, err := s.site.Store.UpdateRun(ctx, id, u); err != nil {
			return fmt.Errorf("end of run %s: %w", id, err)
		}
	}
	return nil
}

// open opens learner and agent; the function that it returns releases them.
func (s *session) open(ctx context.Context) (_ func() error, err error) {
	var release []func() error
	done := func() error {
		var errs []error
		for _, f := range slices.Backward(release) {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, done())
		}
	}()
	if s.policy, err = s.openPolicy(ctx); err != nil {
		return nil, err
	}
	if p := s.policy; p != nil {
		release = append(release, p.Close)
		if p.Done != nil {
			release = append(release, p.Done)
		}
	}
	if s.Recipe.agent == nil && !s.serves() {
		return done, nil
	}
	if p := s.policy; p != nil {
		if p.Model().Endpoint == "" {
			return nil, errors.New("learner: endpoint: must be set, so that agents reach the model that is trained")
		}
		release = append(release, func() error { return s.withdraw(ctx, p.Model().Name) })
	}
	if s.Recipe.agent != nil {
		var closeAgent func() error
		if s.agent, closeAgent, err = s.Recipe.agent.Open(s.site.URL, s.Path); err != nil {
			return nil, err
		}
		release = append(release, closeAgent)
	}
	if s.agent != nil && s.site.Own {
		s.agent = here{s.agent, s.site.URL + "/v1"}
	}
	if s.resources, err = s.initial(); err != nil {
		return nil, err
	}
	return done, nil
}

// offer makes the model of the learner known to the proxy.
func (s *session) offer(ctx context.Context) error {
	if s.policy == nil || s.Recipe.agent == nil && !s.serves() {
		return nil
	}
	return s.offerModel(ctx, s.policy.Model())
}

// here is an agent whose models are behind the proxy of this process, also where
// its resources were published by an earlier one, which had another port.
type here struct {
	agent.Agent
	proxy string
}

// Run implements [agent.Agent].
func (h here) Run(ctx context.Context, c *agent.Call) (agent.Result, error) {
	call := *c
	call.Resources = slices.Clone(c.Resources)
	for i, r := range call.Resources {
		if p, ok := r.Resource.(agl.ProxyLLM); ok {
			p.Endpoint = h.proxy
			call.Resources[i].Resource = p
		}
	}
	return h.Agent.Run(ctx, &call)
}

// openPolicy opens the learner, nil when the recipe has none.
func (s *session) openPolicy(ctx context.Context) (*Policy, error) {
	if s.learner == nil {
		return nil, nil
	}
	var all []json.RawMessage
	for _, p := range s.Recipe.stages {
		train, _, err := s.tasks(p)
		if err != nil {
			return nil, err
		}
		all = append(all, train...)
	}
	return s.learner.Open(ctx, Opening{
		Seed: s.Seed, Path: s.Path, Tasks: all, Server: s.site.URL, Offer: s.offerModel, Logger: s.site.Logger,
	})
}

// offerModel puts a model behind the proxy, in place of what an earlier process,
// or an earlier step, offered under its name.
func (s *session) offerModel(ctx context.Context, m agl.Model) error {
	if s.site.Store == nil {
		return nil
	}
	if err := s.site.Store.ReplaceModels(ctx, []agl.Model{m}); err != nil {
		return fmt.Errorf("offer model %q to the proxy: %w", m.Name, err)
	}
	return nil
}

func (s *session) withdraw(ctx context.Context, name string) error {
	if s.site.Store == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	return s.site.Store.DeleteModels(ctx, name)
}

// initial are the resources of the beginning.
func (s *session) initial() (agl.NamedResources, error) {
	models := s.site.Models
	if s.policy != nil {
		models = append(slices.Clone(models), s.policy.Model().Name)
	}
	name, err := s.llm(models)
	if err != nil {
		return nil, err
	}
	out, err := s.prompts()
	if err != nil || name == "" {
		return out, err
	}
	return append(out, agl.NamedResource{
		Name: "main_llm", Resource: agl.ProxyLLM{Endpoint: s.site.URL + "/v1", Model: name},
	}), nil
}

// llm is the model that agents are given, "" when there is none.
func (r *Recipe) llm(models []string) (string, error) {
	switch {
	case r.LLM != "" && !slices.Contains(models, r.LLM):
		return "", fmt.Errorf("llm: %q is no model of the proxy; those are %s", r.LLM, strings.Join(models, ", "))
	case r.LLM != "":
		return r.LLM, nil
	case r.learner != nil: // what is trained is what agents are given
		return models[len(models)-1], nil
	case len(models) == 1:
		return models[0], nil
	case len(models) > 1:
		return "", fmt.Errorf("llm: must be set: there are several models, %s", strings.Join(models, ", "))
	}
	return "", nil
}

// carryOut does the stages that are not done.
func (s *session) carryOut(ctx context.Context) error {
	if !s.Sequence() {
		return s.stage(ctx, 0)
	}
	run, err := algorithm.Begin(ctx, algorithm.Env{Store: s.site.Store, RunID: s.runID, Logger: s.site.Logger}, SequenceName, s.summary(), s.Seed)
	if err != nil {
		return err
	}
	return run.Finish(ctx, s.sequence(ctx, run))
}

// summary is what the run of a sequence keeps of its configuration.
func (s *session) summary() any {
	var names []string
	for _, p := range s.Recipe.stages {
		names = append(names, p.Name+": "+p.kind.Name)
	}
	return map[string]any{"stages": names}
}

func (s *session) sequence(ctx context.Context, run *algorithm.Run) error {
	weights := ""
	for i := range s.stages {
		o := &s.stages[i]
		if !o.Done {
			if err := s.start(ctx, weights); err != nil {
				return fmt.Errorf("stage %s: %w", o.Name, err)
			}
			if o.RunID == "" {
				var err error
				if o.RunID, err = s.create(ctx, s.site.Store, s.Recipe.stages[i]); err != nil {
					return fmt.Errorf("stage %s: %w", o.Name, err)
				}
				if err := run.Checkpoint(ctx, i, weights, nil, progress{s.stages}); err != nil {
					return err
				}
			}
			if err := s.stage(ctx, i); err != nil {
				return fmt.Errorf("stage %s: %w", o.Name, err)
			}
			if err := run.Checkpoint(ctx, i+1, o.Weights, nil, progress{s.stages}); err != nil {
				return err
			}
		}
		if o.Weights != "" {
			weights = o.Weights
		}
		s.take(o.Prompts)
	}
	return nil
}

// start puts the weights of the stage before into place, without the moments of
// its optimiser.
func (s *session) start(ctx context.Context, weights string) error {
	if s.policy == nil || weights == "" {
		return nil
	}
	if err := s.policy.Load(ctx, weights); err != nil {
		return fmt.Errorf("begin with the weights of the stage before: %w", err)
	}
	if s.policy.Reset != nil {
		s.policy.Reset()
	}
	return nil
}

// take puts the prompts of a stage that is done into place.
func (s *session) take(prompts agl.NamedResources) {
	s.resources = slices.Clone(s.resources)
	for i, r := range s.resources {
		if better := prompts.Get(r.Name); better != nil {
			s.resources[i].Resource = better
		}
	}
}

// stage does one stage, from where it was interrupted.
func (s *session) stage(ctx context.Context, i int) error {
	p, o := s.Recipe.stages[i], &s.stages[i]
	s.log.Open(s.site.Store, o.RunID)
	built, env, err := s.prepare(p)
	if err != nil {
		return err
	}
	env.RunID = o.RunID
	if s.site.OnStage != nil {
		s.site.OnStage(p.Name, i+1, len(s.stages), o.RunID)
	}
	if !built.Offers {
		if err := s.offer(ctx); err != nil {
			return err
		}
	}
	if err := s.fit(ctx, built, env); err != nil {
		return err
	}
	if built.Prompts != nil {
		prompts, err := built.Prompts()
		if err != nil {
			return err
		}
		o.Prompts = nil
		for _, name := range slices.Sorted(maps.Keys(prompts)) {
			o.Prompts = append(o.Prompts, agl.NamedResource{Name: name, Resource: prompts[name]})
		}
		latest, err := s.site.Store.LatestResources(ctx)
		if err != nil {
			return fmt.Errorf("resources of run %s: %w", o.RunID, err)
		}
		o.Resources = latest.ResourcesID
	}
	if p.kind.Weights {
		latest, err := s.site.Store.LatestCheckpoint(ctx, o.RunID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("weights of run %s: %w", o.RunID, err)
		}
		o.Weights = latest.Path
	}
	o.Done = true
	return nil
}

// prepare builds the algorithm of a stage.
func (s *session) prepare(p part) (Built, algorithm.Env, error) {
	env := algorithm.Env{Store: s.site.Store, InitialResources: s.resources, Watch: s.Watch.Config(), Logger: s.site.Logger}
	env.Watch.OnChange = s.site.OnWait
	env.Watch.OnStall = func(_ context.Context, st stage.Status, ok bool) {
		if s.site.OnStall != nil {
			s.site.OnStall(st, ok)
		}
	}
	var err error
	if env.Train, env.Val, err = s.tasks(p); err != nil {
		return Built{}, env, err
	}
	parts, err := s.parts(p)
	if err != nil {
		return Built{}, env, err
	}
	built, err := p.settings.Build(parts)
	if err != nil {
		return Built{}, env, fmt.Errorf("%s: %w", p.path, err)
	}
	return built, env, nil
}

func (s *session) parts(p part) (Parts, error) {
	limits, err := s.Rollout.config()
	if err != nil {
		return Parts{}, err
	}
	report := s.site.OnProgress
	if report == nil {
		report = func(Progress) {}
	}
	proxy := proxied{s.site.URL, s.site.Token, func(m string) bool { return slices.Contains(s.site.Models, m) }}
	return Parts{
		Seed: s.seed(p), Server: s.site.URL, Environ: s.site.Environ, Logger: s.site.Logger, Policy: s.policy, Offer: s.offer, Resources: s.resources, Rollout: limits, Checkpoints: s.Path(s.Checkpoints), Path: s.Path, Report: report,
		Completer: func(c completer, models ...string) (prompt.Completer, error) {
			return c.open(proxy, s.site.Environ, models...)
		},
	}, nil
}

// fit runs an algorithm, with the agent in this process when it is here.
func (s *session) fit(ctx context.Context, a algorithm.Algorithm, env algorithm.Env) error {
	if s.agent == nil {
		return a.Run(ctx, env)
	}
	return trainer.Fit(ctx, trainer.Config{
		Agent: s.agent, Store: s.site.Store, Strategy: execution.InProcess{Logger: env.Logger},
		Concurrency: s.Runners, WorkerName: s.site.Worker, Logger: env.Logger,
		Algorithm: algorithm.Func(func(ctx context.Context, _ algorithm.Env) error { return a.Run(ctx, env) }),
	}, nil, nil)
}

// Check looks at everything that a run would need, without running anything: it
// reads the tasks and the training data, opens agent and learner, and builds every
// algorithm. It returns what it saw, a line each.
func (r *Recipe) Check(ctx context.Context, models []string, environ func(string) (string, bool), logger *slog.Logger) (lines []string, err error) {
	s := &session{Recipe: r, site: Site{URL: "http://127.0.0.1", Models: models, Environ: environ, Logger: logger}}
	if r.learner != nil {
		if err := r.learner.Check(r.Path); err != nil {
			return nil, err
		}
	}
	done, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	for i, p := range r.stages {
		_, env, err := s.prepare(p)
		if err != nil {
			return lines, err
		}
		line := fmt.Sprintf("stage %d: %s", i+1, p.kind.Name)
		if p.Name != p.kind.Name {
			line = fmt.Sprintf("stage %d, %s: %s", i+1, p.Name, p.kind.Name)
		}
		if p.kind.Tasks {
			line += fmt.Sprintf(", %d training tasks, %d validation tasks", len(env.Train), len(env.Val))
		}
		lines = append(lines, line)
		if planner, ok := p.settings.(planner); ok {
			val := len(env.Val)
			if val == 0 {
				val = len(env.Train)
			}
			plan, err := planner.plan(val)
			if err != nil {
				return lines, fmt.Errorf("%s: %w", p.path, err)
			}
			lines = append(lines, plan)
		}
	}
	return lines, nil
}

// BuiltinPath returns an entry of models with the path of a checkpoint, behind
// prefix, as this process opens it.
func (r *Recipe) BuiltinPath(entry, prefix string) string {
	name, rest, ok := strings.Cut(entry, "="+prefix)
	if !ok {
		return entry
	}
	dir, options, more := strings.Cut(rest, ",")
	out := name + "=" + prefix + r.Path(dir)
	if more {
		out += "," + options
	}
	return out
}

// DBPath returns the database as this process opens it.
func (r *Recipe) DBPath() string {
	path, ok := strings.CutPrefix(r.DB, "sqlite:")
	if !ok {
		return r.DB
	}
	return "sqlite:" + r.Path(path)
}

// Asked are the models that rewrite prompts and are not behind the proxy, as
// backends that can be asked whether they are there.
func (r *Recipe) Asked(environ func(string) (string, bool), behind []string) []agl.Model {
	var out []agl.Model
	for _, p := range r.stages {
		rewriter, ok := p.settings.(rewriter)
		if !ok {
			continue
		}
		c, models := rewriter.rewriters()
		base, key, err := c.address(proxied{has: func(m string) bool { return slices.Contains(behind, m) }}, environ, models)
		if err != nil || base == "/v1" {
			continue
		}
		for _, m := range models {
			out = append(out, agl.Model{Name: m, Endpoint: base, APIKey: key})
		}
	}
	return out
}
