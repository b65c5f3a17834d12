package cli

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentlightning/controller/local"
)

// controllerKeys are the keys of release 1.0's controller.yaml with the flags
// that mean the same.
var controllerKeys = map[string]string{
	"runner_type":                    "runner-type",
	"agl_server.url":                 "server",
	"agl_server.agent_url":           "agent-url",
	"agl_server.key":                 "token",
	"local_runner.maximum_size":      "size",
	"local_runner.poll_interval":     "poll-interval",
	"k8s_runner.namespace":           "k8s-namespace",
	"k8s_runner.ttl_after_finished":  "k8s-ttl-after-finished",
	"k8s_runner.max_jobs_per_minute": "k8s-max-jobs-per-minute",
	"k8s_runner.poll_interval":       "k8s-poll-interval",
}

// seconds is a flag that takes a number of seconds as well as a duration.
type seconds time.Duration

// Set implements [pflag.Value].
func (s *seconds) Set(text string) error {
	if number, err := strconv.ParseFloat(text, 64); err == nil {
		text = strconv.FormatFloat(number, 'f', -1, 64) + "s"
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return errors.New("must be a number of seconds or a duration such as 500ms, more than 0")
	}
	*s = seconds(d)
	return nil
}

// String implements [pflag.Value].
func (s *seconds) String() string { return time.Duration(*s).String() }

// Type implements [pflag.Value].
func (*seconds) Type() string { return "seconds" }

type controllerOptions struct {
	server, agentURL, token string
	kind                    string
	size                    int
	poll                    seconds
	python, dir, state      string
	agents                  []string
	leave, printConfig      bool
	logs                    logOptions
}

func newController() *cobra.Command {
	o := controllerOptions{poll: seconds(10 * time.Second)}
	var given []string
	cmd := &cobra.Command{
		Use:   "controller [key=value ...]",
		Short: "Run queued rollouts of the 1.0 protocol as processes of this machine",
		Long: "Take queued rollouts of the 1.0 protocol from a server and run an agent for each: the Python class that config.local.agent_class names, " +
			"or the command that --agent gives for it. Agents find their model in AGL_OPENAI_BASE_URL, post their reward to AGL_EVENT_URL, both with AGL_KEY, " +
			"and get variables from their input as config.local.env_map says.\n\n" +
			"A controller that was killed and is started again goes on with its agents. One that is stopped ends them, unless --leave is given.\n\n" +
			"It takes the keys of release 1.0's controller.yaml as arguments, and in the file that --config names, beside the flags below; those of k8s_runner mean nothing here:\n\n" +
			keysHelp(controllerKeys),
		Example: "  agl controller\n" +
			"  agl controller agl_server.url=http://127.0.0.1:8080 agl_server.key=\"$AGL_KEY\" local_runner.maximum_size=200\n" +
			"  agl controller --python .venv/bin/python --dir agents\n" +
			"  agl controller --agent solver='node solve.js' --leave",
		Args: func(_ *cobra.Command, args []string) error {
			given = args
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := applyKeys(cmd.Flags(), given, controllerKeys); err != nil {
				return usageError{err}
			}
			return o.run(cmd)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.server, "server", "http://127.0.0.1:"+strconv.Itoa(gatewayPort), "address of the server")
	f.StringVar(&o.agentURL, "agent-url", "", "address of the server as agents reach it, when that is another one")
	f.StringVar(&o.token, "token", "", "the server's token, which agents get as AGL_KEY (AGL_TOKEN, AGL_AUTH_TOKEN)")
	f.StringVar(&o.kind, "runner-type", "local", "as in release 1.0; this one is local")
	f.IntVar(&o.size, "size", 50, "how many agents run at once")
	f.Var(&o.poll, "poll-interval", "time between looks at the server, in seconds; ends of agents are reported at once")
	f.StringVar(&o.python, "python", "python3", "interpreter that runs agents that are Python classes")
	f.StringArrayVar(&o.agents, "agent", nil, "agent that is a shell command, as NAME=COMMAND, where NAME is its config.local.agent_class (repeatable)")
	f.StringVar(&o.dir, "dir", "", "working directory of agents, where their modules are found")
	f.StringVar(&o.state, "state-dir", "", "folder that notes what runs; no two controllers may share one (default: one for each server in the user's cache)")
	f.BoolVar(&o.leave, "leave", false, "let agents go on when the controller is stopped, for the next one")
	f.String(configFlag, "", "file with settings (YAML, the keys above or the names of the flags)")
	f.BoolVar(&o.printConfig, "print-config", false, "print every setting with where it came from, and end")
	for _, name := range []string{"k8s-namespace", "k8s-ttl-after-finished", "k8s-max-jobs-per-minute", "k8s-poll-interval"} {
		f.String(name, "", "as in release 1.0, for another controller")
		f.Lookup(name).Hidden = true
	}
	o.logs.bind(f)
	return cmd
}

func (o *controllerOptions) run(cmd *cobra.Command) (err error) {
	source, err := applySettings(cmd, os.LookupEnv, controllerKeys)
	if err != nil {
		return err
	}
	if o.printConfig {
		printSettings(cmd.OutOrStdout(), cmd.Flags(), source)
		return nil
	}
	switch o.kind {
	case "local":
	case "k8s":
		return usageError{errors.New("runner_type k8s: this controller runs processes of this machine; leave runner_type out, or set it to local")}
	default:
		return usageError{fmt.Errorf("unknown runner_type: %s", o.kind)}
	}
	if o.size < 1 {
		return usageError{fmt.Errorf("--size %d: must be 1 or more", o.size)}
	}
	commands := map[string]string{}
	for _, agent := range o.agents {
		name, command, ok := strings.Cut(agent, "=")
		if !ok || name == "" || command == "" {
			return usageError{fmt.Errorf("--agent %s: must be NAME=COMMAND", agent)}
		}
		commands[name] = command
	}
	if o.state == "" {
		if o.state, err = stateOf(o.server); err != nil {
			return err
		}
	}
	loggers, closeLog, err := o.logs.open(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	output, _ := cmd.OutOrStdout().(*os.File)
	c, err := local.New(local.Config{
		Server: o.server, AgentURL: o.agentURL, Token: cmp.Or(o.token, os.Getenv("AGL_AUTH_TOKEN")),
		Size: o.size, PollInterval: time.Duration(o.poll),
		Python: o.python, Commands: commands, Dir: o.dir, Output: output, StateDir: o.state, Leave: o.leave,
		Logger: loggers.Logger(""),
	})
	if err != nil {
		return usageError{err}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "agl: runs rollouts of %s, %d at once; notes in %s\n", o.server, o.size, o.state)
	return c.Run(cmd.Context())
}

// stateOf is the folder of the controllers of a server.
func stateOf(server string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", usageError{fmt.Errorf("there is no folder for notes: %w; name one with --state-dir", err)}
	}
	sum := sha256.Sum256([]byte(server))
	return filepath.Join(cache, "agl", "controller-"+hex.EncodeToString(sum[:6])), nil
}
