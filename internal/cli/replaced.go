package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// newReplaced makes a command of release 0.3 that has nothing left to do here. It
// takes whatever that took and says what to use.
func newReplaced(name, instead string) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Short:              "As in release 0.3; says what replaces it",
		Example:            "  agl " + name,
		DisableFlagParsing: true,
		Args:               cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, a := range args {
				if a == "--help" || a == "-h" {
					return cmd.Help()
				}
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), instead)
			return err
		},
	}
}

const (
	prometheusInstead = "agl prometheus is not needed: 'agl serve' always has its metrics at /metrics and, as in release 0.3, at /v1/prometheus/.\n" +
		"Point Prometheus at http://HOST:4747/metrics, with the server's token as its bearer token when there is one. There is one process,\n" +
		"so PROMETHEUS_MULTIPROC_DIR has no meaning."
	agentopsInstead = "agl agentops is not needed: agents send their traces to the server itself, by OTLP at http://HOST:4747/v1/traces or through the\n" +
		"tracer of the SDK, and the dashboard at http://HOST:4747 shows them."
)
