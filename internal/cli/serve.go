package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	agl "agentlightning"
	"agentlightning/internal/daemon"
)

type serveOptions struct {
	host, db, sync  string
	port            int
	models, origins []string
	authToken       string
	insecure        bool
	scan            time.Duration
	logLevel        string
	printConfig     bool

	// Options of release 0.3.
	backend, mongoURI string
	workers           int
	trackers          []string
}

func newServe(name string) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   name,
		Short: "Run the server: store, model proxy, OTLP, dashboard on one port",
		Example: "  agl " + name + "\n" +
			"  agl " + name + " --db sqlite:team.db --model policy=http://127.0.0.1:8000/v1\n" +
			"  agl " + name + " --host 0.0.0.0 --auth-token \"$TOKEN\"",
		Args: func(cmd *cobra.Command, args []string) error {
			// Release 0.3 takes several trackers behind one flag.
			if cmd.Flags().Changed("tracker") {
				o.trackers = append(o.trackers, args...)
				return nil
			}
			return noArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return serve(cmd, &o) },
	}
	if name == "store" {
		cmd.Short = "The same as serve, under the name that release 0.3 gave it"
	}
	f := cmd.Flags()
	f.StringVar(&o.host, "host", "127.0.0.1", "address to listen on; one that others reach needs --auth-token or --insecure")
	f.IntVar(&o.port, "port", 4747, "port to listen on; 0 takes a free one")
	f.StringVar(&o.db, "db", "sqlite:agl.db", "where to keep everything: sqlite:PATH or memory:")
	f.StringVar(&o.sync, "sync", "full", "what an answer survives: full (power loss) or normal (death of the process)")
	f.StringArrayVar(&o.models, "model", nil, "a model backend as NAME=BASE_URL (repeatable)")
	f.StringArrayVar(&o.origins, "cors-origin", nil, "origin that browsers may call from, * for all (repeatable)")
	f.StringVar(&o.authToken, "auth-token", "", "token that every request must carry")
	f.BoolVar(&o.insecure, "insecure", false, "listen on a public address without a token")
	f.DurationVar(&o.scan, "health-scan-interval", 10*time.Second, "at most how often attempts are checked for time-outs; 0s checks before every call that depends on it")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warning or error")
	f.String(configFlag, "", "file with settings (YAML, the names of the flags as keys)")
	f.BoolVar(&o.printConfig, "print-config", false, "print every setting with where it came from, and end")
	f.StringVar(&o.backend, "backend", "", "as in release 0.3: memory is --db memory:")
	f.StringVar(&o.mongoURI, "mongo-uri", "", "as in release 0.3; MongoDB is not supported yet")
	f.IntVar(&o.workers, "n-workers", 1, "as in release 0.3; one process uses all cores")
	f.StringArrayVar(&o.trackers, "tracker", nil, "as in release 0.3; metrics are always at /metrics")
	return cmd
}

func serve(cmd *cobra.Command, o *serveOptions) error {
	source, err := applySettings(cmd, os.LookupEnv)
	if err != nil {
		return err
	}
	if err := o.applyOld(cmd); err != nil {
		return err
	}
	if o.printConfig {
		printSettings(cmd.OutOrStdout(), cmd.Flags(), source)
		return nil
	}
	level, err := logLevel(o.logLevel)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
	models, err := parseModels(o.models)
	if err != nil {
		return err
	}
	if o.workers > 1 {
		logger.Info("one process uses all cores; --n-workers has no effect", "n_workers", o.workers)
	}
	config := daemon.Config{Host: o.host, Port: o.port, AuthToken: o.authToken, Insecure: o.insecure,
		CORSOrigins: o.origins, Models: models, Logger: logger}
	return runServer(cmd, o, config)
}

func runServer(cmd *cobra.Command, o *serveOptions, config daemon.Config) (err error) {
	ctx := cmd.Context()
	if err := config.ValidateAddress(); err != nil {
		return usageError{err}
	}
	kept, err := openStore(ctx, o.db, o.sync, o.scan, config.Logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kept.Close()) }()
	config.Store = kept
	server, err := daemon.Listen(ctx, config)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "agl: dashboard and API on %s, data in %s\n", server.URL(), o.db)
	return server.Run(ctx)
}

// applyOld honours the options of release 0.3.
func (o *serveOptions) applyOld(cmd *cobra.Command) error {
	switch o.backend {
	case "":
	case "memory":
		if !cmd.Flags().Changed("db") {
			o.db = "memory:"
		}
	default:
		return usageError{fmt.Errorf("--backend %s: not supported yet; use --db sqlite:PATH or --db memory:", o.backend)}
	}
	for _, name := range o.trackers {
		if name != "prometheus" && name != "console" {
			return usageError{fmt.Errorf("--tracker %s: must be prometheus or console", name)}
		}
	}
	return nil
}

func parseModels(entries []string) ([]agl.Model, error) {
	var models []agl.Model
	for _, entry := range entries {
		name, endpoint, ok := strings.Cut(entry, "=")
		if !ok || name == "" || !strings.HasPrefix(endpoint, "http://") && !strings.HasPrefix(endpoint, "https://") {
			return nil, usageError{fmt.Errorf("--model %s: must be NAME=BASE_URL with an http or https address", entry)}
		}
		models = append(models, agl.Model{Name: name, Endpoint: endpoint})
	}
	return models, nil
}

func logLevel(name string) (slog.Level, error) {
	var level slog.Level
	if strings.EqualFold(name, "warning") {
		name = "warn"
	}
	if err := level.UnmarshalText([]byte(name)); err != nil {
		return 0, usageError{fmt.Errorf("--log-level %s: must be debug, info, warning or error", name)}
	}
	return level, nil
}
