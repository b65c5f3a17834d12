package crash

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentlightning/store"
	"agentlightning/storehttp"
)

// TestSuccession starts a second server on the database of one that is being
// killed, over and over until it gets it. It never gets it while the first one
// lives, and then has all that the first one acknowledged.
func TestSuccession(t *testing.T) {
	db := filepath.Join(t.TempDir(), "agl.db")
	var ids []string // acknowledged by any of them
	for round := range 4 {
		first, second := newServerOn(t, db), newServerOn(t, db)
		client := newTestClient(t, first.url)
		process := first.start(t, client)
		holds(t, client, ids)
		out, err := command(second.args).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "has it open") || strings.Count(string(out), "\n") != 1 {
			t.Fatalf("a second server: %v, said %q, want one line that names the first", err, out)
		}

		var writing sync.WaitGroup
		writing.Go(func() {
			for {
				made, err := client.EnqueueRollouts(t.Context(), []store.EnqueueRequest{{Input: json.RawMessage("1")}})
				if err != nil {
					return // it is dead
				}
				ids = append(ids, made[0].RolloutID)
			}
		})
		killed := make(chan struct{})
		writing.Go(func() {
			pause(t.Context(), time.Duration(rand.Int64N(int64(200*time.Millisecond))))
			close(killed)
			_ = process.Process.Kill()
			_ = process.Wait()
		})
		heir := newTestClient(t, second.url)
		refusals := 0
		for {
			next := command(second.args)
			if err := next.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = next.Wait()
			}()
			if ready(t, heir.Health, ended) {
				select {
				case <-killed:
				default:
					t.Fatal("two servers have one database open")
				}
				writing.Wait()
				// The last enqueue may have been stored without an answer.
				page, err := heir.QueryRollouts(t.Context(), store.RolloutQuery{})
				if err != nil || len(page.Items) < len(ids) || len(page.Items) > len(ids)+1 {
					t.Fatalf("round %d: %d rollouts, %v, %d were acknowledged", round, len(page.Items), err, len(ids))
				}
				if len(page.Items) > len(ids) {
					ids = append(ids, page.Items[len(ids)].RolloutID)
				}
				holds(t, heir, ids)
				_ = next.Process.Kill()
				<-ended
				break
			}
			refusals++
		}
		t.Logf("round %d: the second server was refused %d times, %d rollouts", round, refusals, len(ids))
	}
}

// ready waits until a server is healthy, or has ended.
func ready(t *testing.T, health func(context.Context) error, ended <-chan struct{}) bool {
	t.Helper()
	for health(t.Context()) != nil {
		select {
		case <-ended:
			return false
		case <-time.After(2 * time.Millisecond):
		}
	}
	return true
}

func newTestClient(t *testing.T, url string) *storehttp.Client {
	t.Helper()
	client, err := storehttp.NewClient(url, storehttp.WithRetryWindow(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// holds checks that a server has these rollouts and no others.
func holds(t *testing.T, client *storehttp.Client, ids []string) {
	t.Helper()
	page, err := client.QueryRollouts(t.Context(), store.RolloutQuery{})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Items) != len(ids) {
		t.Fatalf("%d rollouts are stored, %d were acknowledged", len(page.Items), len(ids))
	}
	for i := range ids {
		if page.Items[i].RolloutID != ids[i] {
			t.Fatalf("rollout %d is %s, want %s", i, page.Items[i].RolloutID, ids[i])
		}
	}
}

func stop(t *testing.T, process *exec.Cmd, signal os.Signal) {
	t.Helper()
	if err := process.Process.Signal(signal); err != nil {
		t.Error(err)
	}
	_ = process.Wait()
}
