package serving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	agl "agentlightning"
)

// Registry is where the proxy finds models; a [agentlightning/store.Store] is one.
type Registry interface {
	PutModels(ctx context.Context, models []agl.Model) error
	ReplaceModels(ctx context.Context, models []agl.Model) error
	DeleteModels(ctx context.Context, name string, endpoints ...string) error
	Models(ctx context.Context) ([]agl.Model, error)
}

// Config says which engine to run and under which name.
type Config struct {
	// Command is the engine and its arguments; required. {model} and {port} in
	// them are replaced. Without {model} it is what follows serve, --model or
	// --model-path; without {port} what follows --port, and when there is neither,
	// "--port" and a port are added.
	Command []string `yaml:"command"`
	// Name is the model's name at the proxy; empty means Model.
	Name string `yaml:"name"`
	// Model is served first; empty means what Command names.
	Model string `yaml:"model"`
	// Version is that of Model.
	Version int64 `yaml:"version"`
	// Endpoint is where the engine answers, as the proxy reaches it; {port} in it
	// is replaced. Empty means http://127.0.0.1:{port}/v1.
	Endpoint string `yaml:"endpoint"`
	// Health is the path that answers 200 once the engine can be used; empty
	// means /health.
	Health string `yaml:"health"`
	// Shared leaves other backends of this name registered; by default this engine
	// is the only one.
	Shared bool `yaml:"shared"`
	// WithoutTokenIDs accepts an engine that returns no token ids: what it answers
	// cannot be trained on.
	WithoutTokenIDs bool `yaml:"without_token_ids"`

	// StartLimit bounds a start, the loading of weights included; 0 means 15
	// minutes.
	StartLimit time.Duration `yaml:"start_limit"`
	// Grace is how long an engine that is stopped has to end by itself; 0 means 30 s.
	Grace time.Duration `yaml:"grace"`
	// Backoff is the wait before the first restart after a crash; it doubles up to
	// a minute. 0 means 1 s.
	Backoff time.Duration `yaml:"backoff"`
	// Restarts is how many starts in a row may fail, or end within a minute,
	// before Run gives up; 0 means 5.
	Restarts int `yaml:"restarts"`
	// Dir is the engine's working directory, Env are variables beside those of
	// this process, as NAME=VALUE.
	Dir string   `yaml:"dir"`
	Env []string `yaml:"env"`

	// Models is where the engine is registered; required.
	Models Registry `yaml:"-"`
	// OnServing is called from Run whenever a model can be called.
	OnServing func(agl.Model) `yaml:"-"`
	// Log gets what the engine writes, both streams; nil discards it.
	Log io.Writer `yaml:"-"`
	// Client asks the engine; nil means one of its own.
	Client *http.Client `yaml:"-"`
	// Logger is told of starts, ends and restarts; nil discards.
	Logger *slog.Logger `yaml:"-"`
}

const (
	modelMark = "{model}"
	portMark  = "{port}"
)

// resolve checks the configuration and fills in what is not said.
func (c Config) resolve() (Config, int, error) {
	switch {
	case len(c.Command) == 0 || c.Command[0] == "":
		return c, 0, errors.New("serving: Command: must be set")
	case c.Models == nil:
		return c, 0, errors.New("serving: Models: must be set")
	case c.StartLimit < 0, c.Grace < 0, c.Backoff < 0:
		return c, 0, fmt.Errorf("serving: StartLimit, Grace, Backoff: %v, %v, %v: must not be negative", c.StartLimit, c.Grace, c.Backoff)
	case c.Restarts < 0:
		return c, 0, fmt.Errorf("serving: Restarts: %d: must not be negative", c.Restarts)
	}
	c.Command = append([]string(nil), c.Command...)
	found, err := c.place(modelMark, "serve", "--model", "--model-path")
	if err != nil {
		return c, 0, err
	}
	if found != "" {
		c.Model = cmp.Or(c.Model, found)
	}
	if !c.has(modelMark) {
		return c, 0, errors.New("serving: Command: names no model; write {model} where it goes")
	}
	if c.Model == "" {
		return c, 0, errors.New("serving: Model: must be set, since Command has only {model}")
	}
	c.Name = cmp.Or(c.Name, c.Model)
	text, err := c.place(portMark, "--port")
	if err != nil {
		return c, 0, err
	}
	port := 0
	if text != "" {
		if port, err = strconv.Atoi(text); err != nil || port < 1 || port > 65535 {
			return c, 0, fmt.Errorf("serving: Command: --port %s: must be a port", text)
		}
	} else if !c.has(portMark) {
		c.Command = append(c.Command, "--port", portMark)
	}
	c.Endpoint = cmp.Or(c.Endpoint, "http://127.0.0.1:"+portMark+"/v1")
	if err := (agl.Model{Name: c.Name, Endpoint: strings.ReplaceAll(c.Endpoint, portMark, "1")}).Validate(); err != nil {
		return c, 0, fmt.Errorf("serving: Endpoint: %w", err)
	}
	c.Health = "/" + strings.TrimPrefix(cmp.Or(c.Health, "/health"), "/")
	c.StartLimit = cmp.Or(c.StartLimit, 15*time.Minute)
	c.Grace = cmp.Or(c.Grace, 30*time.Second)
	c.Backoff = cmp.Or(c.Backoff, time.Second)
	c.Restarts = cmp.Or(c.Restarts, 5)
	if c.Client == nil {
		c.Client = &http.Client{}
	}
	if c.Log == nil {
		c.Log = io.Discard
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, port, nil
}

func (c *Config) has(mark string) bool {
	for _, a := range c.Command {
		if strings.Contains(a, mark) {
			return true
		}
	}
	return false
}

// place puts a mark where one of the words is followed by a value, unless the
// mark is there already, and returns the value.
func (c *Config) place(mark string, words ...string) (string, error) {
	if c.has(mark) {
		return "", nil
	}
	for i, a := range c.Command {
		for _, w := range words {
			if a == w {
				if i+1 == len(c.Command) || strings.HasPrefix(c.Command[i+1], "-") {
					if w == "serve" { // its model may come as --model
						continue
					}
					return "", fmt.Errorf("serving: Command: %s has no value", w)
				}
				value := c.Command[i+1]
				c.Command[i+1] = mark
				return value, nil
			}
			if value, ok := strings.CutPrefix(a, w+"="); ok && strings.HasPrefix(w, "--") {
				c.Command[i] = w + "=" + mark
				return value, nil
			}
		}
	}
	return "", nil
}
