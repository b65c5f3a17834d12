// Command rag trains a small language model to answer questions from an
// encyclopaedia: one agent writes queries for a retriever, which is an MCP server,
// another answers from what was found, and each has its own part of the reward; see
// the README in this folder.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"

	"agentlightning/adapter/credit"
	"agentlightning/examples/internal/lesson"
	"agentlightning/examples/rag/retriever"
	"agentlightning/examples/rag/world"
)

// retrieverCommand, followed by a seed, makes this program be the retriever: the
// agent starts itself again as the process that serves its tool.
const retrieverCommand = "serve-retriever"

func main() { os.Exit(mainStatus(os.Args[1:], tuned(), os.Stdout, os.Stderr)) }

func mainStatus(args []string, how plan, stdout, stderr io.Writer) int {
	if len(args) == 2 && args[0] == retrieverCommand {
		if err := serveRetriever(args[1]); err != nil {
			fmt.Fprintln(stderr, "rag:", err)
			return 1
		}
		return 0
	}
	return lesson.Main("rag", "interrupted", stderr, func(ctx context.Context) error {
		o, err := parseOptions(args, stdout)
		if err != nil {
			return err
		}
		return run(ctx, o, how, stdout, stderr)
	})
}

func serveRetriever(seed string) error {
	n, err := strconv.ParseInt(seed, 10, 64)
	if err != nil {
		return fmt.Errorf("%s %q: must be the seed of a world", retrieverCommand, seed)
	}
	return retriever.Serve(context.Background(), world.New(uint64(n)).Articles)
}

// options are what the command line says.
type options struct {
	lesson.Options

	rule credit.Rule
}

// byRole gives the writer what its searches found and the answerer what its answer
// was worth, each compared with the same agent's part in the other rollouts of the
// question.
const byRole = "role:^writer$@searching;^answerer$@answer"

func parseOptions(args []string, help io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("rag", flag.ContinueOnError)
	o.Register(f, "")
	rule := f.String("credit", byRole, "the `RULE` of credit. "+credit.Syntax)
	err := o.Parse(f, args, help, "Trains a small model to search and to answer, and shows it getting better.\n\n"+
		"  go run ./examples/rag\n  go run ./examples/rag --credit identical")
	if err != nil {
		return o, err
	}
	if o.rule, err = credit.Parse(*rule); err != nil {
		return o, fmt.Errorf("--credit: %w", err)
	}
	return o, nil
}
