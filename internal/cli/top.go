package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"agentlightning/internal/top"
)

// leastInterval keeps a view from being a load.
const leastInterval = 100 * time.Millisecond

func newTop() *cobra.Command {
	var (
		o        clientOptions
		interval time.Duration
	)
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch a server in the terminal: runs, queue, workers, models, failures",
		Long: "Watch a server in the terminal: runs, queue, workers, models, failures.\n\n" +
			"Tab or the arrows choose a section, q or Ctrl-C ends it. A server that is away is asked again until it is back.\n" +
			"Where the output is no terminal, one snapshot is written as lines; with --interval one after each interval. There, a server that is away is an error.",
		Example: "  agl top\n  agl top --server http://10.0.0.2:4747 --interval 5s\n  agl top --interval 1m >> watched.txt",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if interval < leastInterval {
				return usageError{fmt.Errorf("--interval %s: must be at least %s", interval, leastInterval)}
			}
			server, token := o.address()
			r, err := top.NewReader(server, token)
			if err != nil {
				return usageError{fmt.Errorf("--server %s: %w", server, err)}
			}
			defer func() { err = errors.Join(err, r.Close()) }()
			if top.Terminal(cmd.OutOrStdout()) {
				return top.Watch(cmd.Context(), r, cmd.OutOrStdout(), interval)
			}
			if !cmd.Flags().Changed("interval") {
				interval = 0
			}
			return top.Print(cmd.Context(), r, cmd.OutOrStdout(), interval)
		},
	}
	o.bind(cmd)
	cmd.Flags().DurationVar(&interval, "interval", 2*time.Second, "how often to look; where the output is no terminal, once unless it is given")
	return cmd
}
