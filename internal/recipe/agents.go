package recipe

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"agentlightning/agent"
	"agentlightning/agent/program"
)

// remote is the agent that runs elsewhere.
const remote = "remote"

// programAgent starts a command for each rollout; see [program.Config].
type programAgent struct {
	Command []string
	// Dir is the working directory; empty means the folder of the recipe.
	Dir         string
	Env         map[string]string
	Reward      string
	WrongStatus int
	Grader      []string
	Pool        bool
	Timeout     time.Duration
	Memory      int64
	Processes   int
	Grace       time.Duration
	Output      int
}

// Open implements [AgentSettings].
func (a *programAgent) Open(server string, path func(string) string) (agent.Agent, func() error, error) {
	dir := a.Dir
	if dir == "" {
		dir = "."
	}
	var env []string
	for _, name := range slices.Sorted(maps.Keys(a.Env)) {
		env = append(env, name+"="+a.Env[name])
	}
	p, err := program.New(program.Config{
		Command: a.Command, Dir: path(dir), Env: env, Server: server,
		Reward: program.RewardSource(a.Reward), WrongStatus: a.WrongStatus, Grader: a.Grader, Pool: a.Pool,
		Timeout: a.Timeout, Memory: a.Memory, Processes: a.Processes, Grace: a.Grace, Output: a.Output,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("agent: %w", inFile(err))
	}
	return p, p.Close, nil
}

// inFile says what is wrong in the words of the file.
func inFile(err error) error {
	r := strings.NewReplacer("program: ", "", "Config.Command", "command", "Config.Dir", "dir", "Config.Env", "env",
		"Config.Reward", "reward", "Config.WrongStatus", "wrong_status", "Config.Grader", "grader", "Config.Pool", "pool",
		"Config.Timeout", "timeout", "Config.Memory", "memory", "Config.Processes", "processes", "Config.Output", "output")
	return &worded{r.Replace(err.Error()), err}
}

// worded is an error in other words.
type worded struct {
	text string
	err  error
}

func (e *worded) Error() string { return e.text }
func (e *worded) Unwrap() error { return e.err }

// remoteAgent leaves the rollouts to runners elsewhere.
type remoteAgent struct{}

// Open implements [AgentSettings].
func (*remoteAgent) Open(string, func(string) string) (agent.Agent, func() error, error) {
	return nil, func() error { return nil }, nil
}
