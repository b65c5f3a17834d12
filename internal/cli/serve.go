package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"agentlightning/internal/daemon"
	"agentlightning/internal/doctor"
	"agentlightning/internal/logs"
	"agentlightning/store"
	"agentlightning/storehttp"
)

type serveOptions struct {
	host, db, sync string
	port           int
	origins        []string
	authToken      string
	insecure       bool
	scan           time.Duration
	printConfig    bool

	tlsCert, tlsKey string
	publicURL       string
	otlpPort        int
	maxBody         byteSize
	proxy           proxyOptions
	calls           callOptions
	logs            logOptions

	keys map[string]string // other names of settings, with the flags that they mean

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
	o.bind(cmd.Flags(), servePort)
	return cmd
}

// servePort is where a server listens unless told otherwise.
const servePort = 4747

func (o *serveOptions) bind(f *pflag.FlagSet, port int) {
	f.StringVar(&o.host, "host", "127.0.0.1", "address to listen on; one that others reach needs --auth-token or --insecure")
	f.IntVar(&o.port, "port", port, "port to listen on; 0 takes a free one")
	f.IntVar(&o.otlpPort, "otlp-grpc-port", 0, "port for OTLP over gRPC, by custom 4317; 0 opens none (OTLP over HTTP is at /v1/traces)")
	f.StringVar(&o.db, "db", defaultDB, "where to keep everything: sqlite:PATH or memory:")
	f.StringVar(&o.sync, "sync", "full", "what an answer survives: full (power loss) or normal (death of the process)")
	f.StringArrayVar(&o.origins, "cors-origin", nil, "origin that browsers may call from, * for all (repeatable)")
	f.StringVar(&o.authToken, "auth-token", "", "token that every request must carry")
	f.BoolVar(&o.insecure, "insecure", false, "listen on a public address without a token")
	f.DurationVar(&o.scan, "health-scan-interval", 10*time.Second, "at most how often attempts are checked for time-outs; 0s checks before every call that depends on it")
	f.StringVar(&o.tlsCert, "tls-cert", "", "file with a certificate (PEM); with --tls-key the port speaks TLS; a renewed one is taken up without a restart")
	f.StringVar(&o.tlsKey, "tls-key", "", "file with the key of the certificate (PEM)")
	f.Var(&o.maxBody, "max-body", "most bytes of a request's body, such as 64MiB; 0 leaves it to each protocol")
	f.StringVar(&o.publicURL, "public-url", "", "address by which agents reach the server, named in resources and printed links; by default the one that is listened on")
	o.proxy.bind(f)
	o.calls.bind(f)
	o.logs.bind(f)
	f.Lookup("log-level").Usage += "; also by area, as in info,store=debug,proxy=warning (" + strings.Join(logs.Areas(), ", ") + ")"
	f.String(configFlag, "", "file with settings (YAML, the names of the flags as keys)")
	f.BoolVar(&o.printConfig, "print-config", false, "print every setting with where it came from, and end")
	f.StringVar(&o.backend, "backend", "", "as in release 0.3: memory is --db memory:")
	f.StringVar(&o.mongoURI, "mongo-uri", "", "as in release 0.3; MongoDB is not supported yet")
	f.IntVar(&o.workers, "n-workers", 1, "as in release 0.3; one process uses all cores")
	f.StringArrayVar(&o.trackers, "tracker", nil, "as in release 0.3; metrics are always at /metrics")
}

func serve(cmd *cobra.Command, o *serveOptions) error {
	source, err := applySettings(cmd, os.LookupEnv, o.keys)
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
	config := daemon.Config{
		Host: o.host, Port: o.port, AuthToken: o.authToken, Insecure: o.insecure, Version: version(),
		TLSCert: o.tlsCert, TLSKey: o.tlsKey, MaxBody: int64(o.maxBody), CORSOrigins: o.origins, PublicURL: o.publicURL, Calls: o.calls.calls(),
	}
	if o.otlpPort != 0 {
		config.OTLPGRPCPort = &o.otlpPort
	}
	if err := config.ValidateAddress(); err != nil {
		return usageError{admitting(cmd, err)}
	}
	return o.run(cmd, config)
}

func (o *serveOptions) run(cmd *cobra.Command, config daemon.Config) (err error) {
	ctx := cmd.Context()
	loggers, closeLog, err := o.logs.open(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	config.Log = loggers.Logger
	config.Logger = loggers.Logger("")
	built, entries, err := startBuiltins(ctx, o.proxy.models, loggers.Logger("proxy"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, built.close()) }()
	o.proxy.models = entries
	if config.Proxy, err = o.proxy.config(os.LookupEnv); err != nil {
		return err
	}
	if o.workers > 1 {
		config.Logger.InfoContext(ctx, "one process uses all cores; --n-workers has no effect", "n_workers", o.workers)
	}
	if slices.Contains(o.trackers, "console") {
		config.Logger.InfoContext(ctx, "metrics are not written to the log; --tracker console has no effect, see /metrics")
	}
	if o.mongoURI != "" {
		config.Logger.InfoContext(ctx, "mongodb is not supported yet; --mongo-uri has no effect", "db", o.db)
	}
	if config.Metrics, err = daemon.NewMetrics(); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	kept, err := openStore(ctx, o.db, o.sync, o.scan, loggers, config.Metrics)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kept.Close()) }()
	defer giveHeapRoom()()
	config.Store = kept
	var server *daemon.Server
	config.Checks = func(ctx context.Context) ([]storehttp.Check, error) { return o.check(ctx, server.Store()) }
	server, err = daemon.Listen(ctx, config)
	if err != nil {
		return err
	}
	if files, ok := openFiles(); ok && files < fewFiles {
		config.Logger.WarnContext(ctx, "few files may be open at once, so many runners may be refused; raise the hard limit, as with 'ulimit -Hn 65536'", "open_files", files)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "agl: dashboard and API on %s, data in %s\n", server.URL(), o.db)
	if public := server.PublicURL(); public != server.URL() {
		fmt.Fprintf(cmd.OutOrStdout(), "agl: agents reach it at %s\n", public)
	}
	if at := server.OTLPGRPCAddress(); at != "" {
		fmt.Fprintf(cmd.OutOrStdout(), "agl: OTLP over gRPC on %s\n", at)
	}
	return server.Run(ctx)
}

// check looks at what the server that runs needs.
func (o *serveOptions) check(ctx context.Context, kept store.Store) ([]storehttp.Check, error) {
	c := doctor.Config{Serving: true, CheckDatabase: checkDatabase}
	var err error
	if c.Models, err = kept.Models(ctx); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(o.db, "memory:") {
		if c.Database, err = databaseFile(o.db); err != nil {
			return nil, err
		}
	}
	c.OpenFiles, _ = openFiles()
	found := doctor.Examine(ctx, c)
	out := make([]storehttp.Check, len(found))
	for i, f := range found {
		out[i] = storehttp.Check{Level: string(f.Level), Name: f.Name, Text: f.Text, Fix: f.Fix}
	}
	return out, ctx.Err()
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
