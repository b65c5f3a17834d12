package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/algorithm"
	"agentlightning/examples/internal/lesson"
	"agentlightning/runner"
	"agentlightning/store"
	"agentlightning/store/memory"
	"agentlightning/storehttp"
)

// metrics starts a server, has rollouts done over its REST interface, and reads
// what Prometheus would read.
func metrics(ctx context.Context, out io.Writer) (err error) {
	site, err := lesson.OpenSite(ctx, 0, memory.New(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, site.Close()) }()
	server, err := storehttp.NewClient(site.URL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()

	tasks, err := algorithm.Tasks([]int{6, 3, 0, 2})
	if err != nil {
		return err
	}
	asked := make([]store.EnqueueRequest, len(tasks))
	for i, task := range tasks {
		asked[i] = store.EnqueueRequest{Input: task, Mode: agl.ModeTrain}
	}
	if _, err := server.EnqueueRollouts(ctx, asked); err != nil {
		return err
	}
	if err := show(ctx, out, "before", site.URL); err != nil {
		return err
	}
	// Three of four are done; one of them fails.
	r, err := runner.New(runner.Config{Store: server, Agent: divider, MaxRollouts: 3})
	if err != nil {
		return err
	}
	if err := r.Run(ctx); err != nil {
		return err
	}
	return show(ctx, out, "after", site.URL)
}

var divider = agent.New(func(_ context.Context, n int, _ *agent.Call) (float64, error) {
	if n == 0 {
		return 0, errors.New("division by zero")
	}
	return 1 / float64(n), nil
})

// shown are the metrics that do not depend on the speed of the machine; a server
// has some more, such as latencies.
var shown = []string{"agl_queue_length", "agl_rollouts_total"}

func show(ctx context.Context, out io.Writer, when, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /metrics: %s", resp.Status)
	}
	fmt.Fprintf(out, "%s:\n", when)
	for lines := bufio.NewScanner(resp.Body); ; {
		if !lines.Scan() {
			return lines.Err()
		}
		name := strings.FieldsFunc(lines.Text(), func(r rune) bool { return r == '{' || r == ' ' })
		if len(name) > 0 && slices.Contains(shown, name[0]) {
			fmt.Fprintln(out, "  "+lines.Text())
		}
	}
}
