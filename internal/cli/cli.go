// Package cli holds the commands of agl. It is the one place that knows every
// technology: it opens databases, reads flags and the environment, and prints.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit statuses.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// usageError is a mistake on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Main runs the command line of this process and returns its exit status.
func Main() int {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	var listening sync.WaitGroup
	listening.Go(func() {
		select {
		case <-signals:
		case <-ctx.Done():
		}
		// The first signal asks to stop, the second one does not ask; it may come as
		// soon as anybody knows of the first.
		signal.Stop(signals)
		cancel()
	})
	defer listening.Wait()
	defer cancel()
	return Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
}

// Run runs one command line and returns its exit status. An error is one line
// on stderr that says what to do.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return exitInterrupted
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "agl: %s\n", oneLine(err))
		return exitUsage
	}
	fmt.Fprintf(stderr, "agl: %s\n", oneLine(err))
	return exitFailure
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "agl",
		Short:         "Agent Lightning: record what agents do, reward it, and make them better",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
	}
	// The template that cobra would want for this text links every exported
	// method of the program into it.
	wantsVersion := root.Flags().BoolP("version", "v", false, "version for agl")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *wantsVersion {
			return printVersion(cmd)
		}
		return cmd.Help()
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())}
	})
	root.AddCommand(newServe("serve"), newServe("store"), newGateway(), newRunner(), newVLLM(), newController(), newRollouts(), newModels(), newResources(), newCredit(), newRescore(), newRuns(), newTop(), newDataset(), newTrain(), newOptimize(), newDB(), newDoctor(),
		newReplaced("prometheus", prometheusInstead), newReplaced("agentops", agentopsInstead), newVersion())
	for _, cmd := range root.Commands() {
		if cmd.Args == nil {
			cmd.Args = noArgs
		}
	}
	root.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usageError{fmt.Errorf("unknown command %q; see 'agl --help'", args[0])}
		}
		return nil
	}
	return root
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unexpected argument %q; see '%s --help'", args[0], cmd.CommandPath())}
	}
	return nil
}
