package llmproxy_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentlightning/llmproxy"
	"agentlightning/semconv"
)

func TestPausedCalls(t *testing.T) {
	t.Parallel()
	f := setup(t, llmproxy.Config{}, answers(wholeAnswer))
	gate := f.proxy.Gate()
	if _, err := gate.Pause(llmproxy.Pause{RetryAfter: 1500 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	status, header, body := f.chat(t, ask)
	if status != http.StatusTooManyRequests || header.Get("Retry-After") != "2" || header.Get("X-Agl-Paused") != "true" || !strings.Contains(body, `"code":"paused"`) {
		t.Errorf("paused call is answered %d %v %s", status, header, body)
	}
	if got := problem(f.store.span(t)); got != semconv.ProblemPaused {
		t.Errorf("problem is %q, want %q", got, semconv.ProblemPaused)
	}
	// A held call is answered once the pause is over.
	if _, err := gate.Pause(llmproxy.Pause{Hold: true}); err != nil {
		t.Fatal(err)
	}
	held := make(chan int, 1)
	go func() {
		status, _, _ := f.chat(t, ask)
		held <- status
	}()
	waitFor(t, func() bool { return gate.State().Held == 1 })
	if _, err := gate.Resume(""); err != nil {
		t.Fatal(err)
	}
	if status := <-held; status != http.StatusOK {
		t.Errorf("held call is answered %d", status)
	}
	if err := gate.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

// waitFor waits until something that no channel tells of is true.
func waitFor(t *testing.T, happened func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(10 * time.Second)
	for !happened() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("it did not happen within 10s")
		}
	}
}

func TestGateRefuses(t *testing.T) {
	t.Parallel()
	g := llmproxy.NewGate(0, nil)
	leave, err := g.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	why := "new weights"
	state, err := g.Pause(llmproxy.Pause{RetryAfter: 3 * time.Second, Reason: &why})
	if err != nil || !state.Paused || state.InFlight != 1 {
		t.Fatalf("Pause = %+v, %v, want paused with one call in flight", state, err)
	}
	_, err = g.Enter(t.Context())
	if e, ok := errors.AsType[*llmproxy.PausedError](err); !ok || e.RetryAfter != 3*time.Second || *e.Reason != why {
		t.Errorf("Enter while paused = %v, want a refusal with the reason", err)
	}
	leave()
	leave() // a second time has no effect
	if n := g.State().InFlight; n != 0 {
		t.Errorf("%d calls in flight, want none", n)
	}
	state, err = g.Resume("")
	if err != nil || state.Paused || state.Reason != nil || state.RetryAfter != 3*time.Second {
		t.Errorf("Resume = %+v, %v, want the time to wait kept and the reason gone", state, err)
	}
	if leave, err = g.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	leave()
}

func TestGateLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := llmproxy.NewGate(0, nil)
		if _, err := g.Pause(llmproxy.Pause{Owner: "a", Lease: time.Minute}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Second)
		// The owner renews, another may neither take over nor end it.
		if _, err := g.Pause(llmproxy.Pause{Owner: "a", Lease: time.Minute}); err != nil {
			t.Errorf("renew = %v", err)
		}
		time.Sleep(59 * time.Second)
		_, pauseErr := g.Pause(llmproxy.Pause{Owner: "b"})
		_, resumeErr := g.Resume("")
		for _, err := range []error{pauseErr, resumeErr} {
			if e, ok := errors.AsType[*llmproxy.PauseOwnerError](err); !ok || e.Owner != "a" {
				t.Errorf("change by another = %v, want a refusal that names the owner", err)
			}
		}
		if s := g.State(); !s.Paused || time.Until(s.Until) != time.Second {
			t.Errorf("state is %+v, want a second left", s)
		}
		time.Sleep(time.Second)
		if s := g.State(); s.Paused || s.Owner != "" {
			t.Errorf("state is %+v after the lease, want open", s)
		}
		if _, err := g.Resume("b"); err != nil {
			t.Errorf("Resume of an open gate = %v", err)
		}
	})
}

func TestGateHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := llmproxy.NewGate(10*time.Second, nil)
		enter := func(ctx context.Context) <-chan error {
			done := make(chan error, 1)
			go func() {
				leave, err := g.Enter(ctx)
				if err == nil {
					leave()
				}
				done <- err
			}()
			synctest.Wait()
			return done
		}
		hold := func(lease time.Duration) {
			if _, err := g.Pause(llmproxy.Pause{Hold: true, Lease: lease}); err != nil {
				t.Fatal(err)
			}
		}

		hold(0)
		resumed := enter(t.Context())
		if s := g.State(); s.Held != 1 || s.InFlight != 0 {
			t.Errorf("state is %+v, want one call held and none in flight", s)
		}
		if _, err := g.Resume(""); err != nil {
			t.Fatal(err)
		}
		if err := <-resumed; err != nil {
			t.Errorf("held call after Resume = %v", err)
		}

		hold(4 * time.Second)
		leased := enter(t.Context())
		start := time.Now()
		if err := <-leased; err != nil || time.Since(start) != 4*time.Second {
			t.Errorf("held call = %v after %s, want let in after the lease of 4s", err, time.Since(start))
		}

		hold(0)
		late := enter(t.Context())
		time.Sleep(6 * time.Second)
		hold(0) // renewing does not hold a call longer
		start = time.Now()
		if e, ok := errors.AsType[*llmproxy.PausedError](<-late); !ok || e.Held != 10*time.Second || time.Since(start) != 4*time.Second {
			t.Errorf("call held too long = %v after another %s, want a refusal after 10s in all", e, time.Since(start))
		}

		ctx, cancel := context.WithCancel(t.Context())
		gone := enter(ctx)
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("held call whose caller left = %v", err)
		}
	})
}

func TestGateDrains(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := llmproxy.NewGate(0, nil)
		if err := g.Drain(t.Context()); err != nil {
			t.Errorf("Drain without calls = %v", err)
		}
		first, _ := g.Enter(t.Context())
		second, _ := g.Enter(t.Context())
		if _, err := g.Pause(llmproxy.Pause{}); err != nil {
			t.Fatal(err)
		}
		drained := make(chan error, 2)
		for range 2 {
			go func() { drained <- g.Drain(t.Context()) }()
		}
		first()
		synctest.Wait()
		select {
		case err := <-drained:
			t.Fatalf("Drain = %v with a call in flight", err)
		default:
		}
		second()
		for range 2 {
			if err := <-drained; err != nil {
				t.Errorf("Drain = %v", err)
			}
		}
		_, _ = g.Resume("")
		leave, _ := g.Enter(t.Context())
		defer leave()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain that takes too long = %v", err)
		}
	})
}
