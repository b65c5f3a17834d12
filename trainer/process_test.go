package trainer_test

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/agent"
	"agentlightning/execution"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/storehttp"
	"agentlightning/trainer"
)

// slow is the agent of the runner processes.
var slow = agent.New(func(ctx context.Context, n float64, _ *agent.Call) (float64, error) {
	select {
	case <-time.After(20 * time.Millisecond):
		return n, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
})

type process struct{ *exec.Cmd }

// startRunner starts the test binary as a runner process.
func startRunner(t *testing.T, url string) process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), envRunner+"="+url)
	cmd.Stderr = os.Stderr
	cmd.Stdout = io.Discard
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return process{cmd}
}

// The algorithm and two runners are processes of their own at a server. One
// runner is killed in the middle of its attempts, which costs no rollout; the
// other is told to stop at the end.
func TestKilledRunnerCostsNoRollout(t *testing.T) {
	t.Parallel()
	s := engine.New(memory.New(), engine.Config{HealthScanInterval: 100 * time.Millisecond})
	defer s.Close()
	server := httptest.NewServer(storehttp.NewHandler(s, storehttp.Config{}))
	defer server.Close()

	doomed, steady := startRunner(t, server.URL), startRunner(t, server.URL)
	killed := make(chan error, 1)
	go func() { killed <- killWhileBusy(t.Context(), s, doomed) }()

	silence := 0.5
	sum := 0.0
	err := trainer.Fit(t.Context(), trainer.Config{
		Role: execution.RoleAlgorithm, ServerURL: server.URL, Algorithm: sumOf(&sum),
		RolloutConfig: &agl.RolloutConfig{
			UnresponsiveSeconds: &silence, MaxAttempts: 5,
			RetryCondition: []agl.AttemptStatus{agl.AttemptUnresponsive},
		},
	}, numbers(100), nil)
	if err != nil || sum != 99*100/2 {
		t.Errorf("Fit() = %v with sum %v, want every rollout's reward once", err, sum)
	}
	if err := <-killed; err != nil {
		t.Error(err)
	}
	_ = doomed.Wait() // it was killed
	retried := 0
	page, err := s.QueryRollouts(t.Context(), store.RolloutQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range page.Items {
		if r.Attempt.SequenceID > 1 {
			retried++
		}
	}
	if retried == 0 {
		t.Error("no rollout was retried: the runner was not killed while it worked")
	}
	if err := steady.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := steady.Wait(); err != nil {
		t.Errorf("the other runner ended with %v after an interrupt", err)
	}
}

// killWhileBusy kills a runner as soon as it has attempts under way.
func killWhileBusy(ctx context.Context, s store.Store, p process) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		page, err := s.QueryRollouts(ctx, store.RolloutQuery{StatusIn: []agl.RolloutStatus{agl.RolloutPreparing, agl.RolloutRunning}})
		if err != nil {
			return err
		}
		for _, r := range page.Items {
			if r.Attempt != nil && r.Attempt.WorkerID != nil && isOf(*r.Attempt.WorkerID, p.Process.Pid) {
				return p.Process.Kill()
			}
		}
	}
}

// isOf reports whether a worker is one of the process: host-pid-number.
func isOf(workerID string, pid int) bool {
	return strings.HasSuffix(workerID, fmt.Sprintf("-%d-0", pid))
}
