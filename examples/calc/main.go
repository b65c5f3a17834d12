// Command calc trains an agent in front of your eyes: a small language model
// learns to solve word problems with a calculator. It needs no key, no GPU and
// nothing but Go; see the README in this folder.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"agentlightning/examples/calc/calculator"
	"agentlightning/examples/internal/lesson"
)

// calculatorCommand is the argument that makes this program be the calculator:
// the agent starts itself again as the process that serves its tool.
const calculatorCommand = "serve-calculator"

func main() { os.Exit(mainStatus(os.Args[1:], tuned(), os.Stdout, os.Stderr)) }

func mainStatus(args []string, how plan, stdout, stderr io.Writer) int {
	if len(args) == 1 && args[0] == calculatorCommand {
		if err := calculator.Serve(context.Background()); err != nil {
			fmt.Fprintln(stderr, "calc:", err)
			return 1
		}
		return 0
	}
	return lesson.Main("calc", "interrupted; what was done is kept, --resume goes on", stderr, func(ctx context.Context) error {
		o, err := parseOptions(args, stdout)
		if err != nil {
			return err
		}
		return run(ctx, o, how, stdout, stderr)
	})
}
