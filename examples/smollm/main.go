// Command smollm runs a real language model, SmolLM2-135M-Instruct, without a GPU,
// a key or a network: as a server that speaks OpenAI's chat completions, and behind
// the proxy with an agent whose prompt is optimised. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"agentlightning/examples/smollm/engine"
	"agentlightning/examples/smollm/server"
)

const usage = `usage: smollm serve|optimize [flags]

  serve      the model behind OpenAI's chat completions
  optimize   find a better prompt for an agent that asks it

AGL_SMOLLM names the folder that setup.sh prints.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "smollm:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	command := ""
	if len(args) > 0 {
		command = args[0]
	}
	switch command {
	case "serve":
		return serve(ctx, args[1:], out)
	case "optimize":
		return optimize(ctx, args[1:], out)
	case "-h", "--help", "help":
		_, err := io.WriteString(out, usage)
		return err
	}
	return fmt.Errorf("unknown command %q\n%s", command, usage)
}

// name is what the server calls its model.
const name = "smollm2"

// options of every command.
type options struct {
	threads int
	context int
}

func (o *options) add(f *flag.FlagSet, out io.Writer) {
	f.SetOutput(out)
	f.IntVar(&o.threads, "threads", 0, "processors that compute; 0 takes all, at most 8")
	f.IntVar(&o.context, "context", 2048, "tokens of a prompt and its answer together")
}

func parse(f *flag.FlagSet, args []string) error {
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return nil
}

// folderVariable names the variable with the folder of model and libraries.
const folderVariable = "AGL_SMOLLM"

// backend is the model behind a port.
type backend struct {
	url    string
	engine *engine.Engine
	server *http.Server
	served chan error
}

// start loads the model and serves it until close is called.
func (o *options) start(ctx context.Context, addr string) (*backend, error) {
	folder := os.Getenv(folderVariable)
	if folder == "" {
		return nil, errors.New(folderVariable + " is not set: it names the folder that setup.sh prints")
	}
	e, err := engine.Load(engine.Config{Folder: folder, Context: o.context, Threads: o.threads})
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	b := &backend{
		url: "http://" + listener.Addr().String() + "/v1", engine: e, served: make(chan error, 1),
		server: &http.Server{Handler: server.Handler(e, name), ReadHeaderTimeout: 10 * time.Second},
	}
	go func() { b.served <- b.server.Serve(listener) }()
	return b, nil
}

// close gives the answers on their way five seconds, and frees the model.
func (b *backend) close(ctx context.Context) error {
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := b.server.Shutdown(grace)
	if err != nil {
		err = errors.Join(err, b.server.Close())
	}
	if end := <-b.served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return errors.Join(err, b.engine.Close())
}

// serve answers until ctx ends, and prints its address first.
func serve(ctx context.Context, args []string, out io.Writer) error {
	var o options
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	o.add(f, out)
	addr := f.String("addr", "127.0.0.1:8135", "where to listen; there is no password, so keep it on loopback")
	if err := parse(f, args); err != nil {
		return err
	}
	b, err := o.start(ctx, *addr)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "model %s at %s\n", name, b.url)
	select {
	case <-ctx.Done():
		return b.close(ctx)
	case err := <-b.served:
		b.served <- err
		return errors.Join(err, b.close(ctx))
	}
}
