package interop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/adapter"
	"agentlightning/store"
)

// run starts running.main in the background and returns what waits for it.
func (s *server) run(t *testing.T, wg *sync.WaitGroup, url, agent string, executions, worker int) *error {
	t.Helper()
	var result error
	wg.Go(func() {
		var got ran
		result = python.driver.call(t, "running", map[string]any{"url": url, "agent": agent, "executions": executions, "worker": worker}, &got)
	})
	return &result
}

// TestLateResult has an attempt run out of time, another one succeed, and then
// the first one report that it failed.
func TestLateResult(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, s *server) {
		s.addResources(t)
		id := s.enqueue(t, task{input: "{}", config: &agl.RolloutConfig{
			TimeoutSeconds: new(0.5), MaxAttempts: 2, RetryCondition: []agl.AttemptStatus{agl.AttemptTimeout},
		}})[0]
		var wg sync.WaitGroup
		first := s.run(t, &wg, s.url, "slow", 1, 0)
		second := s.run(t, &wg, s.url, "slow", 1, 1)
		wg.Wait()
		if err := errors.Join(*first, *second); err != nil {
			t.Fatal(err)
		}
		r, attempts := s.rollout(t, id), s.attempts(t, id)
		if len(attempts) != 2 || r.Status != agl.RolloutSucceeded || r.Attempt.SequenceID != 2 {
			t.Fatalf("rollout is %s with attempts %+v, want the second one to have succeeded", r.Status, attempts)
		}
		if attempts[0].Status != agl.AttemptFailed || attempts[1].Status != agl.AttemptSucceeded || *attempts[0].WorkerID == *attempts[1].WorkerID {
			t.Errorf("attempts are %+v, want one that failed and one that succeeded, with different workers", attempts)
		}
		if attempts[0].EndTime == nil || r.EndTime == nil || *r.EndTime > *attempts[0].EndTime {
			t.Errorf("the rollout ended at %v, the late attempt at %v: want the rollout first and its end kept", r.EndTime, attempts[0].EndTime)
		}
		for i, want := range [][]string{{message, message}, {message, annotation}} {
			page, err := s.client.QuerySpans(t.Context(), store.SpanQuery{RolloutID: id, AttemptID: &attempts[i].AttemptID})
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for j := range page.Items {
				names = append(names, page.Items[j].Name)
			}
			if diff := cmp.Diff(want, names); diff != "" {
				t.Errorf("spans of attempt %d (-want +got):\n%s", i+1, diff)
			}
		}
	})
}

// TestRestart stops the server under runners, starts it anew on the same file,
// and finds every reward once.
func TestRestart(t *testing.T) {
	t.Parallel()
	needPython(t)
	const runners, each = 2, 50
	db := "sqlite:" + filepath.Join(t.TempDir(), "agl.db")
	port := freePort(t)
	s := serve(t, db, "--port", port)
	s.addResources(t)
	var tasks []task
	for i := range runners * each {
		tasks = append(tasks, task{input: fmt.Sprintf(`{"number":%d}`, i)})
	}
	ids := s.enqueue(t, tasks...)
	var wg sync.WaitGroup
	errs := make([]*error, runners)
	for i := range runners {
		errs[i] = s.run(t, &wg, s.url, "plain", each, i)
	}
	s.until(t, "a quarter is done", func(ctx context.Context) (bool, error) {
		page, err := s.client.QueryRollouts(ctx, store.RolloutQuery{StatusIn: []agl.RolloutStatus{agl.RolloutSucceeded}})
		return page.Total >= len(ids)/4, err
	})
	s.stop()
	s = serve(t, db, "--port", port)
	page, err := s.client.QueryRollouts(t.Context(), store.RolloutQuery{StatusIn: []agl.RolloutStatus{agl.RolloutSucceeded}})
	if err != nil || page.Total == len(ids) {
		t.Fatalf("%d of %d rollouts were done before the restart (%v), want some to be left", page.Total, len(ids), err)
	}
	wg.Wait()
	for _, err := range errs {
		if *err != nil {
			t.Fatal(*err)
		}
	}
	for i, id := range ids {
		r, spans := s.rollout(t, id), s.spans(t, id)
		if r.Status != agl.RolloutSucceeded || r.Attempt.SequenceID != 1 || len(spans) != 1 {
			t.Errorf("rollout %d is %s in attempt %d with %d spans, want it to have succeeded at once with its reward", i, r.Status, r.Attempt.SequenceID, len(spans))
			continue
		}
		if reward, err := adapter.Final(spans); err != nil || reward == nil || *reward != float64(i) {
			t.Errorf("reward of rollout %d is %v (%v)", i, reward, err)
		}
	}
}

// until asks a few times a second, for half a minute.
func (s *server) until(t *testing.T, what string, done func(context.Context) (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := done(ctx)
		if err != nil {
			t.Fatalf("waiting until %s: %v", what, err)
		}
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// TestToken gives the Python programs the token as the password of the address,
// which is the only place that they have for one.
func TestToken(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, s *server) {
		s.addResources(t)
		ids := s.enqueue(t, task{input: `{"number":7}`})
		var wg sync.WaitGroup
		admitted := s.run(t, &wg, strings.Replace(s.url, "http://", "http://agl:s3cret@", 1), "quick", 1, 1)
		wg.Wait()
		if *admitted != nil {
			t.Fatal(*admitted)
		}
		// The mark goes the way of OTLP, the reward that of the client.
		spans := s.spans(t, ids[0])
		var names []string
		for i := range spans {
			names = append(names, spans[i].Name)
		}
		if diff := cmp.Diff([]string{message, annotation}, names); diff != "" || s.rollout(t, ids[0]).Status != agl.RolloutSucceeded {
			t.Errorf("rollout %+v with spans (-want +got):\n%s", s.rollout(t, ids[0]), diff)
		}
		var got struct {
			Public, Failures []string
		}
		err := python.driver.call(t, "calls", map[string]any{"url": s.url}, &got)
		if err == nil || !strings.Contains(err.Error(), "401") {
			t.Errorf("without a token the client got %v (%v), want 401", err, got)
		}
	}, "--auth-token", "s3cret")
}
