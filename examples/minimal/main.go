// Command minimal shows three parts of the framework, each alone: traces records
// the spans of an agent, metrics reads the numbers of a server, and proxy calls a
// model by a base URL and shows the token ids that were recorded.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const usage = `usage: minimal traces|metrics|proxy

  traces    record what an agent does, without a server
  metrics   read the Prometheus metrics of a server
  proxy     call a model through the proxy with only a base URL
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := mainStatus(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

func mainStatus(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	part, err := choose(args)
	if err != nil {
		fmt.Fprintf(stderr, "minimal: %v\n%s", err, usage)
		return 2
	}
	if err := part(ctx, stdout); err != nil {
		fmt.Fprintln(stderr, "minimal:", err)
		return 1
	}
	return 0
}

func choose(args []string) (func(context.Context, io.Writer) error, error) {
	if len(args) != 1 {
		return nil, errors.New("name one part")
	}
	switch args[0] {
	case "traces":
		return traces, nil
	case "metrics":
		return metrics, nil
	case "proxy":
		return proxy, nil
	case "-h", "--help":
		return func(_ context.Context, out io.Writer) error {
			_, err := io.WriteString(out, usage)
			return err
		}, nil
	}
	return nil, fmt.Errorf("there is no part %q", args[0])
}
