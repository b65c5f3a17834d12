package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"agentlightning/internal/daemon"
	"agentlightning/internal/logs"
	"agentlightning/internal/modellist"
	"agentlightning/internal/recipe"
	"agentlightning/llmproxy"
	"agentlightning/storehttp"
)

// trainScan is how often attempts are checked for time-outs in a training.
const trainScan = time.Second

// openSite opens where a recipe is carried out: a server of this process, or one
// that runs elsewhere.
func (o *trainOptions) openSite(ctx context.Context, r *recipe.Recipe, loggers *logs.Loggers) (*recipe.Site, func() error, error) {
	if r.Server != "" {
		return o.reach(ctx, r, loggers)
	}
	return o.serveHere(ctx, r, loggers)
}

func (o *trainOptions) reach(ctx context.Context, r *recipe.Recipe, loggers *logs.Loggers) (*recipe.Site, func() error, error) {
	client, err := storehttp.NewClient(r.Server, storehttp.WithToken(o.token), storehttp.WithLogger(loggers.Logger("store")))
	if err != nil {
		return nil, nil, usageError{fmt.Errorf("server: %w", err)}
	}
	models, err := client.Models(ctx)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("server %s: %w", r.Server, err), client.Close())
	}
	return &recipe.Site{
		Store: client, URL: r.Server, Token: o.token, Models: modelNames(models), Environ: os.LookupEnv,
		Logger: loggers.Logger("train"),
	}, client.Close, nil
}

// serveHere starts a server on loopback, over the database of the recipe.
func (o *trainOptions) serveHere(ctx context.Context, r *recipe.Recipe, loggers *logs.Loggers) (_ *recipe.Site, _ func() error, err error) {
	var release []func() error
	done := func() error {
		var errs []error
		for _, f := range slices.Backward(release) {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, done())
		}
	}()
	built, entries, err := startBuiltins(ctx, builtinEntries(r), loggers.Logger("proxy"))
	if err != nil {
		return nil, nil, err
	}
	release = append(release, built.close)
	models, err := modellist.ParseAll(entries, os.LookupEnv)
	if err != nil {
		return nil, nil, usageError{fmt.Errorf("models: %w", err)}
	}
	metrics, err := daemon.NewMetrics()
	if err != nil {
		return nil, nil, fmt.Errorf("metrics: %w", err)
	}
	db := r.DBPath()
	if err := folderOf(db); err != nil {
		return nil, nil, fmt.Errorf("db: %w", err)
	}
	kept, err := openStore(ctx, db, "full", trainScan, loggers, metrics)
	if err != nil {
		return nil, nil, err
	}
	release = append(release, kept.Close)
	server, err := daemon.Listen(ctx, daemon.Config{
		Store: kept, Port: r.Port, Metrics: metrics, Log: loggers.Logger, Logger: loggers.Logger(""),
		Proxy: llmproxy.Config{Static: models, Environ: os.Getenv},
	})
	if err != nil {
		return nil, nil, err
	}
	// The server outlives the interrupt: agents that stop report to it.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- server.Run(serving) }()
	release = append(release, func() error {
		stop()
		return <-served
	})
	return &recipe.Site{
		Store: server.Store(), URL: server.URL(), Own: true, Models: modelNames(models), Environ: os.LookupEnv,
		Logger: loggers.Logger("train"),
	}, done, nil
}
