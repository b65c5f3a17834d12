package trainer_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"agentlightning/execution"
	"agentlightning/trainer"
)

// envRunner makes the test binary be a runner of the server that it names.
const envRunner = "TRAINER_TEST_RUNNER_OF"

func TestMain(m *testing.M) {
	if url := os.Getenv(envRunner); url != "" {
		os.Exit(beRunner(url))
	}
	goleak.VerifyTestMain(m)
}

func beRunner(url string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := trainer.Fit(ctx, trainer.Config{Agent: slow, Role: execution.RoleRunner, ServerURL: url, Concurrency: 2}, nil, nil)
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
