package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	agl "agentlightning"
	"agentlightning/learner/command"
	"agentlightning/learner/serving"
	"agentlightning/storehttp"
)

// vllmOptions are the flags of agl vllm.
type vllmOptions struct {
	client  clientOptions
	program string
	follow  string
	engine  serving.Config
	env     []string
	logs    logOptions
}

func newVLLM() *cobra.Command {
	var o vllmOptions
	cmd := &cobra.Command{
		Use:   "vllm [flags] -- serve MODEL [ARGUMENT…]",
		Short: "Run an inference engine for a server: start, check, register, serve newer models, restart",
		Long: "Run vLLM, or another engine, as a child process of which nothing stays.\n\n" +
			"The engine is started with the arguments and awaited. It must answer one call with token ids, or it is refused: without them nothing can be " +
			"trained. It is registered with the server under --name, so that agents reach it through the model proxy, and withdrawn when it stops. When it " +
			"crashes it is started again.\n\n" +
			"With --follow the models of a trainer (the folder of a learner of package learner/command) are served as they are made: whole models by a restart, " +
			"adapters by vLLM's /v1/load_lora_adapter.\n\n" +
			"The model is what follows serve, --model or --model-path, or where {model} is; the port what follows --port, or where {port} is, otherwise a free " +
			"one is added as --port.",
		Example: "  agl vllm --name policy -- serve Qwen/Qwen3-4B-Instruct-2507 --enable-auto-tool-choice --tool-call-parser hermes\n" +
			"  agl vllm --name policy --follow runs/trainer --env VLLM_ALLOW_RUNTIME_LORA_UPDATING=True -- serve Qwen/Qwen3-4B --enable-lora\n" +
			"  agl vllm --name policy --program python3 -- -m sglang.launch_server --model-path Qwen/Qwen3-4B",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{fmt.Errorf("there is nothing to run; give the engine's arguments after --, as in '%s -- serve MODEL'", cmd.CommandPath())}
			}
			return nil
		},
		RunE: o.run,
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // the flags of the engine are its own
	o.client.bind(cmd)
	f.StringVar(&o.program, "program", "vllm", "the engine: a name looked up in PATH, or a path")
	f.StringVar(&o.engine.Name, "name", "", "name of the model at the proxy; by default that of the model itself")
	f.StringVar(&o.engine.Model, "model", "", "model to begin with, when the arguments only say {model}")
	f.StringVar(&o.follow, "follow", "", "folder of a trainer whose models are served as they are made")
	f.StringVar(&o.engine.Endpoint, "endpoint", "", "address of the engine as the server reaches it, with {port}; by default http://127.0.0.1:{port}/v1")
	f.StringVar(&o.engine.Health, "health", "/health", "path that answers 200 once the engine can be used")
	f.BoolVar(&o.engine.Shared, "shared", false, "leave other backends of this name registered")
	f.BoolVar(&o.engine.WithoutTokenIDs, "without-token-ids", false, "accept an engine that returns no token ids; nothing it says can be trained on")
	f.DurationVar(&o.engine.StartLimit, "start-limit", 15*time.Minute, "how long a start may take, the loading of weights included")
	f.DurationVar(&o.engine.Grace, "grace", 30*time.Second, "how long the engine has to end by itself")
	f.IntVar(&o.engine.Restarts, "restarts", 5, "how many starts in a row may fail after the first")
	f.StringVar(&o.engine.Dir, "dir", "", "working directory of the engine")
	f.StringArrayVar(&o.env, "env", nil, "variable for the engine, NAME=VALUE (repeatable)")
	o.logs.bind(f)
	return cmd
}

func (o *vllmOptions) run(cmd *cobra.Command, args []string) (err error) {
	loggers, closeLog, err := o.logs.open(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	server, token := o.client.address()
	client, err := storehttp.NewClient(server, storehttp.WithToken(token), storehttp.WithLogger(loggers.Logger("")))
	if err != nil {
		return usageError{fmt.Errorf("--server %s: %w", server, err)}
	}
	defer func() { err = errors.Join(err, client.Close()) }()

	c := o.engine
	c.Command, c.Env, c.Models = append([]string{o.program}, args...), o.env, client
	c.Log, c.Logger = cmd.ErrOrStderr(), loggers.Logger("")
	c.OnServing = func(m agl.Model) {
		fmt.Fprintf(cmd.OutOrStdout(), "agl: %s, version %d, is %s at %s\n", m.Name, m.Version, m.Target, m.Endpoint)
	}
	var first command.Model
	if o.follow != "" {
		if _, err := os.Stat(o.follow); err != nil {
			return usageError{fmt.Errorf("--follow: %w", err)}
		}
		first, err = command.Current(o.follow)
		switch {
		case errors.Is(err, fs.ErrNotExist): // nothing was made yet
		case err != nil:
			return fmt.Errorf("--follow: %w", err)
		case first.Endpoint == "" && !serving.Adapter(first):
			c.Model, c.Version = first.Path, first.Version
		default: // goes on top of the model of the arguments
			first = command.Model{}
		}
	}
	engine, err := serving.New(c)
	if err != nil {
		return usageError{errors.New(strings.TrimPrefix(err.Error(), "serving: "))}
	}
	group, ctx := errgroup.WithContext(cmd.Context())
	group.Go(func() error {
		if err := engine.Run(ctx); err != nil {
			return err
		}
		return context.Cause(ctx) // so that what follows ends, too
	})
	if o.follow != "" {
		group.Go(func() error { return o.followModels(ctx, cmd, engine, first.Version) })
	}
	err = group.Wait()
	return cmp.Or(cmd.Context().Err(), err)
}

// followEvery is the time between looks at the folder of a trainer.
const followEvery = time.Second

// followModels serves the models of a trainer. One that cannot be served is
// reported once; the engine goes on with the one before.
func (o *vllmOptions) followModels(ctx context.Context, cmd *cobra.Command, engine *serving.Engine, known int64) error {
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	for {
		m, err := command.Current(o.follow)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return fmt.Errorf("--follow: %w", err)
		case m.Version != known:
			known = m.Version
			if err := engine.Serve(ctx, m); err != nil && ctx.Err() == nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "agl: version %d is not served: %s\n", m.Version, oneLine(err))
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
