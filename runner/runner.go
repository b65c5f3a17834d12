package runner

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	agl "agentlightning"
	"agentlightning/store"
)

// Runner pulls rollouts and has an agent do them. Run may be called once at a time.
type Runner struct {
	cfg        Config
	watch      watch
	rewardOnce sync.Once // guards the warning about rewards given twice
}

// New returns a runner, or an error that names the field that is wrong.
func New(cfg Config) (*Runner, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Runner{cfg: cfg.withDefaults()}, nil
}

// Run works until ctx ends, [Config.MaxRollouts] is reached or the store says that
// the run has ended, and returns nil then. When ctx or the run ends it claims nothing more, gives running agents the grace
// period, cancels those that are left and reports them, and returns. It returns
// an error when the store is closed, denies access or was never reached.
func (r *Runner) Run(ctx context.Context) error {
	if r.cfg.Reclaim {
		if err := r.reclaim(ctx); err != nil {
			return err
		}
	}
	ctx, end := context.WithCancel(ctx) // when the store says that the run has ended
	defer end()
	work, cancelWork := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancelWork(nil)
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	var helpers sync.WaitGroup
	helpers.Go(func() { r.beat(background) })
	helpers.Go(func() { r.watch.run(background, r.cfg, end) })
	defer helpers.Wait()
	defer stopBackground()

	var attempts sync.WaitGroup
	err := r.pull(ctx, work, &attempts)
	if errors.Is(err, store.ErrEnded) {
		r.cfg.Logger.InfoContext(ctx, "the run has ended", "worker_id", r.cfg.WorkerID)
		err = nil
		end()
	}

	idle := make(chan struct{})
	go func() {
		attempts.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return err
	case <-ctx.Done():
	}
	grace := time.NewTimer(r.cfg.Grace)
	defer grace.Stop()
	select {
	case <-idle:
	case <-grace.C:
		cancelWork(ErrStopped)
		<-idle // bounded: an attempt does not outlast its context by more than Grace and the report
	}
	return err
}

// pull claims rollouts and starts an attempt for each.
func (r *Runner) pull(ctx, work context.Context, attempts *sync.WaitGroup) error {
	slots := make(chan struct{}, r.cfg.Concurrency)
	began, reached := time.Now(), false
	key, pause := claimKey(), firstPause
	for claimed := 0; ; {
		n := r.takeSlots(ctx, slots, claimed)
		if n == 0 {
			return nil
		}
		asked := time.Now()
		rollouts, err := r.cfg.Store.DequeueRollouts(ctx, store.DequeueRequest{
			WorkerID: &r.cfg.WorkerID, Limit: n, Wait: r.cfg.PollInterval, Key: key,
		})
		for range n - len(rollouts) {
			<-slots
		}
		switch {
		case err == nil:
			reached, pause, key = true, firstPause, claimKey()
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the claim failed because the runner is to stop
		case errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrDenied), errors.Is(err, store.ErrEnded):
			return fmt.Errorf("worker %s: claim a rollout: %w", r.cfg.WorkerID, err)
		case !reached && r.cfg.ConnectTimeout >= 0 && time.Since(began) >= r.cfg.ConnectTimeout:
			return fmt.Errorf("worker %s has not reached the store for %v; is the server running and the address right? %w",
				r.cfg.WorkerID, time.Since(began).Round(time.Second), err)
		default: // the key is kept: the claim may have been made
			r.cfg.Logger.WarnContext(ctx, "cannot claim a rollout; trying again",
				"worker_id", r.cfg.WorkerID, "pause", pause, "err", err)
			if !sleep(ctx, pause) {
				return nil
			}
			pause = min(2*pause, lastPause)
			continue
		}
		for _, rollout := range rollouts {
			claimed++
			attempts.Go(func() {
				defer func() { <-slots }()
				_ = r.execute(work, rollout) // reported and logged by it
			})
		}
		// A store that knows no long poll answers at once.
		if rest := r.cfg.PollInterval - time.Since(asked); len(rollouts) == 0 && rest > r.cfg.PollInterval/10 {
			if !sleep(ctx, jitter(rest)) {
				return nil
			}
		}
	}
}

// takeSlots waits for one free slot, takes the others that are free, and returns
// how many; 0 when there is nothing left to claim.
func (r *Runner) takeSlots(ctx context.Context, slots chan struct{}, claimed int) int {
	most := r.cfg.Concurrency
	if r.cfg.MaxRollouts > 0 {
		most = min(most, r.cfg.MaxRollouts-claimed)
	}
	if most == 0 || ctx.Err() != nil {
		return 0
	}
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	for n := 1; n < most; n++ {
		select {
		case slots <- struct{}{}:
		default:
			return n
		}
	}
	return most
}

// The pauses between tries of a call that fails.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// claimKey returns a key that no other claim has.
func claimKey() string { return agl.NewTraceID() }

// jitter keeps runners that were started together from asking together.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*rand.Float64())) //nolint:gosec // spreading load, not a secret
}

// sleep returns false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// persist calls f until it succeeds, is refused, or ctx ends.
func persist(ctx context.Context, f func(context.Context) error) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := f(ctx)
		if err == nil || refused(err) || !sleep(ctx, pause) {
			return err
		}
	}
}

// refused reports whether the store understood and said no.
func refused(err error) bool {
	return errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrNotFound) ||
		errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrClosed) || errors.Is(err, store.ErrDenied)
}
