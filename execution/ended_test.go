package execution_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"agentlightning/agent"
	"agentlightning/execution"
	"agentlightning/runner"
	"agentlightning/store"
	"agentlightning/storehttp"
)

// TestEndOfRunReachesRemoteRunners: when the algorithm is done, runners elsewhere
// end, those that wait for work and those whose agents work.
func TestEndOfRunReachesRemoteRunners(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	working, stopped := make(chan struct{}), make(chan error, 1)
	busy := agent.New(func(ctx context.Context, _ json.RawMessage, _ *agent.Call) (float64, error) {
		close(working)
		<-ctx.Done()
		stopped <- context.Cause(ctx)
		return 0, ctx.Err()
	})
	ended := make(chan error, 2)
	s := newStore(t)
	if _, err := s.EnqueueRollouts(t.Context(), []store.EnqueueRequest{{Input: json.RawMessage(`1`)}}); err != nil {
		t.Fatal(err)
	}
	err := execution.Network{Role: execution.RoleAlgorithm, Listen: address}.Execute(t.Context(), execution.Work{
		Algorithm: func(ctx context.Context, _ store.Store) error {
			for i, name := range []string{"busy", "idle"} {
				client, err := storehttp.NewClient("http://" + address)
				if err != nil {
					return err
				}
				r, err := runner.New(runner.Config{
					Store: client, Agent: busy, WorkerID: name, PollInterval: time.Minute, WatchInterval: 20 * time.Millisecond, Grace: 20 * time.Millisecond,
				})
				if err != nil {
					return err
				}
				go func() { ended <- errors.Join(r.Run(context.WithoutCancel(ctx)), client.Close()) }()
				if i == 0 {
					<-working
				}
			}
			return nil
		},
	}, s)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Errorf("a runner ended with %v, want nil", err)
		}
	}
	if cause := <-stopped; !errors.Is(cause, runner.ErrStopped) {
		t.Errorf("the agent was stopped for %v, want %v", cause, runner.ErrStopped)
	}
	page, err := s.QueryRollouts(t.Context(), store.RolloutQuery{})
	if err != nil || !page.Items[0].Attempt.Status.Finished() && page.Items[0].Attempt.Status != "unresponsive" {
		t.Errorf("the attempt is %s, %v, want its end to be reported", page.Items[0].Attempt.Status, err)
	}
}

// TestInterruptIsNoEnd: runners wait for an algorithm that was interrupted.
func TestInterruptIsNoEnd(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	ctx, interrupt := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	err := execution.Network{Role: execution.RoleAlgorithm, Listen: address}.Execute(ctx, execution.Work{
		Algorithm: func(ctx context.Context, _ store.Store) error {
			go func() {
				client, err := storehttp.NewClient("http://"+address, storehttp.WithRetryWindow(0))
				if err == nil {
					_, err = client.DequeueRollouts(context.WithoutCancel(ctx), store.DequeueRequest{Limit: 1, Wait: time.Minute})
					err = errors.Join(err, client.Close())
				}
				answered <- err
			}()
			interrupt()
			<-ctx.Done()
			return ctx.Err()
		},
	}, newStore(t))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Execute() = %v, want the interrupt", err)
	}
	if err := <-answered; err == nil || errors.Is(err, store.ErrEnded) {
		t.Errorf("a runner is told %v, want anything but the end of the run", err)
	}
}
