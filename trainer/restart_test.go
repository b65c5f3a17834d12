package trainer_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/execution"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/storehttp"
	"agentlightning/trainer"
)

// serve offers a store at an address; the returned function cuts every
// connection and frees the address.
func serve(t *testing.T, s store.Store, address string) (at string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: storehttp.NewHandler(s, storehttp.Config{}), ReadHeaderTimeout: time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	return l.Addr().String(), func() {
		_ = server.Close()
		<-done
	}
}

// The server goes away twice in the middle of the work, with every connection
// cut. Nothing is lost and nothing is done twice.
func TestServerThatRestarts(t *testing.T) {
	t.Parallel()
	s := engine.New(memory.New(), engine.Config{})
	defer s.Close()
	address, stop := serve(t, s, "127.0.0.1:0")
	runnerCtx, stopRunner := context.WithCancel(t.Context())
	runner := make(chan error, 1)
	go func() {
		runner <- trainer.Fit(runnerCtx, trainer.Config{
			Agent: slow, Role: execution.RoleRunner,
			ServerURL: "http://" + address, Runners: 2, Concurrency: 4,
		}, nil, nil)
	}()
	sum := 0.0
	fitted := make(chan error, 1)
	go func() {
		fitted <- trainer.Fit(t.Context(), trainer.Config{
			Role: execution.RoleAlgorithm, ServerURL: "http://" + address,
			Algorithm: sumOf(&sum),
		}, numbers(150), nil)
	}()
	for _, at := range []int{30, 90} {
		awaitFinished(t, s, at)
		stop()
		time.Sleep(100 * time.Millisecond) // the server is away
		_, stop = serve(t, s, address)
	}
	if err := <-fitted; err != nil || sum != 149*150/2 {
		t.Errorf("Fit() = %v with sum %v, want each reward once", err, sum)
	}
	page, err := s.QueryRollouts(t.Context(), store.RolloutQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range page.Items {
		if r.Attempt.SequenceID != 1 {
			t.Errorf("rollout %s took %d attempts", r.RolloutID, r.Attempt.SequenceID)
		}
	}
	stopRunner()
	if err := <-runner; !errors.Is(err, context.Canceled) {
		t.Errorf("the runners ended with %v", err)
	}
	stop()
}

// awaitFinished waits until so many rollouts have succeeded.
func awaitFinished(t *testing.T, s store.Store, n int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		page, err := s.QueryRollouts(t.Context(), store.RolloutQuery{StatusIn: []agl.RolloutStatus{agl.RolloutSucceeded}})
		if err != nil {
			t.Fatal(err)
		}
		if page.Total >= n {
			return
		}
		<-tick.C
	}
}
