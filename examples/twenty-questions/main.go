// Command twenty-questions trains a small language model to play both sides of
// twenty questions, each side with its own part of the reward; see the README in
// this folder.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"

	"agentlightning/adapter/credit"
	"agentlightning/examples/internal/lesson"
)

func main() { os.Exit(mainStatus(os.Args[1:], tuned(), os.Stdout, os.Stderr)) }

func mainStatus(args []string, how plan, stdout, stderr io.Writer) int {
	return lesson.Main("twenty-questions", "interrupted", stderr, func(ctx context.Context) error {
		o, err := parseOptions(args, stdout)
		if err != nil {
			return err
		}
		return run(ctx, o, how, stdout, stderr)
	})
}

// options are what the command line says.
type options struct {
	lesson.Options

	rule credit.Rule
}

// byRole gives each agent its own part of the reward, compared with that of the
// same agent in the other games about the same thing.
const byRole = "role:^asker$@asker;^answerer$@answerer"

func parseOptions(args []string, help io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("twenty-questions", flag.ContinueOnError)
	o.Register(f, "")
	rule := f.String("credit", byRole, "the `RULE` of credit. "+credit.Syntax)
	err := o.Parse(f, args, help, "Trains a small model to ask and to answer, and shows it getting better.\n\n"+
		"  go run ./examples/twenty-questions\n  go run ./examples/twenty-questions --credit identical")
	if err != nil {
		return o, err
	}
	if o.rule, err = credit.Parse(*rule); err != nil {
		return o, fmt.Errorf("--credit: %w", err)
	}
	return o, nil
}
