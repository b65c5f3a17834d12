package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"agentlightning/agent"
	"agentlightning/agent/program"
	"agentlightning/execution"
	"agentlightning/runner"
	"agentlightning/storehttp"
)

// runnerOptions are the flags of agl runner.
type runnerOptions struct {
	client  clientOptions
	program programOptions

	agentURL, workerID string
	workers, most      int
	untilStdinEnds     bool
	grace              time.Duration
	logs               logOptions
}

// programOptions are the flags that describe a program as an agent.
type programOptions struct {
	reward, grader string
	wrongStatus    int
	pool           bool
	model, dir     string
	env            []string
	timeout        time.Duration
	memory, output byteSize
	processes      int
}

func (o *programOptions) bind(f *pflag.FlagSet) {
	f.StringVar(&o.reward, "reward", string(program.RewardNone), "where the reward comes from: exit (status 0 is 1, --wrong-status is 0), stdout (the last line, a number or {\"reward\": NUMBER}), event (posted to AGL_EVENT_URL) or none")
	f.IntVar(&o.wrongStatus, "wrong-status", 1, "exit status that --reward exit takes for the reward 0; every other one fails the attempt")
	f.StringVar(&o.grader, "grader", "", "shell command that gives the reward: it reads task and output as JSON and prints the reward last")
	f.BoolVar(&o.pool, "pool", false, "keep the processes, and give them one task after another, a line of JSON each")
	f.StringVar(&o.model, "model", "", "name of the resource that is the model; by default the first")
	f.StringVar(&o.dir, "dir", "", "working directory of the command")
	f.StringArrayVar(&o.env, "env", nil, "variable for the command, NAME=VALUE (repeatable)")
	f.DurationVar(&o.timeout, "timeout", 0, "how long one attempt may take, beside the limit of the rollout; 0s has none")
	f.Var(&o.memory, "memory", "how much memory the command may hold with all that it starts, such as 2GiB; 0 has no limit (Linux)")
	f.IntVar(&o.processes, "processes", 0, "how many processes there may be at once for an attempt; 0 has no limit (Linux)")
	o.output = 64 << 10
	f.Var(&o.output, "output", "how much of standard output and of standard error is kept, each")
}

// config describes the command as an agent that reaches the server at an address.
func (o *programOptions) config(command []string, server string, grace time.Duration) program.Config {
	c := program.Config{
		Command: command, Dir: o.dir, Env: o.env, Server: server, Model: o.model,
		Reward: program.RewardSource(o.reward), WrongStatus: o.wrongStatus, Pool: o.pool,
		Timeout: o.timeout, Memory: int64(o.memory), Processes: o.processes, Output: int(o.output),
		// The runner leaves an agent behind that takes as long as its own grace.
		Grace: min(time.Second, grace/2),
	}
	if grace == 0 {
		c.Grace = -1
	}
	if o.grader != "" {
		c.Grader = []string{"sh", "-c", o.grader}
	}
	return c
}

func newRunner() *cobra.Command {
	var o runnerOptions
	cmd := &cobra.Command{
		Use:   "runner [flags] -- COMMAND [ARGUMENT…]",
		Short: "Do rollouts with any command: task on standard input, model and keys in the environment",
		Long: "Take rollouts from a server and run a command for each.\n\n" +
			"The command finds its task as JSON on standard input and in AGL_TASK, its model in OPENAI_BASE_URL and ANTHROPIC_BASE_URL with their keys, " +
			"the resources in AGL_RESOURCES, and posts events to AGL_EVENT_URL with AGL_KEY. Its model calls are recorded as calls of the attempt. " +
			"What it writes is kept, see 'agl rollouts show'. Nothing of it outlives its attempt, nor this runner.\n\n" +
			"An interrupt lets attempts finish for --grace, then stops them and gives their rollouts back to the queue.",
		Example: "  agl runner -- ./solve.sh\n" +
			"  agl runner --workers 8 --reward stdout --timeout 5m --memory 2GiB -- python agent.py\n" +
			"  agl runner --grader 'python grade.py' --max-rollouts 100 -- node agent.js\n" +
			"  agl runner --server https://train.example.com --token \"$AGL_AUTH_TOKEN\" --worker-id gpu-7 -- ./agent",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{fmt.Errorf("there is no command; give it after --, as in '%s -- ./agent.sh'", cmd.CommandPath())}
			}
			return nil
		},
		RunE: o.run,
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // the flags of the command are its own
	o.client.bind(cmd)
	f.StringVar(&o.agentURL, "agent-url", "", "address of the server as the command reaches it, when that is another one than --server")
	f.IntVar(&o.workers, "workers", 1, "how many attempts run at once")
	f.IntVar(&o.most, "max-rollouts", 0, "end after so many rollouts; 0 has no end")
	f.StringVar(&o.workerID, "worker-id", "", "name in the store, which no other runner may have: what a runner of this name left when it was killed is given back first; by default AGL_WORKER_ID, or host and process id")
	f.BoolVar(&o.untilStdinEnds, "until-stdin-ends", false, "stop, as after an interrupt, when standard input ends: for a process that starts runners")
	f.DurationVar(&o.grace, "grace", 2*time.Second, "how long attempts may go on after an interrupt, and a command that is stopped after SIGTERM, half of it")
	o.program.bind(f)
	o.logs.bind(f)
	return cmd
}

func (o *runnerOptions) run(cmd *cobra.Command, command []string) (err error) {
	ctx := cmd.Context()
	if o.workers < 1 {
		return usageError{fmt.Errorf("--workers %d: must be 1 or more", o.workers)}
	}
	if o.most < 0 {
		return usageError{fmt.Errorf("--max-rollouts %d: must be 0 or more", o.most)}
	}
	if o.grace < 0 {
		return usageError{fmt.Errorf("--grace %s: must be 0s or more", o.grace)}
	}
	loggers, closeLog, err := o.logs.open(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	logger := loggers.Logger("")
	server, token := o.client.address()
	client, err := storehttp.NewClient(server, storehttp.WithToken(token), storehttp.WithLogger(logger))
	if err != nil {
		return usageError{fmt.Errorf("--server %s: %w", server, err)}
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	work, err := program.New(o.program.config(command, cmp.Or(o.agentURL, server), o.grace))
	if err != nil {
		return usageError{err}
	}
	defer func() { err = errors.Join(err, work.Close()) }()

	var done progress
	named := o.workerID != ""
	if o.workerID = cmp.Or(o.workerID, os.Getenv(execution.EnvWorkerID)); o.workerID == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "runner"
		}
		o.workerID = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	grace := o.grace
	if grace == 0 {
		grace = -1
	}
	r, err := runner.New(runner.Config{
		Store: client, Agent: work, WorkerID: o.workerID, Concurrency: o.workers, MaxRollouts: o.most,
		Grace: grace, GiveBack: true, Reclaim: named, Logger: logger,
		Hooks: []agent.Hook{{OnRolloutEnd: func(_ context.Context, c *agent.Call, outcome agent.Outcome) error {
			return done.report(cmd, c, outcome)
		}}},
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "agl: %s takes rollouts from %s, %d at once, and runs %s\n", o.workerID, server, o.workers, strings.Join(command, " "))
	running, stop := context.WithCancel(ctx)
	defer stop()
	if o.untilStdinEnds {
		go func() { // lives as long as this process at the most
			_, _ = io.Copy(io.Discard, cmd.InOrStdin())
			stop()
		}()
	}
	if err := r.Run(running); err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), done.summary())
	if o.untilStdinEnds {
		return nil // an interrupt is one of the ways in which it is told to stop
	}
	return ctx.Err()
}

// progress counts and tells how rollouts end.
type progress struct {
	mu                        sync.Mutex
	succeeded, failed, reward int
	sum                       float64
}

func (p *progress) report(cmd *cobra.Command, c *agent.Call, o agent.Outcome) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	what := "succeeded"
	switch {
	case o.Err != nil:
		p.failed++
		what = "failed: " + oneLine(o.Err)
	case o.Reward != nil:
		p.succeeded++
		p.reward++
		p.sum += *o.Reward
		what = fmt.Sprintf("succeeded, reward %g", *o.Reward)
	default:
		p.succeeded++
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s  %s  %s\n", c.Rollout.RolloutID, o.Elapsed.Round(time.Millisecond), what)
	return err
}

func (p *progress) summary() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := fmt.Sprintf("agl: %s succeeded, %d failed", counted(p.succeeded, "attempt"), p.failed)
	if p.reward > 0 {
		text += fmt.Sprintf(", mean reward %.3g of %d", p.sum/float64(p.reward), p.reward)
	}
	return text
}
