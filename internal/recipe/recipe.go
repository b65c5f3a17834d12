// Package recipe builds a training from a file: which agent, which tasks, which
// algorithm with which settings, put together of named components. The file is
// YAML; see docs/train.md for all of it:
//
//	data: {train: train.jsonl, val: val.jsonl}
//	agent: {use: program, command: [python, agent.py], reward: stdout}
//	models: ["policy=http://127.0.0.1:8000/v1"]
//	prompts: {system: "Answer {question}."}
//	algorithm: {use: gepa, model: gpt-5-mini, max_evaluations: 400}
//
// A setting that nobody would look at is an error, like one that does not exist.
// Components are listed in a [Registry]; a new one is one entry there. The
// package opens no database and no server: its caller hands it a [Site].
package recipe

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	agl "agentlightning"
	"agentlightning/algorithm/stage"
	"agentlightning/dataset"
	"agentlightning/internal/yamlconf"
)

// Recipe is what a file says, with defaults filled in.
type Recipe struct {
	// Seed is where every random choice comes from.
	Seed int64
	// DB is where everything is kept by a server of this process. Server is one
	// that is running elsewhere, which excludes DB, Port and Models.
	DB     string `yaml:"db"`
	Server string
	// Port is where the server of this process listens; 0 takes a free one.
	Port int
	Data Data
	// Agent, Learner and Algorithm are components, by their name (use) with their
	// settings.
	Agent *yamlconf.Node
	// Runners is how many attempts run at once in this process.
	Runners int
	Rollout Rollout
	// Models are backends of the proxy, as in agl serve --model.
	Models []string
	// LLM is the model that agents are given.
	LLM string `yaml:"llm"`
	// Prompts are the prompt templates that agents are given.
	Prompts   map[string]Prompt
	Learner   *yamlconf.Node
	Algorithm *yamlconf.Node
	// Stages are done one after another, each from what the one before came to, in
	// place of Algorithm.
	Stages []Stage
	// Checkpoints is the folder for weights.
	Checkpoints string
	Watch       Watch

	root *yamlconf.Node
	dir  string // of the file, which paths are relative to
	reg  Registry

	agent   AgentSettings
	learner LearnerSettings // nil when there is none
	stages  []part
}

// Data names the files of tasks, by [dataset.LoadTasks].
type Data struct{ Train, Val string }

// Rollout limits rollouts, each attempt of them and how often they are tried.
type Rollout struct {
	Timeout time.Duration
	// Unresponsive is how long an attempt may be silent.
	Unresponsive time.Duration
	Attempts     int
	// RetryOn are the statuses of attempts that lead to another one.
	RetryOn []string
}

func (r Rollout) config() (agl.RolloutConfig, error) {
	c := agl.RolloutConfig{MaxAttempts: r.Attempts}
	switch {
	case r.Timeout < 0:
		return c, fmt.Errorf("timeout: %v: must not be negative", r.Timeout)
	case r.Unresponsive < 0:
		return c, fmt.Errorf("unresponsive: %v: must not be negative", r.Unresponsive)
	case r.Attempts < 1:
		return c, fmt.Errorf("attempts: %d: must be at least 1", r.Attempts)
	case r.Attempts == 1 && len(r.RetryOn) > 0:
		return c, errors.New("retry_on: with one attempt nothing is tried again; set attempts")
	case r.Attempts > 1 && len(r.RetryOn) == 0:
		return c, fmt.Errorf("attempts: %d: say with retry_on after which ends there is another one", r.Attempts)
	}
	seconds := func(d time.Duration) *float64 {
		if d == 0 {
			return nil
		}
		return new(d.Seconds())
	}
	c.TimeoutSeconds, c.UnresponsiveSeconds = seconds(r.Timeout), seconds(r.Unresponsive)
	retried := []agl.AttemptStatus{agl.AttemptFailed, agl.AttemptTimeout, agl.AttemptUnresponsive}
	for _, text := range r.RetryOn {
		if !slices.Contains(retried, agl.AttemptStatus(text)) {
			return c, fmt.Errorf("retry_on: %q: must be one of %v", text, retried)
		}
		c.RetryCondition = append(c.RetryCondition, agl.AttemptStatus(text))
	}
	return c, nil
}

// Prompt is a prompt template, written here or in a file.
type Prompt struct {
	Text   string
	File   string
	Engine string
}

// ShortKey lets a prompt be written as its text.
func (Prompt) ShortKey() string { return "text" }

// Watch is how long a stage of a run may be silent; see [stage.Config].
type Watch struct{ Warn, Limit time.Duration }

// Config is the watch as algorithms take it.
func (w Watch) Config() stage.Config { return stage.Config{Warn: w.Warn, Limit: w.Limit} }

// Stage is one of several algorithms.
type Stage struct {
	Name      string
	Algorithm *yamlconf.Node
	// Data takes the place of the recipe's, Seed of its seed.
	Data *Data
	Seed *int64
}

// part is a stage whose algorithm has been read.
type part struct {
	Stage
	kind     AlgorithmKind
	settings AlgorithmSettings
	path     string // of its algorithm in the file
}

// Load reads a recipe: the file, then assignments as dotted.key=VALUE. Mistakes
// in it are all told of together.
func Load(path string, assignments []string, reg Registry) (*Recipe, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	root, err := yamlconf.Parse(path, text)
	if err != nil {
		return nil, err
	}
	for _, a := range assignments {
		if err := root.Set(a); err != nil {
			return nil, err
		}
	}
	r := &Recipe{
		DB: "sqlite:agl.db", Runners: 4, Checkpoints: "checkpoints",
		Rollout: Rollout{Attempts: 1}, Watch: Watch{Warn: 2 * time.Minute},
		root: root, dir: filepath.Dir(path), reg: reg,
	}
	if err := root.Decode(r); err != nil {
		return nil, errors.Join(err, r.components())
	}
	if err := errors.Join(r.components(), r.check()); err != nil {
		return nil, err
	}
	return r, nil
}

// components reads the settings of what the recipe names.
func (r *Recipe) components() error {
	var errs []error
	if r.Agent != nil {
		kind, err := pick(r.Agent, "agent", r.reg.Agents)
		if err == nil {
			r.agent = kind.New()
			err = settingsOf(r.Agent).Decode(r.agent)
		}
		errs = append(errs, err)
	}
	if r.Learner != nil {
		kind, err := pick(r.Learner, "learner", r.reg.Learners)
		if err == nil {
			r.learner = kind.New()
			err = settingsOf(r.Learner).Decode(r.learner)
		}
		errs = append(errs, err)
	}
	stages := r.Stages
	switch {
	case r.Algorithm != nil && len(stages) > 0:
		return errors.Join(append(errs, errors.New("algorithm and stages: give one of them; a stage has an algorithm of its own"))...)
	case r.Algorithm != nil:
		stages = []Stage{{Algorithm: r.Algorithm}}
	case len(stages) == 0:
		return errors.Join(append(errs, fmt.Errorf("algorithm: must be set, to one of %s", strings.Join(names(r.reg.Algorithms), ", ")))...)
	}
	for i, s := range stages {
		where := "algorithm"
		if r.Algorithm == nil {
			where = fmt.Sprintf("stages.%d.algorithm", i)
		}
		if s.Algorithm == nil {
			errs = append(errs, fmt.Errorf("%s: must be set, to one of %s", where, strings.Join(names(r.reg.Algorithms), ", ")))
			continue
		}
		kind, err := pick(s.Algorithm, where, r.reg.Algorithms)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		p := part{Stage: s, kind: kind, settings: kind.New(), path: where}
		if err := settingsOf(s.Algorithm).Decode(p.settings); err != nil {
			errs = append(errs, r.elsewhere(err, p, s.Algorithm))
		}
		if p.Name == "" {
			p.Name = kind.Name
		}
		r.stages = append(r.stages, p)
	}
	return errors.Join(errs...)
}

// elsewhere adds to an unknown key of an algorithm which others have it.
func (r *Recipe) elsewhere(err error, p part, n *yamlconf.Node) error {
	var notes []error
	for _, key := range n.Keys() {
		if key == use || slices.Contains(yamlconf.Keys(p.settings), key) {
			continue
		}
		var have []string
		for _, k := range r.reg.Algorithms {
			if slices.Contains(yamlconf.Keys(k.New()), key) {
				have = append(have, k.Name)
			}
		}
		if len(have) > 0 {
			notes = append(notes, fmt.Errorf("%s would not look at %s; %s does", p.kind.Name, key, strings.Join(have, ", ")))
		}
	}
	return errors.Join(append([]error{err}, notes...)...)
}

// given reports whether the file, or the command line, has a key.
func (r *Recipe) given(key string) *yamlconf.Node { return r.root.Key(key) }

// check refuses what does not fit together and what nobody would look at.
func (r *Recipe) check() error {
	var errs []error
	fail := func(key, format string, args ...any) {
		if n := r.given(key); n != nil {
			errs = append(errs, n.Errorf(format, args...))
			return
		}
		errs = append(errs, fmt.Errorf("%s: %w", key, fmt.Errorf(format, args...)))
	}
	unused := func(key, why string) {
		if r.given(key) != nil {
			fail(key, "nothing looks at it: %s", why)
		}
	}
	if r.Server != "" {
		for _, key := range []string{"db", "port"} {
			unused(key, "the server "+r.Server+" has its own")
		}
		unused("models", "the server "+r.Server+" has its own; add to them with 'agl models add'")
	}
	if r.Port < 0 || r.Port > 65535 {
		fail("port", "%d: must be between 0 and 65535", r.Port)
	}
	if r.Runners < 1 {
		fail("runners", "%d: must be at least 1", r.Runners)
	}
	if r.Watch.Limit < 0 {
		fail("watch", "limit: %v: must not be negative; 0s is no limit", r.Watch.Limit)
	}
	if _, err := r.Rollout.config(); err != nil {
		fail("rollout", "%w", err)
	}
	tasks, weights, serves := false, false, false
	for _, p := range r.stages {
		serves = serves || p.kind.Serves
		tasks = tasks || p.kind.Tasks
		weights = weights || p.kind.Weights
	}
	switch {
	case len(r.stages) == 0: // said already
	case weights && r.Learner == nil:
		fail("learner", "must be set, to one of %s: %s changes weights", strings.Join(names(r.reg.Learners), ", "), r.describe())
	case !weights && r.Learner != nil:
		fail("learner", "nothing looks at it: %s changes no weights; a checkpoint is served as one of models, NAME=builtin:FOLDER", r.describe())
	}
	if len(r.stages) > 0 && !tasks {
		for _, key := range []string{"agent", "runners", "rollout", "data"} {
			unused(key, r.describe()+" runs no agent")
		}
	}
	if len(r.stages) > 0 && !tasks && !serves {
		for _, key := range []string{"models", "llm", "prompts"} {
			unused(key, r.describe()+" serves no agent")
		}
	}
	if tasks {
		errs = append(errs, r.checkAgent(fail)...)
	}
	if serves && r.Server == "" && r.Port == 0 {
		fail("port", "must be set, so that agents elsewhere know where to report")
	}
	seen := map[string]bool{}
	for i, p := range r.stages {
		if len(r.stages) > 1 && seen[p.Name] {
			errs = append(errs, fmt.Errorf("stages.%d: name %q: another stage has it; give each a name", i, p.Name))
		}
		seen[p.Name] = true
		if p.Data != nil && !p.kind.Tasks {
			errs = append(errs, fmt.Errorf("stages.%d.data: nothing looks at it: %s runs no agent", i, p.kind.Name))
		}
	}
	return errors.Join(errs...)
}

func (r *Recipe) checkAgent(fail func(key, format string, args ...any)) []error {
	switch {
	case r.Agent == nil:
		fail("agent", "must be set, to one of %s", strings.Join(names(r.reg.Agents), ", "))
	case r.Remote():
		if r.given("runners") != nil {
			fail("runners", "nothing looks at it: the agent runs elsewhere")
		}
		if r.Server == "" && r.Port == 0 {
			fail("port", "must be set, so that runners elsewhere know where to ask for work")
		}
	}
	var errs []error
	for i, p := range r.stages {
		if data := r.data(p); p.kind.Tasks && data.Train == "" && data.Val == "" {
			errs = append(errs, fmt.Errorf("data: stage %d, %s, needs tasks: set data.train and data.val", i+1, p.Name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Prompts)) {
		p := r.Prompts[name]
		if (p.Text == "") == (p.File == "") {
			errs = append(errs, fmt.Errorf("prompts.%s: give text or file, one of them", name))
		}
		if !slices.Contains(engines(), cmp.Or(p.Engine, agl.EngineFString)) {
			errs = append(errs, fmt.Errorf("prompts.%s.engine: %q: must be one of %s", name, p.Engine, strings.Join(engines(), ", ")))
		}
	}
	return errs
}

func engines() []string { return []string{agl.EngineFString, agl.EngineJinja, agl.EnginePOML} }

// describe names the algorithms.
func (r *Recipe) describe() string {
	var all []string
	for _, p := range r.stages {
		all = append(all, p.kind.Name)
	}
	return strings.Join(all, ", then ")
}

func (r *Recipe) data(p part) Data {
	if p.Data != nil {
		return *p.Data
	}
	return r.Data
}

func (r *Recipe) seed(p part) int64 {
	if p.Seed != nil {
		return *p.Seed
	}
	return r.Seed
}

// Path returns a path of the recipe, which is relative to its file.
func (r *Recipe) Path(name string) string {
	if name == "" || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(r.dir, name)
}

// Remote reports whether the agent runs elsewhere.
func (r *Recipe) Remote() bool {
	_, remote := r.agent.(*remoteAgent)
	return remote
}

// Sequence reports whether there are several stages.
func (r *Recipe) Sequence() bool { return len(r.Stages) > 0 }

// NoPrompts names an algorithm of the recipe that improves no prompt.
func (r *Recipe) NoPrompts() (name string, found bool) {
	for _, p := range r.stages {
		if _, rewrites := p.settings.(rewriter); !rewrites {
			return p.kind.Name, true
		}
	}
	return "", false
}

// serves reports whether a stage learns from agents of others.
func (r *Recipe) serves() bool {
	return slices.ContainsFunc(r.stages, func(p part) bool { return p.kind.Serves })
}

// Tasks reads the tasks of a stage.
func (r *Recipe) tasks(p part) (train, val []json.RawMessage, err error) {
	if !p.kind.Tasks {
		return nil, nil, nil
	}
	data := r.data(p)
	for _, one := range []struct {
		file string
		to   *[]json.RawMessage
	}{{data.Train, &train}, {data.Val, &val}} {
		if one.file == "" {
			continue
		}
		if *one.to, err = dataset.LoadTasks(r.Path(one.file)); err != nil {
			return nil, nil, err
		}
	}
	return train, val, nil
}

// prompts are the templates as resources, by name.
func (r *Recipe) prompts() (agl.NamedResources, error) {
	var out agl.NamedResources
	for _, name := range slices.Sorted(maps.Keys(r.Prompts)) {
		p := r.Prompts[name]
		if p.File != "" {
			text, err := os.ReadFile(r.Path(p.File))
			if err != nil {
				return nil, fmt.Errorf("prompts.%s.file: %w", name, err)
			}
			p.Text = string(text)
		}
		out = append(out, agl.NamedResource{Name: name, Resource: agl.PromptTemplate{Template: p.Text, Engine: cmp.Or(p.Engine, agl.EngineFString)}})
	}
	return out, nil
}

// Settings lists every value of the recipe with where it came from.
func (r *Recipe) Settings() []yamlconf.Setting {
	out := yamlconf.Settings(r.root, *r)
	add := func(n *yamlconf.Node, path string, settings any) {
		if n == nil || settings == nil {
			return
		}
		name := nameOf(n)
		out = append(out, yamlconf.Setting{Path: path + "." + use, Value: name.Text(), Origin: name.Origin})
		out = append(out, yamlconf.SettingsAt(settingsOf(n), path, settings)...)
	}
	add(r.Agent, "agent", r.agent)
	add(r.Learner, "learner", r.learner)
	for _, p := range r.stages {
		add(p.Algorithm, p.path, p.settings)
	}
	return out
}
