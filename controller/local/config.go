package local

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strings"
	"time"
)

// Config configures a [Controller].
type Config struct {
	// Server is the address of the server. Required.
	Server string
	// AgentURL is the address of the server as agents reach it. Default Server.
	AgentURL string
	// Token is sent to the server, and handed to agents as AGL_KEY; empty for none.
	Token string
	// HTTP is the client to use; nil means one with defaults.
	HTTP *http.Client

	// Size is how many agents run at once. Default 50.
	Size int
	// PollInterval is the time between looks at the server. The end of an agent
	// is reported at once. Default 10 s.
	PollInterval time.Duration

	// Python is the interpreter that runs classes. Default "python3".
	Python string
	// Commands are agents that are no classes: what config.local.agent_class of a
	// rollout names here is run by the shell.
	Commands map[string]string
	// Dir is the working directory of agents, where their modules are found;
	// empty means ours.
	Dir string
	// Output gets what agents write; nil discards it. It must be a file, for
	// agents may outlive this process.
	Output *os.File
	// StateDir is the folder that notes what runs. Required. It is made when it
	// is not there, and no other controller may use it.
	StateDir string
	// Leave lets agents go on when the controller is stopped, for the next one.
	// Otherwise they are ended, and their rollouts fail.
	Leave bool

	// Logger is told what happens; nil discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Server = strings.TrimRight(c.Server, "/")
	c.AgentURL = strings.TrimRight(cmp.Or(c.AgentURL, c.Server), "/")
	c.Size = cmp.Or(c.Size, 50)
	c.PollInterval = cmp.Or(c.PollInterval, 10*time.Second)
	c.Python = cmp.Or(c.Python, "python3")
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c Config) validate() error {
	for name, address := range map[string]string{"Server": c.Server, "AgentURL": c.AgentURL} {
		if address == "" && name == "AgentURL" {
			continue
		}
		if u, err := url.Parse(address); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("controller: Config.%s %q: must be an address like http://127.0.0.1:8080", name, address)
		}
	}
	switch {
	case runtime.GOOS == "windows":
		return fmt.Errorf("controller: agents cannot be run on windows, where nothing ends all that they start: %w", errors.ErrUnsupported)
	case c.StateDir == "":
		return errors.New("controller: Config.StateDir is empty; name the folder that notes what runs")
	case c.Size < 0:
		return fmt.Errorf("controller: Config.Size %d: must not be negative; 0 means 50", c.Size)
	case c.PollInterval < 0:
		return fmt.Errorf("controller: Config.PollInterval %v: must not be negative; 0 means 10s", c.PollInterval)
	}
	return nil
}
