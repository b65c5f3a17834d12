package algorithm_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/algorithm/stage"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

// watched begins a run with a rollout that no runner takes.
func watched(t *testing.T, c stage.Config) (*engine.Store, *algorithm.Run, []string) {
	t.Helper()
	s := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() { _ = s.Close() })
	run, err := algorithm.Begin(t.Context(), algorithm.Env{Store: s, Watch: c, Logger: slog.New(slog.DiscardHandler)}, "test", struct{}{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := algorithm.Ask(t.Context(), s, []store.EnqueueRequest{{Input: json.RawMessage(`{}`)}})
	if err != nil {
		t.Fatal(err)
	}
	return s, run, ids
}

func TestRunSaysWhichStageIsSilent(t *testing.T) {
	t.Parallel()
	type told struct {
		status stage.Status
		ok     bool
	}
	stalls := make(chan told, 100)
	s, run, ids := watched(t, stage.Config{
		Warn:    20 * time.Millisecond,
		OnStall: func(_ context.Context, st stage.Status, ok bool) { stalls <- told{st, ok} },
	})
	done := make(chan error, 1)
	go func() {
		done <- run.Stage(t.Context(), stage.Collect, func(ctx context.Context) error {
			_, err := algorithm.Collect(ctx, s, ids, algorithm.Collecting{})
			return err
		})
	}()
	first := <-stalls
	if first.ok || first.status.Stage != stage.Collect || first.status.Idle < 20*time.Millisecond {
		t.Errorf("told of %+v, want a silent stage collect", first)
	}
	kept, err := s.Run(t.Context(), run.RunID)
	if err != nil {
		t.Fatal(err)
	}
	if kept.Status != agl.RunRunning || !strings.Contains(kept.Error, "stage collect makes no progress") {
		t.Errorf("run is %s, %q; want running, and the silent stage named", kept.Status, kept.Error)
	}
	claimed, err := s.DequeueRollouts(t.Context(), store.DequeueRequest{Limit: 1})
	if err != nil || len(claimed) != 1 {
		t.Fatalf("claimed %d, %v", len(claimed), err)
	}
	_, err = s.UpdateAttempt(t.Context(), ids[0], claimed[0].Attempt.AttemptID, store.AttemptUpdate{Status: store.To(agl.AttemptSucceeded)})
	if err != nil {
		t.Fatal(err)
	}
	for got := range stalls {
		if got.ok {
			break
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if kept, err = s.Run(t.Context(), run.RunID); err != nil || kept.Error != "" {
		t.Errorf("the run that goes on says %q, %v; want nothing", kept.Error, err)
	}
}

func TestSilentRunFails(t *testing.T) {
	t.Parallel()
	s, run, ids := watched(t, stage.Config{Warn: -1, Limit: 50 * time.Millisecond})
	err := run.Stage(t.Context(), stage.Collect, func(ctx context.Context) error {
		_, err := algorithm.Collect(ctx, s, ids, algorithm.Collecting{})
		return err
	})
	if err = run.Finish(t.Context(), err); !errors.Is(err, stage.ErrStuck) {
		t.Errorf("err = %v, want %v", err, stage.ErrStuck)
	}
	kept, err := s.Run(t.Context(), run.RunID)
	if err != nil {
		t.Fatal(err)
	}
	if kept.Status != agl.RunFailed || !strings.Contains(kept.Error, "stage collect makes no progress") {
		t.Errorf("run is %s, %q; want failed, and the silent stage named", kept.Status, kept.Error)
	}
}
