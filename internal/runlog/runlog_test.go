package runlog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	agl "agentlightning"
	"agentlightning/internal/runlog"
	"agentlightning/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kept is a store that remembers the calls.
type kept struct {
	mu    sync.Mutex
	calls int
	keys  map[string]int
	lines map[string][]agl.LogLine
	fail  func(call int) error
	hold  chan struct{} // calls wait for it; nil does not
}

func (k *kept) AddLogLines(ctx context.Context, runID string, lines ...agl.LogLine) error {
	k.mu.Lock()
	k.calls++
	call := k.calls
	if k.keys == nil {
		k.keys, k.lines = map[string]int{}, map[string][]agl.LogLine{}
	}
	k.keys[store.Key(ctx)]++
	fail, hold := k.fail, k.hold
	k.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if fail != nil {
		if err := fail(call); err != nil {
			return err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lines[runID] = append(k.lines[runID], lines...)
	return nil
}

func (k *kept) text(runID string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var b strings.Builder
	for _, l := range k.lines[runID] {
		fmt.Fprintf(&b, "%s %s %s\n", l.Level, l.Message, l.Attributes)
	}
	return b.String()
}

func TestLinesOfARun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var shown bytes.Buffer
		log := runlog.New(slog.NewTextHandler(&shown, &slog.HandlerOptions{Level: slog.LevelWarn}))
		logger := log.Logger()
		s := &kept{}
		logger.Info("before the run")
		log.Open(s, "r")
		logger.With("worker_id", "w").WithGroup("g").With("a", 1).Warn("slow", "took", 1500*time.Millisecond, "err", errors.New("no disk"))
		logger.Debug("not kept")
		time.Sleep(time.Second) // of the bubble: until the batch is stored
		if got := s.text("r"); s.calls != 1 || strings.Count(got, "\n") != 2 {
			t.Errorf("%d calls stored %q, want one with two lines", s.calls, got)
		}
		logger.Info("more")
		log.Close(t.Context(), "r", agl.RunFailed, errors.New("it broke"))
		logger.Error("too late")
		want := `info before the run {}
warn slow {"worker_id":"w","g.a":1,"g.took":"1.5s","g.err":"no disk"}
info more {}
error run failed {"err":"it broke"}
`
		if got := s.text("r"); got != want {
			t.Errorf("log of the run:\n%s\nwant:\n%s", got, want)
		}
		if got := shown.String(); !strings.Contains(got, "slow") || !strings.Contains(got, "too late") || strings.Contains(got, "more") {
			t.Errorf("the program showed %s", got)
		}
	})
}

func TestALineGoesToEveryRunThatIsOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &kept{}
		logger, log := runlog.Join(nil)
		if again, same := runlog.Join(logger.With("x", 1)); same != log || again.Handler() == nil {
			t.Error("a logger of a log was joined to another one")
		}
		logger.Info("early")
		log.Open(s, "outer")
		log.Open(s, "inner")
		log.Open(s, "inner")
		logger.Info("both")
		log.Add(t.Context(), "inner", slog.LevelInfo, "one")
		log.Close(t.Context(), "inner", agl.RunSucceeded, nil)
		log.Close(t.Context(), "inner", agl.RunFailed, nil) // it has ended
		logger.Info("outer")
		log.End(t.Context())
		logger.Info("nobody")
		if got, want := s.text("outer"), "info early {}\ninfo both {}\ninfo outer {}\n"; got != want {
			t.Errorf("outer run: %q, want %q", got, want)
		}
		if got, want := s.text("inner"), "info both {}\ninfo one {}\ninfo run succeeded {}\n"; got != want {
			t.Errorf("inner run: %q, want %q", got, want)
		}
	})
}

func TestAStoreThatFailsIsReportedOnceAndTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var shown bytes.Buffer
		log := runlog.New(slog.NewTextHandler(&shown, nil))
		s := &kept{fail: func(call int) error {
			if call <= 3 {
				return errors.New("busy")
			}
			return nil
		}}
		log.Open(s, "r")
		log.Logger().Info("a")
		time.Sleep(time.Minute)
		if got := s.text("r"); got != "info a {}\n" || s.calls != 4 || len(s.keys) != 1 {
			t.Errorf("%d calls with %d keys stored %q, want 4 with one key and the line", s.calls, len(s.keys), got)
		}
		log.Close(t.Context(), "r", agl.RunSucceeded, nil)
		if n := strings.Count(shown.String(), "busy"); n != 1 {
			t.Errorf("the failure was reported %d times: %s", n, &shown)
		}
	})
}

func TestAStoreThatTakesNothingIsLeftAlone(t *testing.T) {
	t.Parallel()
	for _, kind := range []error{store.ErrNotFound, errors.ErrUnsupported} {
		t.Run(kind.Error(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var shown bytes.Buffer
				log := runlog.New(slog.NewTextHandler(&shown, &slog.HandlerOptions{Level: slog.LevelWarn}))
				s := &kept{fail: func(int) error { return &store.Error{Kind: kind, Message: "no such log"} }}
				log.Open(s, "r")
				for range 3 {
					log.Logger().Info("a")
					time.Sleep(time.Minute)
				}
				log.Close(t.Context(), "r", agl.RunFailed, nil)
				if n := strings.Count(shown.String(), "no such log"); n != 1 || s.calls != 1 {
					t.Errorf("%d calls, reported %d times: %s", s.calls, n, &shown)
				}
			})
		})
	}
}

// What a slow store has no time for is dropped, and said so where it was.
func TestASlowStoreBoundsMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &kept{hold: make(chan struct{})}
		log := runlog.New(nil)
		log.Open(s, "r")
		for range 6000 {
			log.Logger().Info("a")
		}
		time.Sleep(time.Second)
		close(s.hold)
		log.Close(t.Context(), "r", agl.RunSucceeded, nil)
		got := s.lines["r"]
		if len(got) != 5002 {
			t.Fatalf("%d lines are stored, want 5000, the count and the last", len(got))
		}
		if l := got[5000]; l.Level != agl.LogWarn || string(l.Attributes) != `{"dropped":1000}` {
			t.Errorf("line after the gap = %+v", l)
		}
		if l := got[5001]; l.Message != "run succeeded" {
			t.Errorf("last line = %+v", l)
		}
	})
}

func TestTheEndDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var shown bytes.Buffer
		log := runlog.New(slog.NewTextHandler(&shown, &slog.HandlerOptions{Level: slog.LevelWarn}))
		log.Open(&kept{hold: make(chan struct{})}, "r")
		log.Logger().Info("a")
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // as of a run that is interrupted
		began := time.Now()
		log.Close(ctx, "r", agl.RunInterrupted, ctx.Err())
		if took := time.Since(began); took < time.Second || took > 10*time.Second {
			t.Errorf("the end took %v", took)
		}
		if !strings.Contains(shown.String(), "lines=2") {
			t.Errorf("the loss is not reported: %s", &shown)
		}
	})
}

type mode string

func TestAttributesAreFlatAndFit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &kept{}
		log := runlog.New(nil)
		log.Open(s, "r")
		logger := log.Logger()
		logger.Info("kinds", "nan", math.NaN(), "u", uint64(1), "b", true, "mode", mode("val"), "list", []int{1, 2}, "nil", nil, "m", map[string]int{"a": 1},
			slog.Group("", "inline", 1), slog.Group("g", slog.Group("h", "deep", 2.5)), "b", false)
		long := strings.Repeat("é", 10_000)
		logger.Info(long, //nolint:sloglint // what a program of others may say
			"long", strings.Repeat("x", 9000))
		many := make([]any, 0, 2000)
		for i := range 1000 {
			many = append(many, fmt.Sprintf("key%03d", i), "some value")
		}
		logger.Info("many", many...)
		log.End(t.Context())
		lines := s.lines["r"]
		if want := `{"nan":"NaN","u":1,"b":false,"mode":"val","list":"[1,2]","nil":null,"m":"{\"a\":1}","inline":1,"g.h.deep":2.5}`; string(lines[0].Attributes) != want {
			t.Errorf("attributes = %s\nwant %s", lines[0].Attributes, want)
		}
		if !strings.HasSuffix(lines[1].Message, " bytes more)") || !strings.Contains(string(lines[1].Attributes), " bytes more)") {
			t.Errorf("a long line does not say what was cut: …%s, …%s", lines[1].Message[4000:], lines[1].Attributes[2000:])
		}
		for _, l := range lines {
			var object map[string]any
			if err := json.Unmarshal(l.Attributes, &object); err != nil || l.Size() > store.LogLineBytes {
				t.Errorf("a line of %d bytes, %v", l.Size(), err)
			}
			if n, ok := object["attributes_cut"]; l.Message == "many" && (!ok || int(n.(float64))+len(object)-1 != 1000) {
				t.Errorf("%d attributes are left and %v were cut, of 1000", len(object)-1, n)
			}
		}
	})
}
