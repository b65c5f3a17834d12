package recipe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	agl "agentlightning"
	"agentlightning/learner/command"
)

// commandLearner trains with a program; see [command.Config].
type commandLearner struct {
	// Name is what the proxy calls the model.
	Name    string
	Command []string
	// Dir is the folder of the learner, Model what the first update trains.
	Dir, Model string
	Honours    []string
	// WorkDir is the trainer's working directory; empty means the folder of the
	// recipe.
	WorkDir string
	Env     map[string]string
	Limit   time.Duration
	Grace   time.Duration
	Keep    int

	// Endpoint is where the model of the beginning is served, Target its name
	// there; needed when agents run.
	Endpoint, Target string
	// Reloads: the trainer makes the server at Endpoint serve the new model before
	// it ends. Otherwise it has to say where that is served.
	Reloads bool
}

func (c *commandLearner) config(o Opening) command.Config {
	var env []string
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		env = append(env, name+"="+c.Env[name])
	}
	workDir := c.WorkDir
	if workDir == "" {
		workDir = "."
	}
	return command.Config{
		Command: c.Command, Dir: o.Path(c.Dir), Model: c.Model, Honours: c.Honours, WorkDir: o.Path(workDir), Env: env,
		ServerURL: o.Server, Limit: c.Limit, Grace: c.Grace, Keep: c.Keep, Logger: o.Logger,
	}
}

// Check implements [LearnerSettings].
func (c *commandLearner) Check(path func(string) string) error {
	switch {
	case c.Name == "":
		return errors.New("learner.name: must not be empty")
	case c.Reloads && c.Endpoint == "":
		return errors.New("learner.reloads: there is no endpoint that could serve the new model")
	case c.Target != "" && c.Endpoint == "":
		return errors.New("learner.target: there is no endpoint at which this would be its name")
	}
	if err := c.config(Opening{Path: path}).Validate(); err != nil {
		return fmt.Errorf("learner: %w", err)
	}
	return nil
}

// Open implements [LearnerSettings].
func (c *commandLearner) Open(_ context.Context, o Opening) (*Policy, error) {
	if err := c.Check(o.Path); err != nil {
		return nil, err
	}
	config := c.config(o)
	if c.Endpoint != "" {
		config.Serve = func(ctx context.Context, m command.Model) error { return o.Offer(ctx, c.backend(m)) }
		if !c.Reloads {
			config.Serve = func(ctx context.Context, m command.Model) error {
				if m.Endpoint == "" && m.Version > 0 {
					return errors.New("the trainer did not say at which endpoint the new model is served; have it say so, or set learner.reloads when it makes the server load it")
				}
				return o.Offer(ctx, c.backend(m))
			}
		}
	}
	l, err := command.Open(config)
	if err != nil {
		return nil, fmt.Errorf("learner: %w", err)
	}
	return &Policy{Learner: l, Model: func() agl.Model { return c.backend(l.Model()) }}, nil
}

// backend is how the proxy calls a model.
func (c *commandLearner) backend(m command.Model) agl.Model {
	out := agl.Model{Name: c.Name, Endpoint: c.Endpoint, Target: c.Target, Version: m.Version}
	if m.Endpoint != "" {
		out.Endpoint, out.Target = m.Endpoint, m.Target
	}
	return out
}
