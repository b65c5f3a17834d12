package program

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"agentlightning/internal/proc"
)

// RewardSource says where the reward of a rollout comes from.
type RewardSource string

// The sources.
const (
	// RewardNone takes no reward from the program: a grader gives it, an event,
	// or nobody. The program must end with exit status 0.
	RewardNone RewardSource = "none"
	// RewardExit takes the exit status: 0 is the reward 1 and
	// [Config.WrongStatus] the reward 0. Every other end fails the attempt.
	RewardExit RewardSource = "exit"
	// RewardStdout takes the last line of standard output, which must be a
	// number or an object whose member "reward" is one. The program must end with
	// exit status 0.
	RewardStdout RewardSource = "stdout"
	// RewardEvent leaves it to the program to post the reward to AGL_EVENT_URL,
	// as {"event_type":"reward","data":{"value":0.5}}. It needs [Config.Server].
	RewardEvent RewardSource = "event"
)

// Config configures an [Agent].
type Config struct {
	// Command is the program and its arguments. It is not read by a shell. Required.
	Command []string
	// Dir is the working directory; empty means ours.
	Dir string
	// Env is added to the environment, as NAME=VALUE, and wins over what the
	// package sets.
	Env []string
	// Server is the address of the server as the program reaches it, for its
	// model, events and spans. Empty means that there is none; the model is then
	// where the resources say, and RewardEvent is refused.
	Server string
	// Model is the name of the resource that is the model; empty takes the first.
	Model string

	// Reward says where the reward comes from. Default [RewardNone].
	Reward RewardSource
	// WrongStatus is the exit status that [RewardExit] takes for the reward 0.
	// Default 1, which some interpreters, Python among them, also give to
	// programs that break: choose another one, or another source, for those.
	WrongStatus int
	// Grader is a command that gives the reward once the program has ended well.
	// It reads {"rollout_id", "attempt_id", "mode", "task", "stdout", "stderr"}
	// on standard input, and the last line that it writes is the reward as for
	// [RewardStdout]. A grader that fails, fails the attempt. It gets no model,
	// so that its calls are not taken for the agent's. It excludes Reward.
	Grader []string

	// Pool keeps processes and gives them one task after another; as many as
	// there are attempts at once. [RewardExit] is refused with it.
	Pool bool

	// Timeout is how long one attempt may take here, beside the limit that the
	// rollout has itself; 0 means no limit.
	Timeout time.Duration
	// Memory is how much memory the program and all that it starts may hold, in
	// bytes; 0 means no limit. Linux only; checked twenty times a second.
	Memory int64
	// Processes is how many processes there may be at once; 0 means no limit.
	// Linux only; checked twenty times a second.
	Processes int
	// Grace is how long the program may take to end after SIGTERM, when its
	// attempt was cancelled or ran out of time; then it is killed. It must be
	// shorter than the runner's. Default 1 s; negative kills at once.
	Grace time.Duration
	// Output is how many bytes of each stream are kept; beyond it the middle is
	// left out. Default 64 KiB.
	Output int
}

func (c Config) withDefaults() Config {
	c.Reward = cmp.Or(c.Reward, RewardNone)
	c.WrongStatus = cmp.Or(c.WrongStatus, 1)
	c.Grace = max(cmp.Or(c.Grace, time.Second), 0)
	c.Output = cmp.Or(c.Output, 64<<10)
	c.Server = strings.TrimRight(c.Server, "/")
	return c
}

func (c Config) limits() proc.Limits { return proc.Limits{Memory: c.Memory, Processes: c.Processes} }

func (c Config) validate() error {
	switch c.Reward {
	case "", RewardNone, RewardExit, RewardStdout, RewardEvent:
	default:
		return fmt.Errorf("program: Config.Reward %q: must be %s, %s, %s or %s", c.Reward, RewardNone, RewardExit, RewardStdout, RewardEvent)
	}
	switch {
	case runtime.GOOS == "windows" || runtime.GOOS == "js" || runtime.GOOS == "wasip1" || runtime.GOOS == "plan9":
		return fmt.Errorf("program: commands cannot be run as agents on %s, where nothing ends all that they start: %w", runtime.GOOS, errors.ErrUnsupported)
	case len(c.Command) == 0 || c.Command[0] == "":
		return errors.New("program: Config.Command is empty; give the program and its arguments")
	case c.Reward == RewardEvent && c.Server == "":
		return errors.New("program: Config.Reward \"event\" needs Config.Server, where the program posts its reward")
	case c.Grader != nil && (len(c.Grader) == 0 || c.Grader[0] == ""):
		return errors.New("program: Config.Grader is empty; give the program and its arguments, or nil")
	case c.Grader != nil && c.Reward != "" && c.Reward != RewardNone:
		return fmt.Errorf("program: Config.Reward %q and Config.Grader are both given; one of them gives the reward", c.Reward)
	case c.Pool && c.Reward == RewardExit:
		return errors.New("program: Config.Reward \"exit\" does not go with Config.Pool, whose processes do not end")
	case c.WrongStatus < 0 || c.WrongStatus > 255:
		return fmt.Errorf("program: Config.WrongStatus %d: must be from 1 to 255; 0 means 1", c.WrongStatus)
	case c.Timeout < 0:
		return fmt.Errorf("program: Config.Timeout %v: must not be negative; 0 has no limit", c.Timeout)
	case c.Output < 0:
		return fmt.Errorf("program: Config.Output %d: must not be negative", c.Output)
	}
	if c.Server != "" {
		if u, err := url.Parse(c.Server); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("program: Config.Server %q: must be an address like http://127.0.0.1:4747", c.Server)
		}
	}
	for _, e := range c.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" {
			return fmt.Errorf("program: Config.Env %q: must be NAME=VALUE", e)
		}
	}
	if err := c.limits().Check(); err != nil {
		return fmt.Errorf("program: %w", err)
	}
	for _, command := range [][]string{c.Command, c.Grader} {
		// A path is looked at from Dir when the program starts.
		if len(command) > 0 && !strings.ContainsRune(command[0], '/') {
			if _, err := exec.LookPath(command[0]); err != nil {
				return fmt.Errorf("program: command %q: %w", command[0], err)
			}
		}
	}
	return nil
}
