package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	agl "agentlightning"
	"agentlightning/store"
)

// scanBatch is how many attempts one transaction of a health scan ends, so that
// other calls get a turn in between.
const scanBatch = 64

// checkHealth ends the attempts that are past their limits, unless that was
// done a short while ago. Of several calls at once, one does it and the others
// go on.
func (s *Store) checkHealth(ctx context.Context) error {
	return s.scanOlderThan(ctx, s.cfg.HealthScanInterval)
}

// scanOlderThan scans unless the last scan is younger than this.
func (s *Store) scanOlderThan(ctx context.Context, age time.Duration) error {
	now := s.cfg.Now().UnixNano()
	last := s.lastScan.Load()
	// A clock that was set back does not put the scan off.
	if last != 0 && now >= last && now-last < int64(age) {
		return nil
	}
	if !s.lastScan.CompareAndSwap(last, now) && age > 0 {
		return nil
	}
	if err := s.scan(ctx); err != nil {
		s.lastScan.CompareAndSwap(now, last) // the next call tries again
		return err
	}
	return nil
}

func (s *Store) timedScan(ctx context.Context) {
	if err := s.checkHealth(ctx); err != nil {
		s.logUnlessClosed(ctx, "scan for attempts past their limits", err)
	}
}

func (s *Store) logUnlessClosed(ctx context.Context, what string, err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, store.ErrClosed) {
		return
	}
	s.log.LogAttrs(ctx, slog.LevelWarn, "background work failed", slog.String("what", what), slog.Any("err", err))
}

// scan looks first and writes only what has to change: most scans find nothing.
func (s *Store) scan(ctx context.Context) error {
	var open []agl.AttemptedRollout
	now := s.now()
	err := s.view(ctx, func(r Reader) (err error) {
		open, err = r.OpenRollouts()
		return err
	})
	if err != nil {
		return err
	}
	var due []string
	for i := range open {
		if _, ok := overdue(&open[i].Rollout, open[i].Attempt, now); ok {
			due = append(due, open[i].RolloutID)
		}
	}
	for len(due) > 0 {
		n := min(len(due), scanBatch)
		batch := due[:n]
		due = due[n:]
		var ended []agl.Attempt
		err := s.update(ctx, func(c *change) (err error) {
			ended, err = c.endOverdue(batch)
			return err
		})
		if err != nil {
			return err
		}
		for i := range ended {
			s.log.LogAttrs(ctx, slog.LevelWarn, "attempt ended by its limits",
				slog.String("rollout_id", ended[i].RolloutID), slog.String("attempt_id", ended[i].AttemptID),
				slog.String("status", string(ended[i].Status)))
		}
	}
	return nil
}

// endOverdue looks again, since time has passed, and ends what is overdue.
func (c *change) endOverdue(ids []string) ([]agl.Attempt, error) {
	rollouts, err := c.Rollouts(ids)
	if err != nil {
		return nil, err
	}
	latest, err := c.LatestAttempts(ids)
	if err != nil {
		return nil, err
	}
	var ended []agl.Attempt
	for _, id := range ids {
		ro, a := rollouts[id], latest[id]
		status, ok := overdue(&ro, &a, c.now)
		if !ok {
			continue
		}
		if err := c.updateAttempt(&ro, &a, true, &store.AttemptUpdate{Status: store.To(status)}); err != nil {
			return nil, err
		}
		ended = append(ended, a)
	}
	return ended, nil
}

// overdue returns the status that the latest attempt of a rollout deserves for
// being past a limit. What the attempt's status is does not matter, only that
// the rollout is active. Age counts before silence.
func overdue(ro *agl.Rollout, a *agl.Attempt, now float64) (agl.AttemptStatus, bool) {
	if a == nil || a.AttemptID == "" || !ro.Status.Active() {
		return "", false
	}
	if limit := ro.Config.TimeoutSeconds; limit != nil && now-a.StartTime > *limit {
		return agl.AttemptTimeout, true
	}
	if limit := ro.Config.UnresponsiveSeconds; limit != nil {
		heard := a.StartTime
		if a.LastHeartbeatTime != nil {
			heard = *a.LastHeartbeatTime
			if heard == 0 { // a heartbeat of zero is none that counts
				return "", false
			}
		}
		if now-heard > *limit {
			return agl.AttemptUnresponsive, true
		}
	}
	return "", false
}
