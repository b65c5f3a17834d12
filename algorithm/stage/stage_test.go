package stage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentlightning/algorithm/stage"
)

// wait lets time pass in a bubble.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// said collects what a watch tells.
type said []string

func (s *said) onStall(_ context.Context, st stage.Status, ok bool) {
	*s = append(*s, fmt.Sprintf("%s %v %v %v %q", st.Stage, ok, st.Idle, st.Since, st.Last))
}

func TestSilenceHasAName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var got said
		w := stage.New(stage.Config{Warn: time.Minute, OnStall: got.onStall, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		err := w.Do(t.Context(), stage.Collect, func(ctx context.Context) error {
			for i := range 3 { // quick enough
				_ = wait(ctx, 50*time.Second)
				stage.Progress(ctx, "%d of 16 rollouts finished", i+1)
			}
			_ = wait(ctx, 2*time.Minute+time.Second)
			stage.Progress(ctx, "4 of 16 rollouts finished")
			return wait(ctx, 61*time.Second)
		})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			`collect false 1m0s 3m30s "3 of 16 rollouts finished"`,
			`collect false 2m0s 4m30s "3 of 16 rollouts finished"`,
			`collect true 0s 4m31s "4 of 16 rollouts finished"`,
			`collect false 1m0s 5m31s "4 of 16 rollouts finished"`,
			`collect true 0s 5m32s "4 of 16 rollouts finished"`,
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("told of\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if !strings.Contains(log.String(), `stage=collect idle=1m0s elapsed=3m30s last="3 of 16 rollouts finished"`) {
			t.Errorf("log does not name the stage:\n%s", &log)
		}
	})
}

func TestInnermostStageSpeaks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got said
		w := stage.New(stage.Config{Warn: time.Minute, OnStall: got.onStall})
		err := w.Do(t.Context(), stage.Validate, func(ctx context.Context) error {
			err := w.Do(ctx, stage.Collect, func(ctx context.Context) error { return wait(ctx, 90*time.Second) })
			return errors.Join(err, wait(ctx, 70*time.Second))
		})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			`validate / collect false 1m0s 1m0s ""`,
			`validate / collect true 0s 1m30s ""`,
			`validate false 1m0s 2m30s ""`,
			`validate true 0s 2m40s ""`,
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("told of\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

func TestLimitEndsAStage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := stage.New(stage.Config{Warn: -1, Limit: 5 * time.Minute})
		err := w.Do(t.Context(), stage.Validate, func(ctx context.Context) error {
			return w.Do(ctx, stage.Collect, func(ctx context.Context) error {
				stage.Progress(ctx, "1 of 2 rollouts finished")
				return wait(ctx, time.Hour)
			})
		})
		stuck, ok := errors.AsType[*stage.StuckError](err)
		if !ok || !errors.Is(err, stage.ErrStuck) {
			t.Fatalf("err = %v, want a StuckError", err)
		}
		want := stage.Status{Stage: "validate / collect", Since: 5 * time.Minute, Idle: 5 * time.Minute, Last: "1 of 2 rollouts finished"}
		if stuck.Status != want {
			t.Errorf("status = %+v, want %+v", stuck.Status, want)
		}
		const text = "stage validate / collect makes no progress: nothing moved for 5m0s, it began 5m0s ago; the last thing that happened: 1 of 2 rollouts finished; the limit is reached"
		if err.Error() != text {
			t.Errorf("text %q, want %q", err, text)
		}
	})
}

func TestAStopIsNotSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got said
		w := stage.New(stage.Config{Warn: time.Minute, Limit: 2 * time.Minute, OnStall: got.onStall})
		ctx, stop := context.WithCancel(t.Context())
		err := w.Do(ctx, stage.Update, func(context.Context) error {
			stop()
			return wait(context.WithoutCancel(ctx), time.Hour) // tidies up
		})
		if err != nil || len(got) > 0 {
			t.Errorf("err = %v, told of %q: want neither", err, got)
		}
	})
}

func TestErrorsPassThrough(t *testing.T) {
	t.Parallel()
	fault := errors.New("fault")
	for name, w := range map[string]*stage.Watch{"watched": stage.New(stage.Config{}), "not": nil} {
		var changes []string
		if w != nil {
			w = stage.New(stage.Config{OnChange: func(s stage.Status) { changes = append(changes, s.Stage+": "+s.Last) }})
		}
		err := w.Do(t.Context(), stage.Publish, func(ctx context.Context) error {
			stage.Progress(ctx, "half")
			return fault
		})
		if !errors.Is(err, fault) {
			t.Errorf("%s: err = %v, want %v", name, err, fault)
		}
		if w != nil && strings.Join(changes, ", ") != "publish: , publish: half" {
			t.Errorf("changes %q", changes)
		}
	}
}
