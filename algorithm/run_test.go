package algorithm_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	agl "agentlightning"
	"agentlightning/algorithm"
	"agentlightning/store"
	"agentlightning/store/engine"
	"agentlightning/store/memory"
)

func newEnv(t *testing.T) algorithm.Env {
	t.Helper()
	s := engine.New(memory.New(), engine.Config{})
	t.Cleanup(func() { _ = s.Close() })
	return algorithm.Env{Store: s}
}

// What trackers read of a run has the names that trackers know.
func TestRunRecordsUnderTheNamesOfTrackers(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	run, err := algorithm.Begin(t.Context(), env, "pg", struct {
		Steps int `json:"steps"`
	}{3}, 7)
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Record(t.Context(), 2, map[string]float64{"reward": 0.5, "loss": 1, "val/math/reward": 0.25, "own": 4}); err != nil {
		t.Fatal(err)
	}
	got, err := env.Store.StepMetrics(t.Context(), run.RunID, -1)
	if err != nil || len(got) != 1 {
		t.Fatalf("StepMetrics = %v, %v", got, err)
	}
	for name, want := range map[string]float64{
		algorithm.MetricReward: 0.5, "actor/pg_loss": 1, "val/math/reward": 0.25, "training/own": 4, "training/global_step": 2,
	} {
		if v, ok := got[0].Values[name]; !ok || v != want {
			t.Errorf("%s = %v, %v, want %v", name, v, ok, want)
		}
	}
}

func TestRunKeepsWhatItRanWithAndWhyItFailed(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	for _, config := range []any{struct{}{}, map[string]int{"steps": 3}} {
		run, err := algorithm.Begin(t.Context(), env, "own", config, 1)
		if err != nil {
			t.Fatal(err)
		}
		var kept map[string]any
		if err := json.Unmarshal(run.Config, &kept); err != nil {
			t.Fatalf("config %s: %v", run.Config, err)
		}
		if v, _ := kept[algorithm.ConfigCodeVersion].(string); v == "" {
			t.Errorf("config %s does not name the code", run.Config)
		}
	}
	if _, err := algorithm.Begin(t.Context(), env, "own", 3, 1); err == nil {
		t.Error("a configuration that is a number was taken")
	}
	run, err := algorithm.Begin(t.Context(), env, "own", struct{}{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	broke := errors.New("the learner broke")
	if err := run.Finish(t.Context(), broke); !errors.Is(err, broke) {
		t.Errorf("Finish = %v", err)
	}
	ended, err := env.Store.Run(t.Context(), run.RunID)
	if err != nil || ended.Status != agl.RunFailed || ended.Error != broke.Error() || ended.EndTime == nil {
		t.Errorf("run = %+v, %v, want one that failed with the reason", ended, err)
	}
	if _, err := env.Store.Run(t.Context(), "run-none"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("unknown run: %v", err)
	}
}

func TestRunKeepsWhatIsSaidAndHowItEnded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		end  func(t *testing.T, run *algorithm.Run)
		last agl.LogLine
	}{
		{"success", func(t *testing.T, run *algorithm.Run) { _ = run.Finish(t.Context(), nil) }, agl.LogLine{Level: agl.LogInfo, Message: "run succeeded", Attributes: []byte(`{}`)}},
		{"failure", func(t *testing.T, run *algorithm.Run) { _ = run.Finish(t.Context(), errors.New("the learner broke")) }, agl.LogLine{Level: agl.LogError, Message: "run failed", Attributes: []byte(`{"err":"the learner broke"}`)}},
		{"interrupt", func(t *testing.T, run *algorithm.Run) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_ = run.Finish(ctx, ctx.Err())
		}, agl.LogLine{Level: agl.LogWarn, Message: "run interrupted", Attributes: []byte(`{"err":"context canceled"}`)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			env := newEnv(t)
			run, err := algorithm.Begin(t.Context(), env, "own", struct{}{}, 1)
			if err != nil {
				t.Fatal(err)
			}
			run.Logger.Warn("slow", "step", 3)
			if err := run.Record(t.Context(), 3, map[string]float64{"reward": 0.5}); err != nil {
				t.Fatal(err)
			}
			tt.end(t, run)
			page, err := env.Store.RunLog(t.Context(), store.LogQuery{RunID: run.RunID})
			if err != nil || len(page.Lines) != 4 {
				t.Fatalf("log = %+v, %v, want four lines", page, err)
			}
			for i, want := range []string{"algorithm started", "slow", "step recorded"} {
				if page.Lines[i].Message != want {
					t.Errorf("line %d = %s, want %s", i, page.Lines[i].Message, want)
				}
			}
			if got := string(page.Lines[2].Attributes); got != `{"run_id":"`+run.RunID+`","step":3,"training/reward":0.5}` {
				t.Errorf("attributes of the step = %s", got)
			}
			last := page.Lines[3]
			tt.last.Position, tt.last.Time = last.Position, last.Time
			if diff := cmp.Diff(tt.last, last); diff != "" {
				t.Errorf("last line (-want +got):\n%s", diff)
			}
		})
	}
}
