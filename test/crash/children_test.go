//go:build unix

package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/execution"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// TestChildren has an algorithm of this process give work to runners that are
// processes of their own, and these to shells; all end well when it is done, also
// the one that is busy.
func TestChildren(t *testing.T) {
	s := engine.New(memory.New(), engine.Config{})
	defer func() { _ = s.Close() }()
	c := execution.Children{
		Command: []string{os.Args[0]}, Stderr: os.Stderr, Listen: "127.0.0.1:0",
		Env: []string{asServer + "=" + strings.Join([]string{
			"runner", "--until-stdin-ends", "--grace", "100ms", "--reward", "stdout", "--log-level", "error", "--",
			"sh", "-c", `[ "$AGL_TASK" = 0 ] && exec sleep 600; echo $AGL_TASK`,
		}, "\n")},
	}
	const tasks = 12
	began := time.Now()
	err := c.Execute(t.Context(), execution.Work{Runners: 2, Algorithm: func(ctx context.Context, s store.Store) error {
		reqs := make([]store.EnqueueRequest, tasks)
		for i := range reqs {
			reqs[i].Input = json.RawMessage(fmt.Sprint(i + 1))
		}
		queued, err := s.EnqueueRollouts(ctx, reqs)
		if err != nil {
			return err
		}
		ids := make([]string, tasks)
		for i := range queued {
			ids[i] = queued[i].RolloutID
		}
		done, err := s.WaitForRollouts(ctx, ids, patience)
		if err != nil {
			return err
		}
		for _, r := range done {
			if r.Status != agl.RolloutSucceeded {
				t.Errorf("rollout %s is %s", r.RolloutID, r.Status)
			}
		}
		if len(done) != tasks {
			t.Errorf("%d of %d rollouts are done", len(done), tasks)
		}
		began = time.Now()
		_, err = s.EnqueueRollouts(ctx, []store.EnqueueRequest{{Input: json.RawMessage("0")}})
		for err == nil { // until it is under way
			page, failed := s.QueryRollouts(ctx, store.RolloutQuery{StatusIn: []agl.RolloutStatus{agl.RolloutPreparing, agl.RolloutRunning}})
			if err = failed; len(page.Items) > 0 {
				break
			}
			pause(ctx, 5*time.Millisecond)
		}
		return err
	}}, s)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("the end took %v, want that of the input to be enough", took)
	}
	page, err := s.QueryRollouts(t.Context(), store.RolloutQuery{StatusIn: []agl.RolloutStatus{agl.RolloutRequeuing}})
	if err != nil || len(page.Items) != 1 {
		t.Errorf("%d rollouts were given back, %v, want the one that was not done", len(page.Items), err)
	}
}
