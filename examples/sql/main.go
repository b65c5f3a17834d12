// Command sql trains a small language model to answer questions about a SQLite
// database: it writes a query, reads the error or what came back, and writes it
// again. A second model checks the results and is not trained; see the README in
// this folder.
package main

import (
	"context"
	"flag"
	"io"
	"os"

	"agentlightning/examples/internal/lesson"
)

func main() { os.Exit(mainStatus(os.Args[1:], tuned(), os.Stdout, os.Stderr)) }

func mainStatus(args []string, how plan, stdout, stderr io.Writer) int {
	return lesson.Main("sql", "interrupted", stderr, func(ctx context.Context) error {
		o, err := parseOptions(args, stdout)
		if err != nil {
			return err
		}
		return run(ctx, o, how, stdout, stderr)
	})
}

func parseOptions(args []string, help io.Writer) (lesson.Options, error) {
	var o lesson.Options
	f := flag.NewFlagSet("sql", flag.ContinueOnError)
	o.Register(f, "")
	return o, o.Parse(f, args, help, "Trains a small model to write SQL, and shows it getting better.\n\n"+
		"  go run ./examples/sql\n  go run ./examples/sql --shuffle-rewards\n  go run ./examples/sql --db sql.db")
}
