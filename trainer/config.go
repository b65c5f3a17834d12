package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/algorithm"
	"agentlightning/execution"
	"agentlightning/internal/runlog"
	"agentlightning/runner"
	"agentlightning/store"
)

// Proxy is a model proxy that is started for as long as the work takes.
type Proxy interface {
	// Start begins to serve, recording calls in s, and returns the models as
	// agents are to be given them.
	Start(ctx context.Context, s store.Store) (agl.NamedResources, error)
	// Stop ends it; calls under way may finish until ctx ends.
	Stop(ctx context.Context) error
}

// Config says what is trained how and where.
type Config struct {
	// Agent does the rollouts. Required, except in the role of the algorithm.
	Agent agent.Agent
	// Algorithm improves the agent. Nil does what is queued and stops.
	Algorithm algorithm.Algorithm
	// Store is where everything meets. Required, unless ServerURL is given. It
	// stays the caller's to close.
	Store store.Store

	// Runners is how many runners work in this process. Default 1.
	Runners int
	// Concurrency is how many attempts each of them runs at once. Default 1.
	Concurrency int
	// MaxRollouts ends each runner after so many; 0 means no end.
	MaxRollouts int
	// WorkerName is what the runners are called in the store, with their number
	// behind it. Default "Worker" with the store in this process; otherwise host
	// and process id, so that processes differ.
	WorkerName string
	// Runner holds further settings of the runners: intervals and limits. Its
	// fields that are also here must be empty.
	Runner runner.Config

	// RolloutConfig holds limits and retries of rollouts that the algorithm asks
	// for without saying; nil means the store's defaults.
	RolloutConfig *agl.RolloutConfig
	// InitialResources are given to the algorithm, which publishes them. Without
	// an algorithm they are published at the start.
	InitialResources agl.NamedResources
	// Proxy is started before the algorithm; its models join InitialResources
	// under names that are not taken.
	Proxy Proxy
	// Hooks observe the attempts.
	Hooks []agent.Hook
	// RunID names a run that the algorithm resumes; empty means a new one.
	RunID string

	// Role is the part of this process. Default: the environment's
	// AGL_CURRENT_ROLE, otherwise both.
	Role execution.Role
	// ServerURL is the address of a store server that is running. Default for
	// runners: the environment's AGL_SERVER_HOST and AGL_SERVER_PORT.
	ServerURL string
	// Token is sent to the server, when it has one.
	Token string
	// Listen is where the algorithm serves Store to runners of other processes.
	// Default in the role of the algorithm without ServerURL: the environment's
	// host and port. Empty in the role both serves nothing.
	Listen string
	// Strategy replaces what Role, ServerURL, Token and Listen describe.
	Strategy execution.Strategy

	// Logger is told what an operator wants to know; nil discards. From info on it
	// goes to the logs of the runs that the algorithm makes, too, whatever Logger
	// shows; that of runners in other processes does not.
	Logger *slog.Logger

	// published is closed once work that is queued already may begin, because
	// its resources are there; nil when an algorithm sees to that.
	published chan struct{}
	log       *runlog.Log // that was made for this training; nil when there was one, or no run is made here
}

// resolve fills in what the environment and the defaults say and returns the
// strategy. An error names the field that is wrong.
func (c *Config) resolve() (execution.Strategy, error) {
	settings, err := execution.FromEnv(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.Runners = cmp.Or(c.Runners, 1)
	if c.Strategy == nil {
		c.Role = cmp.Or(c.Role, settings.Role)
	} else if c.Role != "" || c.ServerURL != "" || c.Listen != "" {
		return nil, errors.New("trainer: Config.Strategy cannot be combined with Role, ServerURL or Listen; leave those empty")
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.Strategy != nil {
		c.join()
		c.WorkerName = cmp.Or(c.WorkerName, "Worker")
		return c.Strategy, nil
	}
	c.join()
	n := execution.Network{Role: c.Role, URL: c.ServerURL, Token: c.Token, Listen: c.Listen, Logger: c.Logger}
	switch {
	case !settings.Managed && c.ServerURL == "":
		n.Unmanaged = true
	case c.Role == execution.RoleRunner:
		n.URL = cmp.Or(n.URL, settings.URL())
	case c.Role == execution.RoleAlgorithm && n.URL == "":
		n.Listen = cmp.Or(n.Listen, settings.Address())
	case n.URL == "" && n.Listen == "":
		n.Unmanaged = true
	}
	if c.Store == nil && n.URL == "" {
		return nil, errors.New("trainer: Config.Store is nil; pass a store, or the ServerURL of one")
	}
	if c.WorkerName == "" {
		c.WorkerName = "Worker"
		if n.URL != "" {
			host, err := os.Hostname()
			if err != nil {
				host = "runner"
			}
			c.WorkerName = fmt.Sprintf("%s-%d", host, os.Getpid())
		}
	}
	return n, nil
}

// join lets what is said in this process go to the log of the run, too, where one
// is made here, unless it does already.
func (c *Config) join() {
	if c.Role != execution.RoleRunner && runlog.Of(c.Logger) == nil {
		c.Logger, c.log = runlog.Join(c.Logger)
	}
}

func (c *Config) validate() error {
	switch {
	case c.Role != "" && !c.Role.Valid():
		return fmt.Errorf("trainer: Config.Role %q: must be both, algorithm or runner", c.Role)
	case c.Role == execution.RoleAlgorithm && c.Algorithm == nil:
		return errors.New("trainer: Config.Algorithm is nil in the role of the algorithm")
	case c.Role != execution.RoleAlgorithm && c.Agent == nil:
		return errors.New("trainer: Config.Agent is nil; pass the agent that does the rollouts")
	case c.Runners < 0:
		return errors.New("trainer: Config.Runners must not be negative")
	case c.ServerURL != "" && c.Listen != "":
		return errors.New("trainer: Config.ServerURL and Config.Listen exclude each other: the store is there or here")
	case c.Runner.Store != nil || c.Runner.Agent != nil || c.Runner.Hooks != nil || c.Runner.WorkerID != "" ||
		c.Runner.Concurrency != 0 || c.Runner.MaxRollouts != 0 || c.Runner.Logger != nil:
		return errors.New("trainer: Config.Runner holds intervals, limits and a tracer only; " +
			"Agent, Store, Hooks, WorkerName, Concurrency, MaxRollouts and Logger are fields of Config itself")
	}
	return nil
}
