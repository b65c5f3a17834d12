package lesson

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Way is one of the things that an example does.
type Way = func(ctx context.Context, out io.Writer) error

// MainOf is the main function of an example that does one of several things, until
// it is done or interrupted.
func MainOf(status func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := status(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Choose runs the way that the arguments name and returns the exit status of the
// process. Kind is what the example calls its ways; arguments that name none of
// them are answered with the usage.
func Choose(ctx context.Context, name, kind, usage string, ways map[string]Way, args []string, stdout, stderr io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintf(stderr, "%s: name one %s\n%s", name, kind, usage)
		return 2
	}
	if args[0] == "-h" || args[0] == "--help" {
		fmt.Fprint(stdout, usage)
		return 0
	}
	way, ok := ways[args[0]]
	if !ok {
		fmt.Fprintf(stderr, "%s: there is no %s %q\n%s", name, kind, args[0], usage)
		return 2
	}
	if err := way(ctx, stdout); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}
