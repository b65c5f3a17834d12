package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"agentlightning/learner"
)

// Variables of the trainer's environment.
const (
	EnvRows    = "AGL_TRAIN_ROWS"    // file with the rows, JSONL
	EnvParquet = "AGL_TRAIN_PARQUET" // file with the same rows, Parquet
	EnvOptions = "AGL_TRAIN_OPTIONS" // file with the options of the update, JSON
	EnvModel   = "AGL_TRAIN_MODEL"   // what is trained: a path, or what Config.Model says
	EnvOutput  = "AGL_TRAIN_OUTPUT"  // where the new model goes; the folder does not exist
	EnvVersion = "AGL_TRAIN_VERSION" // number of the new model
	// EnvLogprobs is a file that the trainer may write, JSONL: of each row the
	// log-probabilities of its tokens under the policy in training, as
	// {"row": 0, "logprobs": [null, -0.5]}.
	EnvLogprobs = "AGL_TRAIN_LOGPROBS"
	EnvServer   = "AGL_SERVER"     // address of the server; empty when there is none
	EnvToken    = "AGL_AUTH_TOKEN" // token for it; empty when there is none
)

// Config says what to run and where its files are.
type Config struct {
	// Command is the trainer and its arguments; required. A name without a slash
	// is looked up in PATH.
	Command []string `yaml:"command"`
	// Dir is the folder of the learner: the model in hand, and a folder for each
	// update; required. One learner at a time uses it.
	Dir string `yaml:"dir"`
	// Model is what the first update trains, such as a path or a name on a hub;
	// handed on as it is.
	Model string `yaml:"model"`
	// Honours names the options that the trainer reads, of learning_rate, epochs,
	// minibatch, max_grad_norm, seed, and of the loss as loss.clip or loss for all
	// of it; * means all there are. An update that sets another is refused.
	Honours []string `yaml:"honours"`
	// WorkDir is the trainer's working directory; empty means ours.
	WorkDir string `yaml:"work_dir"`
	// Env are variables beside those of this process, as NAME=VALUE.
	Env []string `yaml:"env"`
	// ServerURL and Token let the trainer reach the server. The token of this
	// process (AGL_AUTH_TOKEN) is never handed on; give one here that opens no
	// more than the trainer needs, such as
	// [agentlightning/storehttp.Client.ReaderToken].
	ServerURL string `yaml:"server_url"`
	Token     string `yaml:"-"`
	// Limit bounds one update; 0 sets none. Grace is how long a trainer that is
	// stopped has to end by itself; 0 means 10 s.
	Limit time.Duration `yaml:"limit"`
	Grace time.Duration `yaml:"grace"`
	// Keep is how many of the newest models stay in Dir; 0 means 2.
	Keep int `yaml:"keep"`

	// Serve makes a model the one that is sampled from, before an update, or Load,
	// returns: such as [agentlightning/learner/serving.Engine.Serve]. On its error
	// the model before stays in hand. Nil leaves that to others.
	Serve func(ctx context.Context, m Model) error `yaml:"-"`
	// OnMetrics is called with each line of measurements while a trainer runs, from
	// a goroutine of the update.
	OnMetrics func(learner.Metrics) `yaml:"-"`
	// Log gets a copy of what trainers write, both streams; nil keeps it in the
	// folder of the update only.
	Log io.Writer `yaml:"-"`
	// Logger is told of starts and ends, and of each line that trainers write; nil
	// discards.
	Logger *slog.Logger `yaml:"-"`
}

// Model is what a trainer made.
type Model struct {
	// Version counts updates; 0 is the model of the configuration.
	Version int64 `json:"version"`
	// Path is where it is, absolute when it is in a folder of the learner.
	Path string `json:"path"`
	// Endpoint is a server that serves it already, Target its name there; empty
	// when it is files alone.
	Endpoint string `json:"endpoint,omitempty"`
	Target   string `json:"target,omitempty"`
}

func (c Config) withDefaults() Config {
	if c.Grace == 0 {
		c.Grace = 10 * time.Second
	}
	if c.Keep == 0 {
		c.Keep = 2
	}
	if c.Log == nil {
		c.Log = io.Discard
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// optionNames are what Honours may name.
func optionNames() []string {
	return []string{"*", "learning_rate", "epochs", "minibatch", "max_grad_norm", "seed", "loss"}
}

// Validate returns an error naming the field that is out of range.
func (c Config) Validate() error {
	switch {
	case len(c.Command) == 0 || c.Command[0] == "":
		return errors.New("command: Command: must be set")
	case c.Dir == "":
		return errors.New("command: Dir: must be set")
	case c.Limit < 0:
		return fmt.Errorf("command: Limit: %v: must not be negative", c.Limit)
	case c.Grace < 0:
		return fmt.Errorf("command: Grace: %v: must not be negative", c.Grace)
	case c.Keep < 0:
		return fmt.Errorf("command: Keep: %d: must not be negative", c.Keep)
	case c.Token != "" && c.ServerURL == "":
		return errors.New("command: Token: there is no ServerURL that it is for")
	}
	for _, name := range c.Honours {
		if !slices.Contains(optionNames(), name) && !strings.HasPrefix(name, "loss.") {
			return fmt.Errorf("command: Honours: %q: must be one of %s, or of the loss as loss.clip", name, strings.Join(optionNames(), ", "))
		}
	}
	for _, e := range c.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" {
			return fmt.Errorf("command: Env: %q: must be NAME=VALUE", e)
		}
	}
	return nil
}
