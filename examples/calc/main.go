// Command calc trains an agent in front of your eyes: a small language model
// learns to solve word problems with a calculator. It needs no key, no GPU and
// nothing but Go; see the README in this folder.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"agentlightning/examples/calc/calculator"
)

// calculatorCommand is the argument that makes this program be the calculator:
// the agent starts itself again as the process that serves its tool.
const calculatorCommand = "serve-calculator"

// errInterrupted ends a program that was told to stop.
var errInterrupted = errors.New("interrupted")

func main() { os.Exit(mainStatus(os.Args[1:], tuned(), os.Stdout, os.Stderr)) }

func mainStatus(args []string, how plan, stdout, stderr io.Writer) int {
	if len(args) == 1 && args[0] == calculatorCommand {
		if err := calculator.Serve(context.Background()); err != nil {
			fmt.Fprintln(stderr, "calc:", err)
			return 1
		}
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parseOptions(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err == nil {
		err = run(ctx, o, how, stdout, stderr)
	}
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil || errors.Is(err, errInterrupted):
		fmt.Fprintln(stderr, "calc: interrupted; what was done is kept, --resume goes on")
		return 130
	}
	fmt.Fprintln(stderr, "calc:", strings.ReplaceAll(err.Error(), "\n", "; "))
	return 1
}
