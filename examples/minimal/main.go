// Command minimal shows three parts of the framework, each alone: traces records
// the spans of an agent, metrics reads the numbers of a server, and proxy calls a
// model by a base URL and shows the token ids that were recorded.
package main

import (
	"context"
	"io"

	"agentlightning/examples/internal/lesson"
)

const usage = `usage: minimal traces|metrics|proxy

  traces    record what an agent does, without a server
  metrics   read the Prometheus metrics of a server
  proxy     call a model through the proxy with only a base URL
`

func main() { lesson.MainOf(mainStatus) }

func mainStatus(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return lesson.Choose(ctx, "minimal", "part", usage, map[string]lesson.Way{"traces": traces, "metrics": metrics, "proxy": proxy}, args, stdout, stderr)
}
