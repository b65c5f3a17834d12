package lesson

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// Main runs an example until it is done or interrupted and returns the exit
// status of the process; interrupted is what is then said.
func Main(name, interrupted string, stderr io.Writer, run func(ctx context.Context) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case ctx.Err() != nil:
		fmt.Fprintf(stderr, "%s: %s\n", name, interrupted)
		return 130
	}
	fmt.Fprintf(stderr, "%s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", "; "))
	return 1
}

// Options are what every example takes.
type Options struct {
	Seed    int64
	Report  string
	Shuffle bool
	DB      string
	Port    int
	Agents  int
	Steps   int
	Verbose bool
}

// Register adds the options to the flags of an example; db is the default of
// --db, empty for a database that is removed at the end.
func (o *Options) Register(f *flag.FlagSet, db string) {
	f.Int64Var(&o.Seed, "seed", 1, "where every random choice comes from; the same seed repeats a run")
	f.StringVar(&o.Report, "report", "", "write the figures as JSON to this `FILE`")
	f.BoolVar(&o.Shuffle, "shuffle-rewards", false, "permute the rewards of each step: a control that must not learn")
	f.StringVar(&o.DB, "db", db, "database `FILE` of the server of this process")
	f.IntVar(&o.Port, "port", 4747, "port of the server of this process; when it is taken, a free one is used")
	f.IntVar(&o.Agents, "agents", 64, "how many agents work at once")
	f.IntVar(&o.Steps, "steps", 0, "training steps; 0 means what the example is tuned for")
	f.BoolVar(&o.Verbose, "verbose", false, "log what the server and the runners do to standard error")
}

// Parse reads the arguments and checks the options; see [ParseFlags].
func (o *Options) Parse(f *flag.FlagSet, args []string, help io.Writer, about string) error {
	switch err := ParseFlags(f, args, help, about); {
	case err != nil:
		return err
	case o.Agents < 1:
		return fmt.Errorf("--agents %d: must be at least 1", o.Agents)
	case o.Steps < 0:
		return fmt.Errorf("--steps %d: must be at least 1", o.Steps)
	}
	return checkPort(o.Port)
}

// ScriptedOptions are what examples with a scripted model take that keep a database.
type ScriptedOptions struct {
	DB     string
	Report string
	Port   int
}

// Register adds the options to the flags of an example.
func (o *ScriptedOptions) Register(f *flag.FlagSet) {
	f.StringVar(&o.DB, "db", "", "keep the database in this `FILE`")
	f.IntVar(&o.Port, "port", 0, "port of the server of this process; 0 takes a free one")
	f.StringVar(&o.Report, "report", "", "write the figures as JSON to this `FILE`")
}

// Parse reads the arguments and checks the options; see [ParseFlags].
func (o *ScriptedOptions) Parse(f *flag.FlagSet, args []string, help io.Writer, about string) error {
	if err := ParseFlags(f, args, help, about); err != nil {
		return err
	}
	return checkPort(o.Port)
}

// ParseFlags reads arguments that are flags only. It prints about and the flags
// when help is asked for, and returns [flag.ErrHelp].
func ParseFlags(f *flag.FlagSet, args []string, help io.Writer, about string) error {
	f.SetOutput(io.Discard)
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(help, about+"\n\n")
		f.SetOutput(help)
		f.PrintDefaults()
		return err
	case err != nil:
		return fmt.Errorf("%w; see --help", err)
	case f.NArg() > 0:
		return fmt.Errorf("unexpected argument %q; see --help", f.Arg(0))
	}
	return nil
}

func checkPort(port int) error {
	if port < 0 || port > 65535 {
		return fmt.Errorf("--port %d: must be between 0 and 65535", port)
	}
	return nil
}

// Logger writes to stderr when the options ask for it.
func (o *Options) Logger(stderr io.Writer) *slog.Logger {
	if o.Verbose {
		return slog.New(slog.NewTextHandler(stderr, nil))
	}
	return slog.New(slog.DiscardHandler)
}
