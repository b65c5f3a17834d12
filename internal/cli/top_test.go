package cli_test

import (
	"context"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/store"
)

// TestTop looks at a server with something of everything, and at none.
func TestTop(t *testing.T) {
	t.Parallel()
	w := &world{url: serve(t, "--db", "sqlite:"+filepath.Join(t.TempDir(), "agl.db"), "--model", "policy=http://127.0.0.1:1/v1,version=7")}
	w.client = connect(t, w.url)
	ctx := t.Context()
	begun, err := algorithm.Begin(ctx, algorithm.Env{Store: w.client}, "pg", map[string]any{"steps": 9}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for step, values := range []map[string]float64{{"accuracy": 0.25}, {"reward": 0.5}, {"reward": 0.625}} {
		if err := begun.Record(ctx, step, values); err != nil {
			t.Fatal(err)
		}
	}
	w.rollout(ctx, t, store.EnqueueRequest{Input: []byte(`1`)}, agl.AttemptSucceeded)
	w.rollout(ctx, t, store.EnqueueRequest{Input: []byte(`2`)}, agl.AttemptFailed)
	if _, err := w.client.EnqueueRollouts(ctx, []store.EnqueueRequest{{Input: []byte(`3`)}, {Input: []byte(`4`)}, {Input: []byte(`5`)}}); err != nil {
		t.Fatal(err)
	}
	claimed, err := w.client.DequeueRollouts(ctx, store.DequeueRequest{Limit: 1, WorkerID: new("worker-of-test")})
	if err != nil || len(claimed) != 1 {
		t.Fatalf("claimed %v, %v", claimed, err)
	}
	out, _ := w.agl(t, 0, "top")
	wantParts(t, out, "RUNS  1 running", begun.RunID, "pg", "running", "2", "0.625", "0.25",
		"QUEUE  2 waiting", "1 in progress", "1 succeeded, 1 failed", "WORKERS  1 busy, 0 idle, 0 silent", "worker-of-test", claimed[0].RolloutID,
		"MODELS  - calls/s, 0 calls", "policy", "7", "http://127.0.0.1:1/v1", "FAILURES  1 failed", "1 ")
	if strings.Contains(out, "not shown") {
		t.Errorf("something could not be read:\n%s", out)
	}

	// Once more after each interval, until it is interrupted.
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	var lines, errs syncBuffer
	done := startCommand(ctx, []string{"top", "--server", w.url, "--interval", "100ms"}, &lines, &errs)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for strings.Count(lines.String(), "RUNS") < 2 && ctx.Err() == nil {
		<-tick.C
	}
	stop()
	if status := <-done; status != 130 || strings.Count(lines.String(), "RUNS") < 2 || errs.String() != "" {
		t.Errorf("agl top --interval = %d %q\n%s", status, errs.String(), lines.String())
	}

	if _, stderr := w.agl(t, 2, "top", "--interval", "1ms"); !strings.Contains(stderr, "--interval 1ms: must be at least 100ms") {
		t.Errorf("a short interval: %s", stderr)
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	for server, want := range map[string]struct {
		status int
		says   string
	}{gone.URL: {1, "the server at " + gone.URL + " cannot be reached"}, "nowhere": {2, "--server nowhere"}} {
		status, stdout, stderr := run(t, "top", "--server", server)
		if status != want.status || stdout != "" || !strings.Contains(stderr, want.says) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("agl top --server %s = %d %q %q, want %d and %q", server, status, stdout, stderr, want.status, want.says)
		}
	}
}
