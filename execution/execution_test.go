package execution_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentlightning/agent"
	"agentlightning/execution"
	"agentlightning/runner"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
	"agentlightning/storehttp"
)

func newStore(t *testing.T) store.Store {
	t.Helper()
	s := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() { s.Close() })
	return s
}

// until is a runner that works until it is told to stop.
func until(ctx context.Context, _ store.Store, _ int) error {
	<-ctx.Done()
	return nil
}

func TestInProcess(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	tests := []struct {
		name string
		work execution.Work
		want error
	}{
		{"the algorithm is done", execution.Work{
			Runners: 3, Runner: until,
			Algorithm: func(context.Context, store.Store) error { return nil },
		}, nil},
		{"the algorithm fails", execution.Work{
			Runners: 3, Runner: until,
			Algorithm: func(context.Context, store.Store) error { return broken },
		}, broken},
		{"a runner fails", execution.Work{
			Runners: 3,
			Runner: func(ctx context.Context, s store.Store, number int) error {
				if number == 1 {
					return broken
				}
				return until(ctx, s, number)
			},
			Algorithm: func(ctx context.Context, _ store.Store) error { <-ctx.Done(); return ctx.Err() },
		}, broken},
		{"runners end first", execution.Work{
			Runners: 2,
			Runner:  func(context.Context, store.Store, int) error { return nil },
			Algorithm: func(ctx context.Context, _ store.Store) error {
				select {
				case <-time.After(10 * time.Millisecond):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			},
		}, nil},
		{"no algorithm, runners end", execution.Work{Runners: 2, Runner: func(context.Context, store.Store, int) error { return nil }}, nil},
		{"no runners", execution.Work{Algorithm: func(context.Context, store.Store) error { return nil }}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if err := (execution.InProcess{}).Execute(t.Context(), tt.work, newStore(t)); !errors.Is(err, tt.want) {
				t.Errorf("Execute() = %v, want %v", err, tt.want)
			}
		})
	}
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	interrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	var stopped atomic.Int32
	work := execution.Work{
		Runners: 2,
		Runner: func(ctx context.Context, _ store.Store, _ int) error {
			<-ctx.Done()
			stopped.Add(1)
			return nil
		},
		Algorithm: func(ctx context.Context, _ store.Store) error {
			cancel(interrupted)
			<-ctx.Done()
			stopped.Add(1)
			return fmt.Errorf("step 3: %w", ctx.Err())
		},
	}
	err := execution.InProcess{}.Execute(ctx, work, newStore(t))
	if !errors.Is(err, interrupted) || stopped.Load() != 3 {
		t.Errorf("Execute() = %v with %d of 3 stopped, want the cause", err, stopped.Load())
	}
}

// echo does the rollouts of a store.
func echo(ctx context.Context, s store.Store, number int) error {
	r, err := runner.New(runner.Config{
		Store: s, WorkerID: fmt.Sprintf("Worker-%d", number),
		Agent: agent.New(func(_ context.Context, n float64, _ *agent.Call) (float64, error) { return n, nil }),
	})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// ask enqueues rollouts and waits for them.
func ask(ctx context.Context, s store.Store) error {
	reqs := make([]store.EnqueueRequest, 20)
	for i := range reqs {
		reqs[i].Input = json.RawMessage(strconv.Itoa(i))
	}
	rollouts, err := s.EnqueueRollouts(ctx, reqs)
	if err != nil {
		return err
	}
	ids := make([]string, len(rollouts))
	for i := range rollouts {
		ids[i] = rollouts[i].RolloutID
	}
	done, err := s.WaitForRollouts(ctx, ids, 30*time.Second)
	if err == nil && len(done) != len(ids) {
		err = fmt.Errorf("%d of %d rollouts are done", len(done), len(ids))
	}
	return err
}

// freeAddress returns an address at which nobody listens. Its port is below those
// that systems give to connections, so that none of those takes it meanwhile. It
// is not listened at to find out: a program that is being started would hold it.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(10000+rand.IntN(20000)))
		c, err := net.Dial("tcp", address)
		if err != nil {
			return address
		}
		_ = c.Close()
	}
	t.Fatal("no port is free")
	return ""
}

// The runners are started before the algorithm serves the store, and end with the
// run.
func TestRolesOverTheNetwork(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	runners := make(chan error, 1)
	go func() {
		n := execution.Network{Role: execution.RoleRunner, URL: "http://" + address}
		runners <- n.Execute(t.Context(), execution.Work{Runner: echo, Runners: 2}, nil)
	}()
	n := execution.Network{Role: execution.RoleAlgorithm, Listen: address}
	if err := n.Execute(t.Context(), execution.Work{Algorithm: ask, Runner: echo, Runners: 5}, newStore(t)); err != nil {
		t.Errorf("algorithm: %v", err)
	}
	if err := <-runners; err != nil {
		t.Errorf("runners: %v, want nil", err)
	}
}

func TestRolesWithARunningServer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(storehttp.NewHandler(newStore(t), storehttp.Config{}))
	defer server.Close()
	runnersCtx, stopRunners := context.WithCancel(t.Context())
	runners := make(chan error, 1)
	go func() {
		n := execution.Network{Role: execution.RoleRunner, URL: server.URL}
		runners <- n.Execute(runnersCtx, execution.Work{Runner: echo, Runners: 2}, nil)
	}()
	n := execution.Network{Role: execution.RoleAlgorithm, URL: server.URL}
	if err := n.Execute(t.Context(), execution.Work{Algorithm: ask}, nil); err != nil {
		t.Errorf("algorithm: %v", err)
	}
	stopRunners()
	<-runners
}

func TestBothServesOthers(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	n := execution.Network{Role: execution.RoleBoth, Listen: address}
	var seen atomic.Bool
	err := n.Execute(t.Context(), execution.Work{Runner: echo, Runners: 1, Algorithm: func(ctx context.Context, _ store.Store) error {
		client, err := storehttp.NewClient("http://" + address)
		if err != nil {
			return err
		}
		defer client.Close()
		seen.Store(true)
		return errors.Join(client.Health(ctx), ask(ctx, client))
	}}, newStore(t))
	if err != nil || !seen.Load() {
		t.Errorf("Execute() = %v", err)
	}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { busy.Close() })
	work := execution.Work{Algorithm: ask, Runner: echo, Runners: 1}
	tests := []struct {
		name  string
		n     execution.Network
		store store.Store
		want  string
	}{
		{"no role", execution.Network{}, newStore(t), "must be both, algorithm or runner"},
		{"runner without a server", execution.Network{Role: execution.RoleRunner}, nil, "start one with 'agl serve'"},
		{"algorithm without an address", execution.Network{Role: execution.RoleAlgorithm}, newStore(t), "an address to serve the store at"},
		{"nothing to serve", execution.Network{Role: execution.RoleAlgorithm, Listen: "127.0.0.1:0"}, nil, "no store to serve"},
		{"unmanaged without a store", execution.Network{Role: execution.RoleBoth, Unmanaged: true}, nil, "no store"},
		{"port in use", execution.Network{Role: execution.RoleAlgorithm, Listen: busy.Addr().String()}, newStore(t), "cannot listen on " + busy.Addr().String()},
		{"bad URL", execution.Network{Role: execution.RoleRunner, URL: "localhost"}, nil, "must look like http://"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if err := tt.n.Execute(t.Context(), work, tt.store); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Execute() = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestFromEnv(t *testing.T) {
	t.Parallel()
	standard := execution.Settings{Role: execution.RoleBoth, Host: "localhost", Port: 4747, Managed: true}
	tests := []struct {
		env  map[string]string
		want execution.Settings
		err  string
	}{
		{nil, standard, ""},
		{map[string]string{"AGL_CURRENT_ROLE": "", "AGL_SERVER_PORT": ""}, standard, ""},
		{
			map[string]string{"AGL_CURRENT_ROLE": "runner", "AGL_SERVER_HOST": "10.0.0.1", "AGL_SERVER_PORT": "80", "AGL_MANAGED_STORE": " Off "},
			execution.Settings{Role: execution.RoleRunner, Host: "10.0.0.1", Port: 80},
			"",
		},
		{map[string]string{"AGL_CURRENT_ROLE": "server"}, execution.Settings{}, "AGL_CURRENT_ROLE=server: must be both, algorithm or runner"},
		{map[string]string{"AGL_SERVER_PORT": "http"}, execution.Settings{}, "AGL_SERVER_PORT=http: must be a port"},
		{map[string]string{"AGL_SERVER_PORT": "70000"}, execution.Settings{}, "AGL_SERVER_PORT=70000"},
		{map[string]string{"AGL_MANAGED_STORE": "maybe"}, execution.Settings{}, "AGL_MANAGED_STORE=maybe: must be 1, true, yes or on"},
	}
	for _, tt := range tests {
		got, err := execution.FromEnv(func(key string) (string, bool) { v, ok := tt.env[key]; return v, ok })
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("FromEnv(%v) = %+v, %v, want %+v, %q", tt.env, got, err, tt.want, tt.err)
		}
	}
	for value, want := range map[string]bool{"1": true, "TRUE": true, "yes": true, "on": true, "0": false, "False": false, "no": false, "off": false} {
		got, err := execution.FromEnv(func(key string) (string, bool) { return value, key == execution.EnvManagedStore })
		if err != nil || got.Managed != want {
			t.Errorf("AGL_MANAGED_STORE=%s: %v, %v", value, got.Managed, err)
		}
	}
	if got := standard.URL(); got != "http://localhost:4747" {
		t.Errorf("URL() = %s", got)
	}
}
