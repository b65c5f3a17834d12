// Command grid trains a small language model to find its way through a house,
// once with each of several rules that say which move earned what, and compares
// them; see the README in this folder.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"agentlightning/adapter/credit"
	"agentlightning/examples/internal/lesson"
)

func main() { os.Exit(mainStatus(os.Args[1:], tuned(), os.Stdout, os.Stderr)) }

func mainStatus(args []string, how plan, stdout, stderr io.Writer) int {
	return lesson.Main("grid", "interrupted", stderr, func(ctx context.Context) error {
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

	rules []credit.Rule
}

// compared are the rules of the table.
const compared = "identical last-call discounted:0.9 step-rewards:0.9 anchor-states:0.9,1"

func parseOptions(args []string, help io.Writer) (options, error) {
	var o options
	var rules []string
	f := flag.NewFlagSet("grid", flag.ContinueOnError)
	o.Register(f, "")
	f.Func("credit", "train with this `RULE` only; may be repeated. "+credit.Syntax, func(rule string) error {
		rules = append(rules, rule)
		return nil
	})
	err := o.Parse(f, args, help, "Trains a small model to find its way, and compares rules of credit.\n\n"+
		"  go run ./examples/grid\n  go run ./examples/grid --credit step-rewards:0.9 --shuffle-rewards")
	if err != nil {
		return o, err
	}
	if len(rules) == 0 {
		rules = strings.Fields(compared)
	}
	for _, text := range rules {
		rule, err := credit.Parse(text)
		if err != nil {
			return o, fmt.Errorf("--credit: %w", err)
		}
		o.rules = append(o.rules, rule)
	}
	return o, nil
}
