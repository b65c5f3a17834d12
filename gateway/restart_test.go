package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	agl "agentlightning"
	"agentlightning/gateway"
	"agentlightning/internal/cli"
)

// restartChild names the database of a copy of this test binary that serves it
// until it is killed.
const restartChild = "AGL_TEST_GATEWAY_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(restartChild); path != "" {
		os.Exit(cli.Run(context.Background(), []string{"gateway", "port=0", "--db", "sqlite:" + path}, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// process is a server in a process of its own.
type process struct {
	client *gateway.Client
	cmd    *exec.Cmd
	out    io.ReadCloser
}

var printedURL = regexp.MustCompile(`http://\S+:\d+`)

func startProcess(t *testing.T, db string) *process {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0])
	cmd.Env = append(os.Environ(), restartChild+"="+db)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	url := printedURL.FindString(line)
	if url == "" {
		_ = cmd.Process.Kill()
		t.Fatalf("the server printed %q (%v), want its address", line, err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &process{&gateway.Client{BaseURL: url, HTTP: &http.Client{Transport: transport}}, cmd, out}
}

// kill ends the process without a chance to do anything.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = p.cmd.Wait() // it was killed
}

// TestKilledServer kills a server in the middle of its work, several times, and
// finds after each restart all that was acknowledged, and nothing by halves.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "agl.db")
	var (
		mu     sync.Mutex
		events = map[string]int{}           // acknowledged, by rollout
		states = map[string]gateway.State{} // acknowledged
	)
	const kills, workers = 3, 6
	for round := range kills {
		p := startProcess(t, db)
		if round == 0 {
			if err := p.client.PutModels(t.Context(), agl.Model{Name: "m", Endpoint: "http://127.0.0.1:9/v1", Version: 4}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		enough := make(chan struct{}, 1000)
		for w := range workers {
			wg.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					id := fmt.Sprintf("r-%d-%d-%d", round, w, i)
					err := live(ctx, p.client, id, func(state gateway.State, posted int) {
						mu.Lock()
						defer mu.Unlock()
						states[id], events[id] = state, posted
						select {
						case enough <- struct{}{}:
						default:
						}
					})
					if err != nil {
						return // the server was killed
					}
				}
			})
		}
		for range 60 {
			<-enough
		}
		p.kill(t)
		cancel()
		wg.Wait()
	}

	p := startProcess(t, db)
	defer p.kill(t)
	ended := map[string]int{}
	for after := int64(0); ; {
		page, err := p.client.Terminal(t.Context(), after, 7, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range page.Items {
			ended[item.RolloutID]++
		}
		if page.NextAfter == after {
			break
		}
		after = page.NextAfter
	}
	for id, state := range states {
		detail, err := p.client.Rollout(t.Context(), id)
		if err != nil {
			t.Errorf("rollout %s, which was acknowledged: %v", id, err)
			continue
		}
		// What came after the last answer may have been done.
		got := detail.Rollout.Status.State
		if order := []gateway.State{gateway.Queuing, gateway.Running, gateway.Succeeded}; slices.Index(order, got) < slices.Index(order, state) {
			t.Errorf("rollout %s is %s, but %s was acknowledged", id, got, state)
		}
		if want := map[gateway.State]int{gateway.Succeeded: 1}[got]; ended[id] != want {
			t.Errorf("rollout %s, which is %s, is in the log %d times, want %d", id, got, ended[id], want)
		}
		list, err := p.client.Events(t.Context(), id, gateway.EventQuery{})
		if err != nil || len(list) < events[id] || len(list) > events[id]+1 {
			t.Errorf("rollout %s has %d events (%v), but %d were acknowledged", id, len(list), err, events[id])
		}
		for i, e := range list {
			if want := fmt.Sprintf(`{"i":%d}`, i); string(e.Data) != want {
				t.Errorf("event %d of %s is %s, want %s", i, id, e.Data, want)
			}
		}
	}
	models, err := p.client.Models(t.Context())
	if diff := cmp.Diff([]agl.Model{{Name: "m", Endpoint: "http://127.0.0.1:9/v1", Version: 4}}, models); diff != "" || err != nil {
		t.Errorf("models: %v (-want +got):\n%s", err, diff)
	}
	if len(states) < kills*workers {
		t.Errorf("only %d rollouts were tried", len(states))
	}
}

// live takes a rollout through its life and tells what was acknowledged.
func live(ctx context.Context, c *gateway.Client, id string, acknowledged func(state gateway.State, events int)) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if _, err := c.CreateRollouts(ctx, gateway.RolloutCreate{RolloutID: id, Input: json.RawMessage(`{"q":1}`)}); err != nil {
		return err
	}
	acknowledged(gateway.Queuing, 0)
	attempt := new("0")
	if _, err := c.PatchRollout(ctx, id, gateway.StatusPatch{State: gateway.Running, LastAttemptID: &attempt}); err != nil {
		return err
	}
	acknowledged(gateway.Running, 0)
	for i := range 3 {
		if _, err := c.PostEvent(ctx, id, "0", "step", json.RawMessage(fmt.Sprintf(`{"i":%d}`, i))); err != nil {
			return err
		}
		acknowledged(gateway.Running, i+1)
	}
	if _, err := c.PatchRollout(ctx, id, gateway.StatusPatch{State: gateway.Succeeded}); err != nil {
		return err
	}
	acknowledged(gateway.Succeeded, 3)
	return nil
}
